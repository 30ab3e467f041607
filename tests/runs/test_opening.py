"""Tests of how an experiment gets the folder of its run."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dm_env import specs

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec
from apex_agents.experiment import Progress, make_experiment
from apex_agents.program import make_program
from apex_agents.runs import opening
from apex_agents.runs.config_file import read_spec
from apex_agents.runs.files import is_held, write_json
from apex_agents.runs.opening import (
    close_workdir,
    find_open,
    open_run,
    remove_other_replays,
    share_actor_steps,
    warning_of_resumption,
)
from apex_agents.runs.workdir import actor_steps_file

CONFIG = ExperimentConfig(
    ApexDQNConfig(torso="mlp", frame_stack=0), EnvironmentConfig("toy", "catch"), RunConfig()
)


@pytest.fixture
def workdir(tmp_path):
    yield tmp_path / "run"
    if find_open(str(tmp_path / "run")):
        close_workdir(str(tmp_path / "run"))


def test_a_program_writes_into_the_folder_of_its_experiment(workdir):
    experiment = make_experiment(CONFIG, workdir=str(workdir))
    assert not workdir.exists()
    program = make_program(experiment)
    assert len(program.groups["actor"]) == 1
    assert json.loads((workdir / "config.json").read_text())["environment"]["task"] == "catch"
    assert (workdir / "logs").is_dir() and (workdir / "checkpoints").is_dir()
    assert is_held(workdir / ".lock")


def test_the_best_parameters_are_those_of_episodes_of_one_length(workdir):
    best = workdir / "checkpoints" / "best.npz"
    for limit in (None, None, 100):
        cartpole = EnvironmentConfig("gymnasium", "CartPole-v1", max_episode_steps=limit)
        config = dataclasses.replace(CONFIG, environment=cartpole)
        open_run(make_experiment(config, workdir=str(workdir)))
        close_workdir(str(workdir))
        if limit is None:
            best.write_text("mine")
    (path,) = best.parent.glob("best*")
    assert (path.name, path.read_text()) == ("best_with_max_episode_steps_None.npz", "mine")


def open_with(workdir: pathlib.Path, observations: specs.Array, actions: specs.Array) -> None:
    """Open the folder of a run whose environment has these specs, and close it."""
    experiment = make_experiment(CONFIG, workdir=str(workdir))
    number = specs.Array((), np.float32)
    spec = EnvironmentSpec(observations, actions, number, number)
    open_run(dataclasses.replace(experiment, spec=spec))
    close_workdir(str(workdir))


BYTES = specs.BoundedArray((4, 4), np.uint8, 0, 255)
TWO = specs.DiscreteArray(2)
FORCES = specs.BoundedArray((3,), np.float32, -1.0, 1.0)


@pytest.mark.fault(
    breaks="the environment of a finished run, whose command is given again: it has a new spec",
    holds="refused, with what differs; the run stays finished",
)
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ((specs.Array((4, 5), np.uint8), TWO), r"observations are uint8 \[4, 4\]"),
        ((specs.Array((4, 4), np.float32), TWO), r"are float32 \[4, 4\]"),
        ((BYTES.replace(maximum=1), TWO), "up to 255; now they are .* up to 1"),
        ((BYTES, specs.DiscreteArray(3)), "actions are discrete, 2 of them; .* 3"),
        ((BYTES, FORCES), r"discrete, 2 of them; now they are float32 \[3\]"),
    ],
)
def test_a_run_of_an_environment_with_another_spec_is_not_resumed(workdir, now, expected):
    open_with(workdir, BYTES, TWO)
    (workdir / "summary.json").write_text('{"finished": true}')
    config = (workdir / "config.json").read_text()
    with pytest.raises(ValueError, match=expected):
        open_with(workdir, *now)
    assert (workdir / "summary.json").read_text() == '{"finished": true}'
    assert (workdir / "config.json").read_text() == config
    open_with(workdir, BYTES, TWO)
    assert not (workdir / "summary.json").exists()


def test_a_run_that_has_no_spec_yet_gets_one_when_it_is_resumed(workdir):
    open_with(workdir, BYTES, TWO)
    config = json.loads((workdir / "config.json").read_text())
    spec = config.pop("environment_spec")
    (workdir / "config.json").write_text(json.dumps(config))
    open_with(workdir, FORCES, TWO)
    assert read_spec(workdir) == {**spec, "observations": {"dtype": "float32", "shape": [3]}}
    # A program made by hand does not know the spec, and keeps it.
    open_run(make_experiment(CONFIG, workdir=str(workdir)))
    assert read_spec(workdir)["actions"] == {"num_values": 2}


def test_an_experiment_is_opened_once(workdir, monkeypatch):
    monkeypatch.chdir(workdir.parent)
    opened = open_run(make_experiment(CONFIG, workdir="run"))
    assert opened.workdir == str(workdir)
    assert len(opened.run_id) == 12
    assert open_run(opened) is opened
    # The same process may make another program of the same run.
    again = open_run(make_experiment(CONFIG, workdir=str(workdir)))
    assert (again.workdir, again.run_id) == (opened.workdir, opened.run_id)


def test_rows_from_before_are_ended_once(workdir):
    (workdir / "logs").mkdir(parents=True)
    for name in ("learner", "actor_7"):  # The second one will not be there any more.
        (workdir / "logs" / f"{name}.csv").write_bytes(b"loss\r\n0.5\r\n0.2")
    for _ in range(2):
        open_run(make_experiment(CONFIG, workdir=str(workdir)))
    contents = [path.read_bytes() for path in workdir.glob("logs/*.csv")]
    assert contents == [b"loss\r\n0.5\r\n\r\n"] * 2


def test_a_folder_that_cannot_be_opened_is_not_kept(workdir, monkeypatch):
    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "find_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_run(make_experiment(CONFIG, workdir=str(workdir)))
    assert not is_held(workdir / ".lock") and find_open(str(workdir)) is None


def test_a_path_may_go_upwards(workdir):
    path = str(workdir.parent / "other" / ".." / "run")
    (workdir.parent / "other").mkdir()
    workdirs = {open_run(make_experiment(CONFIG, workdir=path)).workdir for _ in range(2)}
    assert workdirs == {find_open(path)}
    close_workdir(*workdirs)


def test_another_run_is_not_opened_in_a_folder_of_this_process(workdir):
    make_program(make_experiment(CONFIG, workdir=str(workdir)))
    other = dataclasses.replace(CONFIG, agent=dataclasses.replace(CONFIG.agent, n_step=5))
    with pytest.raises(ValueError, match=r"agent\.n_step 3, not 5"):
        make_program(make_experiment(other, workdir=str(workdir)))


def test_an_experiment_without_a_folder_is_refused():
    with pytest.raises(ValueError, match=r"make_experiment\(.*workdir="):
        make_program(make_experiment(CONFIG))


def test_an_experiment_without_a_config_has_made_its_folder(tmp_path):
    experiment = dataclasses.replace(make_experiment(CONFIG, workdir=str(tmp_path)), config=None)
    assert open_run(experiment) is experiment
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("num_replays", "counts"),
    [(1, [125, None, None, None]), (2, [63, 62, None, None]), (3, [100, [8, 12], [0, 0, 5], None])]
    + [(4, [32, 31, 31, 31])],
)
def test_steps_are_shared_out_to_another_number_of_servers(tmp_path, num_replays, counts):
    # The first server's in the form of version 0.2.0, the others with a number for each actor.
    for index, counts_of_server in enumerate(("100", "[8, 12]", "[0, 0, 5]")):
        (tmp_path / actor_steps_file(index)).write_text(counts_of_server)
    for _ in range(2):
        share_actor_steps(tmp_path, num_replays)
        paths = [tmp_path / actor_steps_file(index) for index in range(4)]
        assert [json.loads(p.read_text()) if p.exists() else None for p in paths] == counts


@pytest.mark.parametrize("num_calls", range(8))
@pytest.mark.parametrize("num_replays", [1, 2, 4])
def test_no_step_is_lost_or_doubled_by_an_interruption(
    num_calls, num_replays, tmp_path, monkeypatch
):
    """The command is killed between two changes of the folder, and given again."""
    calls = iter(range(num_calls))

    def interrupt(change: Callable[..., Any]) -> Callable[..., Any]:
        def change_or_end(*arguments: Any, **keywords: Any) -> Any:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return change(*arguments, **keywords)

        return change_or_end

    for index, count in enumerate((100, 20, 5)):
        (tmp_path / actor_steps_file(index)).write_text(str(count))
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(opening, "write_json", interrupt(write_json))
        patch.setattr(pathlib.Path, "unlink", interrupt(pathlib.Path.unlink))
        share_actor_steps(tmp_path, num_replays)
    share_actor_steps(tmp_path, num_replays)
    counts = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert (len(counts), sum(counts)) == (num_replays, 125)


def test_no_run_begins_with_steps_that_could_not_be_shared_out(tmp_path, monkeypatch):
    for index in range(2):
        (tmp_path / actor_steps_file(index)).write_text("10")
    monkeypatch.setattr(opening, "write_json", lambda path, value: False)
    with pytest.raises(ValueError, match="actor steps of its replays cannot be written"):
        share_actor_steps(tmp_path, 1)


def test_steps_that_cannot_be_read_are_lost_and_said(tmp_path, caplog):
    (tmp_path / actor_steps_file(0)).write_text("null")
    (tmp_path / actor_steps_file(1)).write_text("20")
    share_actor_steps(tmp_path, 1)
    assert json.loads((tmp_path / actor_steps_file(0)).read_text()) == 20
    assert "actor_steps.json cannot be read" in caplog.text


def test_replays_of_another_number_of_servers_are_removed(tmp_path, caplog):
    for name in ("replay", "replay_0_of_2", "replay_1_of_2", "learner-000000000010"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    remove_other_replays(tmp_path, 2)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"replay_0_of_2", "replay_1_of_2", "learner-000000000010"}
    remove_other_replays(tmp_path, 1)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"learner-000000000010"}
    assert caplog.text.count("is removed") == 3


@pytest.mark.parametrize(
    ("counted", "limit", "period", "is_warned"),
    [
        ((70_000, 10_000), 120_000, None, True),  # 40,000 are left.
        ((70_000, 10_000), 130_000, None, False),
        ((70_000, 10_000), 120_000, 60.0, False),  # The replay was saved.
        ((70_000, 10_000), 80_000, None, False),  # All were done: the last evaluation follows.
        ((70_000, 10_000), None, None, False),
        ((), 60_000, None, False),
    ],
)
def test_a_resumed_run_that_cannot_fill_its_replay_is_warned(
    counted, limit, period, is_warned, tmp_path
):
    for index, count in enumerate(counted):
        write_json(tmp_path / actor_steps_file(index), count)
    run = RunConfig(max_actor_steps=limit, replay_checkpoint_period_seconds=period)
    config = dataclasses.replace(CONFIG, run=run)  # The learner starts at 50,000 transitions.
    experiment = make_experiment(config, workdir=str(tmp_path))
    experiment = dataclasses.replace(experiment, resumed_at=Progress(500, 60.0))
    warning = warning_of_resumption(experiment)
    assert (warning is not None) is is_warned
    if warning:
        assert "40,000 of 120,000 actor steps" in warning and "50,000 steps" in warning


def test_a_run_that_lost_its_learner_is_warned(tmp_path):
    experiment = make_experiment(CONFIG, workdir=str(tmp_path))
    assert warning_of_resumption(experiment) is None
    write_json(tmp_path / actor_steps_file(0), [4_000, 5_000])
    warning = warning_of_resumption(experiment)
    assert "no checkpoint of a learner step" in warning and "9,000 actor steps" in warning
