"""Trains DQN or A2C of Stable-Baselines3 on a game of MinAtar for a stated time.

The network is like that of our settings: 16 convolutions of 3 x 3, a hidden layer of 128 units; its
DQN is not dueling. Hyperparameters are those of RL Baselines3 Zoo for Atari. The Zoo's schedules of
DQN are made for 10 million agent steps; here it learns after 2,000 and anneals epsilon over 25,000.
'a2c_32' is A2C with the 32 environments of our `a2c_minatar`, and its learning rate.
Evaluations are whole games, in which A2C samples its actions and DQN takes a random one with
probability 0.01; each is printed as a line of JSON.

Example:
  .venv-peers/bin/python benchmarks/peers/minatar_games.py dqn MinAtar/Breakout-v1 --limit 180
"""

import argparse
from typing import Any

import gymnasium
import minatar.gym
import numpy as np
import torch
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from timed_evaluations import TimedEvaluations
from zoo import A2C_POLICY, A2C_SETTINGS, AGENT_STEPS, NUM_A2C_ENVIRONMENTS, dqn_settings

MAX_EPISODE_STEPS = 5_000
LEARNING_STARTS = 2_000
EXPLORATION_STEPS = 25_000
EVALUATION_EPSILON = 0.01
# Of `configs/a2c_minatar.py`, whose learning rate falls to a tenth in so many agent steps.
OUR_ENVIRONMENTS, OUR_LEARNING_RATE, OUR_ANNEALING_STEPS = 32, 0.01, 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("algorithm", choices=("dqn", "a2c", "a2c_32"))
    parser.add_argument("task", help="as MinAtar/Breakout-v1")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds")
    parser.add_argument("--period", type=float, default=20.0, help="seconds between evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="games per evaluation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    minatar.gym.register_envs()
    environments = make_environments(arguments.task, arguments.episodes, arguments.seed + 1_000)
    evaluations = TimedEvaluations(
        environments,
        arguments.episodes,
        arguments.limit,
        arguments.period,
        epsilon=EVALUATION_EPSILON,
    )
    make_model = {"dqn": make_dqn, "a2c": make_a2c, "a2c_32": make_a2c_32}[arguments.algorithm]
    make_model(arguments).learn(AGENT_STEPS, callback=evaluations)


class Convolution(BaseFeaturesExtractor):
    """The layers below the values, or below policy and value."""

    def __init__(self, space: gymnasium.Space):
        height, width, channels = space.shape or ()
        super().__init__(space, features_dim=128)
        self._layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, 16, kernel_size=3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * (height - 2) * (width - 2), 128),
            torch.nn.ReLU(),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self._layers(observations.permute(0, 3, 1, 2))


POLICY = {"features_extractor_class": Convolution, "net_arch": []}


def make_environments(task: str, count: int, seed: int) -> VecEnv:
    return make_vec_env(
        task,
        count,
        seed,
        env_kwargs={"max_episode_steps": MAX_EPISODE_STEPS},
        wrapper_class=as_float,
    )


def as_float(environment: gymnasium.Env) -> gymnasium.Env:
    """Return an environment whose observations are numbers; they are truth values without it."""
    return gymnasium.wrappers.DtypeObservation(environment, np.float32)


def make_dqn(arguments: argparse.Namespace) -> DQN:
    return DQN(
        "MlpPolicy",
        make_environments(arguments.task, 1, arguments.seed),
        **dqn_settings(LEARNING_STARTS, EXPLORATION_STEPS),
        policy_kwargs=POLICY,
        seed=arguments.seed,
        device="cpu",
    )


def make_a2c_32(arguments: argparse.Namespace) -> A2C:
    def learning_rate(remaining: float) -> float:
        fraction = min((1 - remaining) * AGENT_STEPS / OUR_ANNEALING_STEPS, 1)
        return OUR_LEARNING_RATE * (1 - 0.9 * fraction)

    return make_a2c(arguments, OUR_ENVIRONMENTS, learning_rate=learning_rate)


def make_a2c(
    arguments: argparse.Namespace, num_environments: int = NUM_A2C_ENVIRONMENTS, **changes: Any
) -> A2C:
    return A2C(
        "MlpPolicy",
        make_environments(arguments.task, num_environments, arguments.seed),
        **A2C_SETTINGS | changes,
        policy_kwargs=POLICY | A2C_POLICY,
        seed=arguments.seed,
        device="cpu",
    )


if __name__ == "__main__":
    main()
