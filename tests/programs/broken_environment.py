"""Trains in an environment whose steps fail; arguments: launch type, broken node, work directory.

The broken node is 'evaluator', or any other name for the actors.
"""

import sys
from typing import Any

import dm_env

from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.ending import RunFailure
from apex_agents.environments import Catch, VectorEnvironment
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.experiment import Experiment
from apex_agents.launcher import launch_program, make_backend
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.runs.opening import open_workdir


class Broken(Catch):
    """Catch until the first step."""

    def step(self, action: Any) -> dm_env.TimeStep:
        raise OSError("the emulator has gone")


def main(launch_type: str, broken_node: str, workdir: str) -> int:
    def make_vector_environment(
        num_envs: int, seed: int, evaluation: bool = False, **_: Any
    ) -> VectorEnvironment:
        is_broken = evaluation == (broken_node == "evaluator")
        make = Broken if is_broken else Catch
        return SyncVectorEnvironment([make(seed=seed) for _ in range(num_envs)])

    replay = ReplayConfig(max_size=1000, min_size=10)
    agent = ApexDQNConfig(torso="mlp", frame_stack=0, batch_size=8, replay=replay)
    run = RunConfig()
    folder = open_workdir(workdir, run)
    experiment = Experiment(ApexDQNBuilder(agent), make_vector_environment, run, folder)
    backend = make_backend(launch_type)
    backend.prepare(experiment)
    try:
        return launch_program(make_program(experiment), experiment, backend).exit_code
    except RunFailure as failure:
        print(failure)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
