"""Tests of the CSV logger: new files, files of the process before, truncated rows."""

import os
import pathlib

import pytest

from apex_agents.runs.csv_file import CSVLogger, end_rows

HEADER = b"loss,step\r\n"
CONTINUED = HEADER + b"0.5,1\r\n\r\n"


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "learner.csv"


@pytest.mark.fault(
    breaks="`kill -9` while a row of a CSV file is written",
    holds="the truncated row is removed; rows follow the last whole one",
)
@pytest.mark.parametrize(
    ("before", "begin"),
    [
        pytest.param(None, HEADER, id="no file"),
        pytest.param(b"", HEADER, id="empty file"),
        pytest.param(b"los", HEADER, id="truncated header"),
        pytest.param(HEADER[:-1], HEADER, id="header without its newline"),
        pytest.param(HEADER, HEADER + b"\r\n", id="header alone"),
        pytest.param(HEADER + b"0.5", HEADER + b"\r\n", id="truncated first row"),
        pytest.param(HEADER + b"0.5,1\r\n", CONTINUED, id="whole"),
        pytest.param(HEADER + b"0.5,1\r\n0.25,12", CONTINUED, id="within a number"),
        pytest.param(HEADER + b"0.5,1\r\n0.2,2\r", CONTINUED, id="within its end"),
        pytest.param(HEADER + b"0.5,1\r\n\0\0\0", CONTINUED, id="power failure"),
    ],
)
def test_rows_follow_the_last_whole_one(before, begin, path):
    if before is not None:
        path.write_bytes(before)
    logger = CSVLogger(path)
    logger.write({"step": 3, "loss": 0.125})
    logger.write({"step": 4, "loss": 2.0})
    assert path.read_bytes() == begin + b"0.125,3\r\n2.0,4\r\n"
    assert os.listdir(path.parent) == ["learner.csv"]


def test_a_truncated_row_is_removed_before_the_first_row(path):
    path.write_bytes(HEADER + b"0.5,1\r\n0.25,12")
    CSVLogger(path)
    assert path.read_bytes() == CONTINUED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(HEADER + b"0.5,1\r\n", CONTINUED, id="rows"),
        pytest.param(HEADER + b"0.5,1\r\n0.2", CONTINUED, id="truncated row"),
        pytest.param(CONTINUED, CONTINUED, id="ended rows"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_rows_are_ended_once(before, after, path):
    path.write_bytes(before)
    end_rows(path)
    CSVLogger(path)
    CSVLogger(path)
    assert path.read_bytes() == after


def test_columns_are_those_of_the_first_row(path):
    logger = CSVLogger(path)
    logger.write_rows([{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "entropy": 1.5}])
    logger.write({"step": 3})
    assert path.read_bytes() == HEADER + b"0.5,1\r\n0.25,2\r\nnan,3\r\n"


def test_columns_stay_those_of_the_file(path, caplog):
    path.write_bytes(HEADER + b"0.5,1\r\n")
    logger = CSVLogger(path)
    for step in (2, 3):
        logger.write({"step": step, "entropy": 1.5})
    assert path.read_bytes() == HEADER + b"0.5,1\r\n\r\nnan,2\r\nnan,3\r\n"
    (record,) = caplog.records
    assert record.getMessage() == f"{path} has no column for entropy."


def test_text_is_quoted_where_it_has_to_be(path):
    CSVLogger(path).write({"step": 1, "loss": 'a "b", c'})
    assert path.read_bytes() == HEADER + b'"a ""b"", c",1\r\n'


def test_a_file_that_is_removed_is_made_anew(path):
    logger = CSVLogger(path)
    logger.write({"step": 1, "loss": 0.5})
    path.unlink()
    logger.write({"step": 2, "loss": 0.25})
    assert path.read_bytes() == HEADER + b"0.25,2\r\n"
