"""Runs a program in which the environments of one node fail at their first step.

Usage: broken_node.py LAUNCH_TYPE NODE WORKDIR, where NODE is actor_0 or evaluator.
"""

import sys

from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import Catch
from apex_agents.environments.vector_environment import LockStepEnvironment
from apex_agents.experiment import Experiment
from apex_agents.launcher import launch_program
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.runs.workdir import open_workdir


class Broken(Catch):
    def step(self, action):
        raise OSError("the emulator has gone")


def main(launch_type: str, broken_node: str, workdir: str) -> int:
    def make_vector_environment(num_envs: int, seed: int, evaluation: bool) -> LockStepEnvironment:
        is_broken = evaluation == (broken_node == "evaluator")
        make = Broken if is_broken else Catch
        return LockStepEnvironment([make(seed=seed) for _ in range(num_envs)])

    replay = ReplayConfig(max_size=1000, min_size=10)
    agent = ApexDQNConfig(network="mlp", frame_stack=0, batch_size=8, replay=replay)
    run = RunConfig(num_actors=1)
    workdir = open_workdir(workdir, "broken", run)
    experiment = Experiment(ApexDQNBuilder(agent), make_vector_environment, run, workdir)
    return launch_program(make_program(experiment), experiment, launch_type)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
