"""Tests of reading a run's folder while other processes write into it."""

import fcntl
import json
import re
import shutil

import numpy as np
import pytest

from apex_agents.runs.csv_file import RowReader
from apex_agents.runs.folder import RunFolder, find_runs


@pytest.fixture
def workdir(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.json").write_text('{"run": {"seed": 3}}')
    return tmp_path


@pytest.mark.parametrize("content", [None, "", "{", "[1]", '{"format_version": 0}'])
def test_a_folder_without_a_run_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))} "):
        RunFolder(tmp_path)
    with pytest.raises(ValueError, match="missing is no folder"):
        RunFolder(tmp_path / "missing")


def test_the_home_of_a_user_who_does_not_exist():
    for read in (RunFolder, find_runs):
        with pytest.raises(ValueError, match="~nobody-of-this-name/run is no folder"):
            read("~nobody-of-this-name/run")


def test_what_the_folder_says(workdir):
    run = RunFolder(str(workdir))
    assert run.config["run"]["seed"] == 3
    assert (run.summary(), run.nodes(), run.logs()) == (None, {}, [])
    (workdir / "summary.json").write_text(json.dumps({"finished": True}))
    for name in ("learner.csv", "actor_0_envs.csv", "actor_0.log"):
        (workdir / "logs" / name).touch()
    assert run.summary() == {"finished": True}
    assert run.logs() == ["actor_0_envs", "learner"]


def test_a_run_is_running_while_a_process_holds_its_lock(workdir):
    run = RunFolder(workdir)
    assert not run.is_running()
    with (workdir / ".lock").open("w") as file:
        assert not run.is_running()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert run.is_running()
        assert run.is_running()
    assert not run.is_running()


def test_rows_are_read_as_they_are_written(workdir):
    path = workdir / "logs" / "learner.csv"
    reader = RowReader(path)
    assert reader.read() == []
    with path.open("w") as file:
        for text, expected in [
            ("lo", []),
            ("ss,quantity\r\n", []),
            ("0.5,age\r\n0.25", [{"loss": 0.5, "quantity": "age"}]),
            (",td\r\n", [{"loss": 0.25, "quantity": "td"}]),
            ("\0\0\0" + "3,y\r\n", [{"loss": 3.0, "quantity": "y"}]),  # After a power failure.
            ("\r\n4,z\r\n", [{}, {"loss": 4.0, "quantity": "z"}]),  # Of two processes.
            ("1\r\n2,x\r\n", [{"loss": 2.0, "quantity": "x"}]),  # Not a row: left out.
        ]:
            file.write(text)
            file.flush()
            assert reader.read() == expected
    assert reader.read() == []


def test_a_file_that_is_made_anew_is_read_from_its_beginning(workdir):
    path = workdir / "logs" / "learner.csv"
    reader = RowReader(path)
    path.write_text("a\n1\n2\n")
    assert reader.read() == [{"a": 1.0}, {"a": 2.0}]
    path.rename(workdir / "logs" / "old")  # Its inode is not used again.
    assert reader.read() == []
    path.write_text("b,a\n3,4\n5,6\n")
    assert reader.read() == [{"b": 3.0, "a": 4.0}, {"b": 5.0, "a": 6.0}]
    path.write_text("a\n7\n")  # The same inode, but shorter.
    assert reader.read() == [{"a": 7.0}]


def test_columns_of_numbers_and_text(workdir):
    (workdir / "logs" / "x.csv").write_text("value,quantity\nnan,age\n1e-3,td\ninf,age\n")
    columns = RunFolder(workdir).read_columns("x")
    np.testing.assert_equal(columns["value"], [np.nan, 0.001, np.inf])
    assert columns["quantity"].tolist() == ["age", "td", "age"]
    (workdir / "logs" / "x.csv").write_text("value,quantity\n1,age\n\n2,td\n\n")
    columns = RunFolder(workdir).read_columns("x")
    np.testing.assert_equal(columns["value"], [1, np.nan, 2])  # The run was stopped in between.
    assert RunFolder(workdir).read_columns("nothing") == {}
    for text in ("", "val", "value,quantity\n", "value,quantity\n1,ag"):
        (workdir / "logs" / "x.csv").write_text(text)
        assert RunFolder(workdir).read_columns("x") == {}


@pytest.mark.parametrize(
    ("max_bytes", "num_pieces"), [(10 * 2**15, 16), (8 * 2**10, 8), (2**15, 16), (500, 1)]
)
def test_of_a_long_file_pieces_from_all_over_it_are_read(max_bytes, num_pieces, workdir):
    num_rows = 50_000
    path = workdir / "logs" / "learner.csv"
    path.write_text("step,loss\n" + "".join(f"{step},{step}.5\n" for step in range(num_rows)))
    columns = RunFolder(workdir).read_columns("learner", max_bytes)
    steps = columns["step"].astype(int)
    assert columns["loss"].tolist() == (steps + 0.5).tolist()  # Whole rows, none joined.
    part = max_bytes / path.stat().st_size
    assert 0.7 * part * num_rows < len(steps) < 1.3 * part * num_rows
    assert steps[-1] == num_rows - 1
    gaps = np.diff(steps)
    assert gaps.min() == 1
    assert (gaps > 1).sum() == num_pieces - 1
    assert num_pieces == 1 or steps[0] == 0
    everything = RunFolder(workdir).read_columns("learner", path.stat().st_size)
    assert everything["step"].tolist() == list(range(num_rows))


@pytest.mark.parametrize("stop", [0, 1, 3_000, 3_001, 4_998])
@pytest.mark.parametrize("max_bytes", [2**12, 2**12 + 1, 2**14, 2**20])
def test_a_stop_is_a_gap_in_whatever_is_read(stop, max_bytes, workdir):
    text = "".join(f"{step}\r\n" + "\r\n" * (step == stop) for step in range(5_000))
    (workdir / "logs" / "learner.csv").write_bytes(f"step\r\n{text}".encode())
    steps = RunFolder(workdir).read_columns("learner", max_bytes)["step"]
    (gap,) = np.flatnonzero(np.isnan(steps))
    assert steps[gap - 1] <= stop < steps[gap + 1]
    assert (steps[0], steps[-1]) == (0, 4_999)


def test_no_row_is_lost_at_the_beginning_or_read_twice(workdir):
    path = workdir / "logs" / "learner.csv"
    for length in range(1, 40):
        rows = [f"{number:0{length}}" for number in range(2000)]
        path.write_text("step\n" + "\n".join(rows) + "\n")
        steps = RunFolder(workdir).read_columns("learner", 2**11)["step"]
        assert steps[0] == 0 and steps[-1] == 1999 and (np.diff(steps) > 0).all()


def test_what_is_no_run_that_can_be_read_is_left_out(tmp_path, caplog):
    for name, config in {"new": "{}", "old": '{"format_version": 1}', "agent": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "agent" / "agent.json").write_text("{}")  # As apex-export --agent writes it.
    assert [run.path.name for run in find_runs(tmp_path)] == ["new"]
    assert "old was written by another version" in caplog.text
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(ValueError, match="old was written by another version"):
        find_runs(tmp_path)


def test_the_runs_of_a_folder(tmp_path):
    names = ["pong/seed_1", "pong/seed_0", "pong/lr=1/seed_0", "a/b/c/d/too_deep"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    found = [run.path.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path)]
    assert found == ["pong/lr=1/seed_0", "pong/seed_0", "pong/seed_1"]
    (run,) = find_runs(tmp_path / "pong" / "seed_0")
    assert run.path == tmp_path / "pong" / "seed_0"
    for path in (tmp_path / "a" / "b" / "nothing", tmp_path / "a"):
        with pytest.raises(ValueError, match=str(path)):
            find_runs(path)
