"""Tests of reading a run's folder while other processes write into it."""

import fcntl
import json
import re
import shutil

import pytest

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


def test_what_is_no_run_that_can_be_read_is_left_out(tmp_path, caplog):
    for name, config in {"new": "{}", "old": '{"format_version": 1}', "agent": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "agent" / "agent.json").write_text("{}")  # apex-export --agent writes it.
    assert [run.path.name for run in find_runs(tmp_path)] == ["new"]
    assert "old was written by a different version" in caplog.text
    shutil.rmtree(tmp_path / "new")
    with pytest.raises(ValueError, match="old was written by a different version"):
        find_runs(tmp_path)


def test_the_runs_of_a_folder(tmp_path):
    names = [
        "pong/seed_1",
        "pong/seed_0",
        "pong/lr=1/seed_0",
        "p/q/lr=1/seed_0",
        "a/b/c/d/e/too_deep",
    ]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    found = [run.path.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path)]
    assert found == ["p/q/lr=1/seed_0", "pong/lr=1/seed_0", "pong/seed_0", "pong/seed_1"]
    (run,) = find_runs(tmp_path / "pong" / "seed_0")
    assert run.path == tmp_path / "pong" / "seed_0"
    for path in (tmp_path / "a" / "b" / "nothing", tmp_path / "a"):
        with pytest.raises(ValueError, match=str(path)):
            find_runs(path)
