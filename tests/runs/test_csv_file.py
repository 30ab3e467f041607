"""Tests of CSV files: what loggers write after processes that ended, and what readers get of it."""

import os
import pathlib

import numpy as np
import pytest

from apex_agents.runs.csv_file import CSVLogger, RowReader, end_rows, read_columns

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


def test_a_file_that_is_removed_is_made_anew(path):
    logger = CSVLogger(path)
    logger.write({"step": 1, "loss": 0.5})
    path.unlink()
    logger.write({"step": 2, "loss": 'a "b", c'})  # Text is quoted where it has to be.
    assert path.read_bytes() == HEADER + b'"a ""b"", c",2\r\n'


def test_rows_are_read_as_they_are_written(path):
    reader = RowReader(path)
    assert reader.read() == []
    with path.open("w") as file:
        for text, expected in [
            ("lo", []),
            ("ss,quantity\r\n", []),
            ("0.5,age\r\n0.25", [{"loss": 0.5, "quantity": "age"}]),
            (",td\r\n", [{"loss": 0.25, "quantity": "td"}]),
            ("\0\0\0" + "3,y\r\n", [{"loss": 3.0, "quantity": "y"}]),  # After a power failure.
            ("\r\n4,z\r\n", [{}, {"loss": 4.0, "quantity": "z"}]),  # Two processes wrote.
            ("1\r\n2,x\r\n", [{"loss": 2.0, "quantity": "x"}]),  # Not a row: left out.
        ]:
            file.write(text)
            file.flush()
            assert reader.read() == expected
    assert reader.read() == []


def test_a_file_that_is_made_anew_is_read_from_its_beginning(path):
    reader = RowReader(path)
    path.write_text("a\n1\n2\n")
    assert reader.read() == [{"a": 1.0}, {"a": 2.0}]
    path.rename(path.with_name("old"))  # Its inode is not used again.
    assert reader.read() == []
    path.write_text("b,a\n3,4\n5,6\n")
    assert reader.read() == [{"b": 3.0, "a": 4.0}, {"b": 5.0, "a": 6.0}]
    path.write_text("a\n7\n")  # The same inode, but shorter.
    assert reader.read() == [{"a": 7.0}]


def test_columns_of_numbers_and_text(path):
    path.write_text("value,quantity\nnan,age\n1e-3,td\ninf,age\n")
    columns = read_columns(path)
    np.testing.assert_equal(columns["value"], [np.nan, 0.001, np.inf])
    assert columns["quantity"].tolist() == ["age", "td", "age"]
    path.write_text("value,quantity\n1,age\n\n2,td\n\n")
    columns = read_columns(path)
    np.testing.assert_equal(columns["value"], [1, np.nan, 2])  # The run was stopped in between.
    assert read_columns(path.with_name("nothing")) == {}
    for text in ("", "val", "value,quantity\n", "value,quantity\n1,ag"):
        path.write_text(text)
        assert read_columns(path) == {}


@pytest.mark.parametrize(
    ("max_bytes", "num_pieces"), [(10 * 2**15, 16), (8 * 2**10, 8), (2**15, 16), (500, 1)]
)
def test_of_a_long_file_pieces_from_all_over_it_are_read(max_bytes, num_pieces, path):
    num_rows = 50_000
    path.write_text("step,loss\n" + "".join(f"{step},{step}.5\n" for step in range(num_rows)))
    columns = read_columns(path, max_bytes)
    steps = columns["step"].astype(int)
    assert columns["loss"].tolist() == (steps + 0.5).tolist()  # Whole rows, none joined.
    part = max_bytes / path.stat().st_size
    assert 0.7 * part * num_rows < len(steps) < 1.3 * part * num_rows
    assert steps[-1] == num_rows - 1
    gaps = np.diff(steps)
    assert gaps.min() == 1
    assert (gaps > 1).sum() == num_pieces - 1
    assert num_pieces == 1 or steps[0] == 0
    everything = read_columns(path, path.stat().st_size)
    assert everything["step"].tolist() == list(range(num_rows))


@pytest.mark.parametrize("stop", [0, 1, 3_000, 3_001, 4_998])
@pytest.mark.parametrize("max_bytes", [2**12, 2**12 + 1, 2**14, 2**20])
def test_a_stop_is_a_gap_in_whatever_is_read(stop, max_bytes, path):
    text = "".join(f"{step}\r\n" + "\r\n" * (step == stop) for step in range(5_000))
    path.write_bytes(f"step\r\n{text}".encode())
    steps = read_columns(path, max_bytes)["step"]
    (gap,) = np.flatnonzero(np.isnan(steps))
    assert steps[gap - 1] <= stop < steps[gap + 1]
    assert (steps[0], steps[-1]) == (0, 4_999)


def test_no_row_is_lost_at_the_beginning_or_read_twice(path):
    for length in range(1, 40):
        rows = [f"{number:0{length}}" for number in range(2000)]
        path.write_text("step\n" + "\n".join(rows) + "\n")
        steps = read_columns(path, 2**11)["step"]
        assert steps[0] == 0 and steps[-1] == 1999 and (np.diff(steps) > 0).all()
