"""Tests of what rows are appended to: files of a run before, whole, torn, or of other columns."""

import os
import pathlib

import pytest
from acme.utils import loggers

from apex_agents.runs.csv_file import CSVFile

HEADER = b"loss,step\r\n"


def write(path: pathlib.Path, *rows: dict) -> None:
    logger = loggers.CSVLogger(CSVFile(path), flush_every=1)
    for row in rows:
        logger.write(row)
    logger.close()


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "learner.csv"


@pytest.mark.fault(
    breaks="`kill -9` while a row of a CSV file is written",
    holds="the torn row is cut off; rows go on after the last whole one",
)
@pytest.mark.parametrize(
    ("before", "kept"),
    [
        pytest.param(None, HEADER, id="no file"),
        pytest.param(b"", HEADER, id="empty file"),
        pytest.param(b"los", HEADER, id="torn header"),
        pytest.param(HEADER[:-1], HEADER, id="header without its newline"),
        pytest.param(HEADER, HEADER, id="header alone"),
        pytest.param(HEADER + b"0.5", HEADER, id="torn first row"),
        pytest.param(HEADER + b"0.5,1\r\n", HEADER + b"0.5,1\r\n", id="whole"),
        pytest.param(HEADER + b"0.5,1\r\n0.25,12", HEADER + b"0.5,1\r\n", id="torn in a number"),
        pytest.param(HEADER + b"0.5,1\r\n0.2,2\r", HEADER + b"0.5,1\r\n", id="torn at its end"),
        pytest.param(HEADER + b"0.5,1\r\n\0\0\0", HEADER + b"0.5,1\r\n", id="power failure"),
    ],
)
def test_rows_follow_the_last_whole_one(before, kept, path):
    if before is not None:
        path.write_bytes(before)
    write(path, {"step": 3, "loss": 0.125}, {"step": 4, "loss": 2.0})
    assert path.read_bytes() == kept + b"0.125,3\r\n2.0,4\r\n"
    assert os.listdir(path.parent) == ["learner.csv"]


def test_a_torn_row_is_cut_off_before_the_first_row(path):
    path.write_bytes(HEADER + b"0.5,1\r\n0.25,12")
    CSVFile(path)
    assert path.read_bytes() == HEADER + b"0.5,1\r\n"


def test_other_columns_begin_a_new_file(path):
    whole = HEADER + b"0.5,1\r\n"
    path.write_bytes(whole + b"0.2")
    write(path, {"step": 2, "loss": 0.25, "entropy": 1.5}, {"step": 3, "loss": 0.0, "entropy": 1.0})
    assert path.read_bytes() == b"entropy,loss,step\r\n1.5,0.25,2\r\n1.0,0.0,3\r\n"
    assert (path.parent / "learner.1.csv").read_bytes() == whole
    write(path, {"step": 4})
    assert path.read_bytes() == b"step\r\n4\r\n"
    assert (path.parent / "learner.1.csv").read_bytes() == whole
    assert (path.parent / "learner.2.csv").read_bytes().startswith(b"entropy,loss,step\r\n1.5")
    assert len(os.listdir(path.parent)) == 3


@pytest.mark.parametrize("header", [b"loss,step_2\r\n", b"loss,step,x\r\n", b"loss\r\n", b"\r\n"])
def test_headers_that_begin_alike_are_others(header, path):
    path.write_bytes(header)
    write(path, {"step": 1, "loss": 0.5})
    assert path.read_bytes() == HEADER + b"0.5,1\r\n"
    assert (path.parent / "learner.1.csv").read_bytes() == header


def test_a_file_that_is_removed_begins_anew(path):
    logger = loggers.CSVLogger(CSVFile(path), flush_every=1)
    logger.write({"step": 1, "loss": 0.5})
    path.unlink()
    logger.write({"step": 2, "loss": 0.25})
    assert path.read_bytes() == HEADER + b"0.25,2\r\n"
