"""Tests of runs that start with the networks and optimizers of another one."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from whole_runs import apex_dqn

from apex_agents.actor_critic.config import A2CConfig
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.experiment import Experiment, Progress, make_experiment
from apex_agents.initial_run import find_initial, start_with
from apex_agents.runs.checkpoints import (
    Checkpoint,
    find_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from apex_agents.runs.opening import close_workdir, open_run
from apex_agents.runs.parameter_file import read_steps
from apex_agents.runs.workdir import CHECKPOINTS

CARTPOLE = EnvironmentConfig("gymnasium", "CartPole-v1")
AGENTS = {
    "dqn": (ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), frame_stack=0), CARTPOLE),
    "dpg": (ApexDPGConfig(), EnvironmentConfig("gymnasium", "Pendulum-v1")),
    "a2c": (A2CConfig(torso="mlp", mlp_hidden_sizes=(8,), frame_stack=0), CARTPOLE),
}


def make(folder: pathlib.Path, name: str, **fields: Any) -> Experiment:
    agent, environment = AGENTS[name]
    agent = type(agent)(**{**vars(agent), **fields})
    experiment = make_experiment(
        ExperimentConfig(agent, environment, RunConfig()), workdir=str(folder)
    )
    return experiment.with_spec(experiment.environment_spec())


def values(state: dict[str, Any], folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Return all that a checkpoint holds of a state, but the number of updates."""
    folder.mkdir()
    assert save_checkpoint(folder, state, {}, Progress(), keep=1)
    reader = tf.train.load_checkpoint(str(find_checkpoint(folder).path / "state"))
    names = [name for name in reader.get_variable_to_shape_map() if "num_updates" not in name]
    return {n: reader.get_tensor(n) for n in names if n != "_CHECKPOINTABLE_OBJECT_GRAPH"}


def make_trained_run(folder: pathlib.Path, name: str) -> dict[str, Any]:
    """Make the folder of a run with a checkpoint after 7 updates, and return the state in it."""
    experiment = make(folder, name)
    close_workdir(open_run(experiment).workdir)
    state = experiment.builder.make_update(experiment.spec, seed=5).state
    state["num_updates"].assign(7)
    for variable in state["optimizer" if "optimizer" in state else "critic_optimizer"].variables:
        variable.assign(tf.ones_like(variable) * 3)
    checkpoints = folder / CHECKPOINTS
    assert save_checkpoint(checkpoints, state, {"w": np.ones(2)}, Progress(7, 50.0), keep=3)
    return state


@pytest.mark.parametrize("name", AGENTS)
def test_a_new_run_starts_with_networks_and_optimizers_at_step_0(name, tmp_path):
    state = make_trained_run(tmp_path / "first", name)
    experiment = make(tmp_path / "second", name)
    initial = find_initial(experiment, tmp_path / "first")
    assert initial == find_checkpoint(tmp_path / "first" / CHECKPOINTS)
    close_workdir(open_run(experiment).workdir)
    folder = tmp_path / "second" / CHECKPOINTS
    start_with(initial, tmp_path / "second")
    checkpoint = find_checkpoint(folder)
    assert checkpoint == Checkpoint(folder / "learner-000000000000", Progress(0, 0.0))
    assert read_steps(checkpoint.path / "parameters.npz") == 0
    restored = experiment.builder.make_update(experiment.spec, seed=6).state
    restore_checkpoint(checkpoint, restored)
    before, after = values(state, tmp_path / "a"), values(restored, tmp_path / "b")
    assert before.keys() == after.keys() and any("optimizer" in name for name in before)
    for variable, value in before.items():
        np.testing.assert_array_equal(after[variable], value, err_msg=variable)
    # The same command resumes the new run, and another one is refused.
    (tmp_path / "link").symlink_to(tmp_path / "first")
    assert find_initial(experiment, tmp_path / "first") is None
    assert find_initial(experiment, tmp_path / "link") is None
    with pytest.raises(ValueError, match=r"has begun with .*first and resumes"):
        find_initial(experiment, tmp_path / "frist")


def test_a_run_that_has_begun_without_another_one_is_not_started_with_it(tmp_path):
    for name in ("first", "second"):
        make_trained_run(tmp_path / name, "dqn")
    experiment = make(tmp_path / "second", "dqn")
    assert find_initial(experiment, tmp_path / "first") is None  # By an earlier version.
    start_with(None, tmp_path / "second")
    assert find_initial(experiment, tmp_path / "first") is None  # It resumes.
    for path in (tmp_path / "second" / CHECKPOINTS).iterdir():
        path.rename(tmp_path / path.name)
    start_with(None, tmp_path / "second")
    (tmp_path / path.name).rename(path)
    with pytest.raises(ValueError, match="has begun with new networks and resumes"):
        find_initial(experiment, tmp_path / "first")


# Settings that differ from those of the other run, and the fields that the refusal names.
DIFFERENCES = (
    ({"mlp_hidden_sizes": (16,)}, "agent.mlp_hidden_sizes"),
    ({"mlp_hidden_sizes": (8, 8)}, "agent.mlp_hidden_sizes"),
    ({"optimizer": "adam", "n_step": 5}, "agent.n_step, agent.optimizer"),
    ({"head": "quantile"}, "agent.head"),
    ({"n_step": 5}, None),
    ({"learning_rate": 1e-6}, None),
    ({"batch_size": 16}, None),
)


def test_settings_may_differ_but_not_networks_and_optimizers(tmp_path):
    make_trained_run(tmp_path / "first", "dqn")
    for fields, named in DIFFERENCES:
        experiment = make(tmp_path / "second", "dqn", **fields)
        if named is None:
            assert find_initial(experiment, tmp_path / "first")
        else:
            with pytest.raises(ValueError, match=f"differ in {named}\\.$"):
                find_initial(experiment, tmp_path / "first")
    assert not (tmp_path / "second").exists()


def test_what_is_no_such_run_is_refused(tmp_path):
    experiment = make(tmp_path / "second", "dqn")
    with pytest.raises(ValueError, match="no folder"):
        find_initial(experiment, tmp_path / "first")
    close_workdir(open_run(make(tmp_path / "first", "dqn")).workdir)
    with pytest.raises(ValueError, match="no checkpoint"):
        find_initial(experiment, tmp_path / "first")
    make_trained_run(tmp_path / "third", "a2c")
    with pytest.raises(ValueError, match="agent_type"):
        find_initial(experiment, tmp_path / "third")
    make_trained_run(tmp_path / "fourth", "dpg")
    with pytest.raises(ValueError, match=r"float32 \[3\]; .* float32 \[4\]"):
        find_initial(experiment, tmp_path / "fourth")


def test_a_command_starts_from_a_run(start):
    first = start(*apex_dqn("local_mp", "--config.run.max_learner_steps=80")).finish()
    assert first.exit_code == 0, first.output()
    flags = (f"--initial_run={first.workdir}", "--config.run.max_learner_steps=16")
    second = start(*apex_dqn("local_mp", *flags, "--config.agent.learning_rate=1e-6")).finish()
    assert second.exit_code == 0, second.output()
    assert second.checkpoints() == [f"learner-{steps:012d}" for steps in (0, 16)]
    before, after = (np.load(run.workdir / "checkpoints" / "last.npz") for run in (first, second))
    for name in set(before) - {"learner_steps"}:
        np.testing.assert_allclose(after[name], before[name], atol=1e-3)
