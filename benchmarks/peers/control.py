"""Trains an agent of Stable-Baselines3 or sb3-contrib on a task of the control suite.

The hyperparameters are the libraries' defaults, which are those of the papers, with one update per
agent step; SAC, TQC and CrossQ learn their temperature. A run ends at a return or after a time.
Evaluations are greedy episodes; each is printed as a line of JSON.

Example:
  .venv-peers/bin/python benchmarks/peers/control.py sac walker:walk --target 850
"""

import argparse
import math
from typing import Any

import gymnasium
import numpy as np
import shimmy  # noqa: F401 - registers its environments.
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DDPG, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv
from timed_evaluations import TimedEvaluations

WITHOUT_NOISE = {"sac": SAC, "tqc": TQC, "crossq": CrossQ}  # Their policies are stochastic.
WITH_NOISE = {"td3": TD3, "ddpg": DDPG}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("algorithm", choices=(*WITHOUT_NOISE, *WITH_NOISE))
    parser.add_argument("task", help="as walker:walk")
    parser.add_argument("--target", type=float, default=math.inf, help="mean return to reach")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    what = "seconds between evaluations; by default, they are 10,000 environment steps apart"
    parser.add_argument("--period", type=float, default=0.0, help=what)
    parser.add_argument("--episodes", type=int, default=10, help="of an evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--action_repeat", type=int, default=1, help="environment steps of one")
    parser.add_argument("--max_steps", type=int, default=1_000_000, help="of the environment")
    arguments = parser.parse_args()
    model = make_model(arguments.algorithm, make_environment(arguments), arguments.seed)
    evaluations = TimedEvaluations(
        DummyVecEnv([lambda: make_environment(arguments)]),
        arguments.episodes,
        arguments.limit,
        arguments.period,
        period_steps=1 if arguments.period else 10_000 // arguments.action_repeat,
        target=arguments.target,
        is_greedy=True,
    )
    model.learn(arguments.max_steps // arguments.action_repeat, callback=evaluations)


class HeldAction(gymnasium.Wrapper):
    """Holds each action for several steps, whose rewards are added up."""

    def __init__(self, environment: gymnasium.Env, num_repeats: int):
        super().__init__(environment)
        self._num_repeats = num_repeats

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._num_repeats):
            observation, reward, is_terminated, is_truncated, info = self.env.step(action)
            total += float(reward)
            if is_terminated or is_truncated:
                break
        return observation, total, is_terminated, is_truncated, info


def make_environment(arguments: argparse.Namespace) -> gymnasium.Env:
    """Make a task with flat observations, actions in [-1, 1], and each action held."""
    environment = gymnasium.make(f"dm_control/{arguments.task.replace(':', '-')}-v0")
    environment = HeldAction(environment, arguments.action_repeat)
    environment = gymnasium.wrappers.FlattenObservation(environment)
    return gymnasium.wrappers.RescaleAction(environment, np.float32(-1), np.float32(1))


def make_model(algorithm: str, environment: gymnasium.Env, seed: int) -> OffPolicyAlgorithm:
    if algorithm in WITHOUT_NOISE:
        return WITHOUT_NOISE[algorithm]("MlpPolicy", environment, seed=seed, device="cpu")
    size = environment.action_space.shape or ()
    noise = NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    algorithm_class = WITH_NOISE[algorithm]
    return algorithm_class("MlpPolicy", environment, action_noise=noise, seed=seed, device="cpu")


if __name__ == "__main__":
    main()
