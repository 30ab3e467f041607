"""Tests of the run's folder: made, resumed, locked, refused."""

import json
import pathlib
import re

import pytest

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.runs.files import is_held
from apex_agents.runs.opening import close_workdir, lock_descriptors, open_workdir, read_run_id
from apex_agents.runs.workdir import check_path, new_workdir


def make_config(**changes) -> ExperimentConfig:
    sections = {
        "agent": ApexDQNConfig(batch_size=3, mlp_hidden_sizes=(1, 2)),
        "environment": EnvironmentConfig("toy", "catch"),
        "run": RunConfig(max_learner_steps=5),
    }
    return ExperimentConfig(**{**sections, **changes})


@pytest.fixture
def open_folder():
    """Open folders, and close them in the end."""
    opened = []

    def open_folder(path: pathlib.Path | str, config: ExperimentConfig | None = None) -> str:
        opened.append(open_workdir(str(path), config or make_config(), 0))
        return opened[-1]

    yield open_folder
    for folder in opened:
        close_workdir(folder)


def test_the_config_is_written_and_folders_are_made_beside_foreign_files(tmp_path, open_folder):
    path = tmp_path / "a" / "b"
    path.mkdir(parents=True)
    (path / "notes.txt").write_text("mine")
    assert open_folder(path) == str(path)
    values = json.loads((path / "config.json").read_text())
    assert (values["format_version"], values["agent_type"]) == (2, "ApexDQNConfig")
    assert values["agent"]["mlp_hidden_sizes"] == [1, 2]
    assert values["environment"]["task"] == "catch"
    assert (path / "logs").is_dir() and (path / "checkpoints").is_dir()
    assert (path / "notes.txt").read_text() == "mine"


def test_the_path_is_absolute_and_new_by_default(tmp_path, monkeypatch, open_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with new_workdir("name") as new:
        path = open_folder(new)
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/runs/name-\d{{8}}-\d{{6}}", path)
    assert pathlib.Path(path).exists()
    assert open_folder("relative") == str(tmp_path / "relative")
    assert open_folder("~/run") == str(tmp_path / "home" / "run")


def test_commands_that_start_at_once_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda pattern: "now")
    with new_workdir("name") as first, new_workdir("name") as second:
        names = ["runs/name-now", "runs/name-now-2"]
        assert [first, second] == [str(tmp_path / name) for name in names]
    assert list(tmp_path.iterdir()) == []  # Nothing was written into them.
    (tmp_path / "runs").mkdir()
    with new_workdir("name"):
        pass
    assert list(tmp_path.rglob("*")) == [tmp_path / "runs"]  # It was there before.


def test_a_new_folder_that_cannot_be_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    message = r"^The folder runs/name-[\d-]* cannot be written: Not a directory\.$"
    refused = pytest.raises(ValueError, match=message)
    with refused, new_workdir("name"):
        pass


def test_a_new_folder_behind_a_link_to_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(tmp_path / "not_mounted")
    refused = pytest.raises(ValueError, match="runs is a file, or a link to a folder that is gone")
    with refused, new_workdir("name"):
        pass


def test_a_new_folder_in_one_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused = pytest.raises(ValueError, match="cannot be written: No such file or directory")
    with refused, new_workdir("name"):
        pass


@pytest.fixture
def stopped_run(tmp_path) -> pathlib.Path:
    """A folder whose run ended."""
    workdir = open_workdir(str(tmp_path), make_config())
    for file in ("summary.json", "logs/learner.csv"):
        (tmp_path / file).write_text("{}")
    close_workdir(workdir)
    return tmp_path


def test_a_run_is_resumed_with_other_limits(stopped_run, open_folder):
    run_id = read_run_id(str(stopped_run))
    open_folder(stopped_run, make_config(run=RunConfig(max_learner_steps=9)))
    config = json.loads((stopped_run / "config.json").read_text())
    assert config["run"]["max_learner_steps"] == 9
    assert read_run_id(str(stopped_run)) == run_id
    # How the run ended before is forgotten, the logs stay.
    assert not (stopped_run / "summary.json").exists()
    assert (stopped_run / "logs/learner.csv").exists()


@pytest.mark.parametrize("name", ["summary.json", "nodes.json"])
def test_files_of_another_program_are_not_replaced(tmp_path, name):
    (tmp_path / name).write_text("[1, 2]")
    with pytest.raises(ValueError, match=rf"holds {name}, but no run; name a new folder"):
        open_workdir(str(tmp_path), make_config())
    assert (tmp_path / name).read_text() == "[1, 2]"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.fault(
    breaks="the `--workdir` of a run that is active",
    holds="refused",
)
def test_two_runs_in_one_folder_are_refused(tmp_path, open_folder):
    open_folder(tmp_path)
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match=f"^The folder {re.escape(str(tmp_path))} is in use"):
        open_folder(tmp_path, make_config(run=RunConfig(seed=1)))
    assert (tmp_path / "config.json").read_text() == before
    assert is_held(tmp_path / ".lock")


def test_a_folder_that_is_closed_is_not_locked(tmp_path):
    close_workdir(open_workdir(str(tmp_path), make_config()))
    assert not is_held(tmp_path / ".lock") and lock_descriptors() == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "cannot be written: Not a directory."),
        ("file/run", "cannot be written: Not a directory."),
        ("blocked", "cannot be written: File exists."),
        ("/proc/run", "cannot be written: No such file or directory."),
        ("x" * 300, "cannot be written: File name too long."),
        ("nul\0", "needs a path of printable text without any of []*?\\, in UTF-8"),
        ("bytes\udcff", "needs a path of printable text without any of []*?\\, in UTF-8"),
        ("rate[0.1]", "needs a path of printable text without any of []*?\\, in UTF-8"),
        ("rate*", "needs a path of printable text without any of []*?\\, in UTF-8"),
    ],
)
def test_why_a_folder_cannot_be_written(tmp_path, path, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "logs").write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError) as caught:
        open_workdir(str(tmp_path / path), make_config())
    assert str(caught.value) == f"The folder {tmp_path / path} {reason}"
    assert sorted(tmp_path.rglob("*")) == before


def test_letters_that_the_locale_lacks(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "iso8859-1")
    with pytest.raises(ValueError, match=r"gr\\xfcn' .* iso8859-1; or set PYTHONUTF8=1"):
        check_path(tmp_path / "grün")
    check_path(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_locked(tmp_path):
    (tmp_path / "config.json.partial").mkdir()  # It is in the way of config.json.
    with pytest.raises(ValueError, match="cannot be written") as caught:
        open_workdir(str(tmp_path), make_config())
    assert not is_held(tmp_path / ".lock")
    assert caught.tb  # It would keep a lock alive that is not released.


def test_the_home_of_an_unknown_user(tmp_path):
    with pytest.raises(ValueError, match=r"^The folder ~nobody_of_this_name/run cannot be found"):
        open_workdir("~nobody_of_this_name/run", make_config())
