"""Folders of runs that have just begun: a config, and initial parameters."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from apex_agents.acting.policy import Policy
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment, record_spec
from apex_agents.registry import make_builder
from apex_agents.replay.messages import to_arrays
from apex_agents.runs.opening import close_workdir, open_workdir
from apex_agents.runs.parameter_file import by_variable_name, read_parameters, save_parameters


def make_run(
    folder: pathlib.Path, agent: Any, environment: EnvironmentConfig, *others: str
) -> Policy:
    """Make the folder of a run with `best.npz`, of learner step 1234, and return its policy.

    Args:
      folder: folder to make.
      agent: settings of its agent.
      environment: its environment.
      *others: other files of parameters, of learner step 5678, within `checkpoints`.
    """
    config = ExperimentConfig(agent, environment, RunConfig())
    made = make_vector_environment(environment, 1, 0)
    close_workdir(open_workdir(str(folder), config, spec=record_spec(made.spec)))
    policy = make_builder(agent).make_evaluation_policy(made.spec, 1, seed=3)
    made.close()
    parameters = by_variable_name(policy.variables, to_arrays(policy.variables))
    for name, learner_steps in {"best.npz": 1234, **dict.fromkeys(others, 5678)}.items():
        path = folder / "checkpoints" / name
        path.parent.mkdir(exist_ok=True)
        assert save_parameters(path, parameters, learner_steps)
    return policy


def spoil_for_float16(run: pathlib.Path) -> None:
    """Save parameters whose network, of eight hidden units, gives out 1.2, rounded 2.0."""
    path = run / "checkpoints" / "best.npz"
    arrays = read_parameters(path).arrays
    for name, array in arrays.items():
        array[...] = name in ("torso/linear_1/b", "head/hidden/b")
    # Eight units of 1: their sum, 4 * 0.3, becomes 4 * 0.5 with 1000.5, the nearest float16.
    arrays["head/value/w"][:, 0] = [1000.3, -1000.0] * 4
    assert save_parameters(path, arrays, 1234)


class Mirror(gymnasium.Env):
    """Observes and acts in any spaces; refuses actions that its space does not contain."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert np.asarray(action).dtype == self.action_space.dtype
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, False, {}


@contextlib.contextmanager
def registered_mirror(
    observation_space: gymnasium.Space, action_space: gymnasium.Space
) -> Iterator[str]:
    """Register a `Mirror`, and yield its id."""
    kwargs = {"observation_space": observation_space, "action_space": action_space}
    gymnasium.register("Mirror-v0", entry_point=Mirror, kwargs=kwargs)
    try:
        yield "Mirror-v0"
    finally:
        del gymnasium.registry["Mirror-v0"]
