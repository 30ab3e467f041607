"""Folders of runs that have just begun: a config, and initial parameters."""

import pathlib
from typing import Any

from apex_agents.acting.policy import Policy
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.registry import make_builder
from apex_agents.replay.parameters import to_arrays
from apex_agents.runs.parameter_file import by_variable_name, save_parameters
from apex_agents.runs.workdir import close_workdir, open_workdir


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
    close_workdir(open_workdir(str(folder), config))
    made = make_vector_environment(environment, 1, 0)
    policy = make_builder(agent).make_evaluation_policy(made.spec, 1, seed=3)
    made.close()
    parameters = by_variable_name(policy.variables, to_arrays(policy.variables))
    for name, learner_steps in {"best.npz": 1234, **dict.fromkeys(others, 5678)}.items():
        path = folder / "checkpoints" / name
        path.parent.mkdir(exist_ok=True)
        assert save_parameters(path, parameters, learner_steps)
    return policy
