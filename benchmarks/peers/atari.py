"""Trains DQN, A2C or PPO of Stable-Baselines3 on a game with the settings of RL Baselines3 Zoo.

There are no sticky actions, as with ours. As in the Zoo, a life is an episode and begins with a
shot, where the game has lives and shots; returns are those of whole games with their real score. In
evaluations DQN acts greedily, A2C and PPO sample; `training_return` is the mean of the last 100
games. Every evaluation is a row of a CSV file; its time is part of the time of the run, which
starts with the process.

The Zoo's schedules are made for 10 million agent steps, of which an hour on a small machine sees
few. PPO's, which end at 0, end with this run instead. DQN learns nothing for 100,000 steps, and
explores less and less for a million: two options give it schedules that fit the time.

Examples:
  .venv-peers/bin/python benchmarks/peers/atari.py pong --out runs/bench/pong_dqn.csv
  .venv-peers/bin/python benchmarks/peers/atari.py breakout --algorithm ppo --minutes 30 \
      --out runs/bench/breakout_ppo.csv
  .venv-peers/bin/python benchmarks/peers/atari.py pong --out runs/bench/pong_dqn_short.csv \
      --learning_starts 10000 --exploration_steps 100000
"""

import argparse
import csv
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import ale_py
import gymnasium
import numpy as np
import psutil
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecFrameStack
from zoo import A2C_POLICY, A2C_SETTINGS, AGENT_STEPS, NUM_A2C_ENVIRONMENTS, dqn_settings

COLUMNS = ("wall_time_seconds", "actor_steps", "learner_steps", "mean_return", "training_return")
NUM_EPISODES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("game", help="name of gymnasium's, without version, in either form")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="CSV file to write")
    parser.add_argument("--algorithm", choices=("dqn", "a2c", "ppo"), default="dqn")
    parser.add_argument("--minutes", type=float, default=60.0, help="of the whole run")
    parser.add_argument("--evaluation_minutes", type=float, default=5.0, help="between evaluations")
    parser.add_argument("--learning_starts", type=int, default=100_000, help="agent steps")
    parser.add_argument("--exploration_steps", type=int, default=1_000_000, help="agent steps")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    gymnasium.register_envs(ale_py)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="", buffering=1) as file:
        write_row = csv.writer(file, lineterminator="\n").writerow
        write_row(COLUMNS)
        evaluations = Evaluations(arguments, write_row)
        make_model = {"dqn": make_dqn, "a2c": make_a2c, "ppo": make_ppo}[arguments.algorithm]
        make_model(arguments).learn(AGENT_STEPS, callback=evaluations)


def make_a2c(arguments: argparse.Namespace) -> A2C:
    return A2C(
        "CnnPolicy",
        make_environments(arguments.game, NUM_A2C_ENVIRONMENTS, arguments.seed),
        **A2C_SETTINGS,
        policy_kwargs=A2C_POLICY,
        seed=arguments.seed,
        device="cpu",
    )


def make_ppo(arguments: argparse.Namespace) -> PPO:
    started_at, seconds = psutil.Process().create_time(), 60 * arguments.minutes

    def remaining(_: float) -> float:
        return max(0.0, 1 - (time.time() - started_at) / seconds)

    return PPO(
        "CnnPolicy",
        make_environments(arguments.game, 8, arguments.seed),
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda progress: 2.5e-4 * remaining(progress),
        clip_range=lambda progress: 0.1 * remaining(progress),
        vf_coef=0.5,
        ent_coef=0.01,
        seed=arguments.seed,
        device="cpu",
    )


def make_dqn(arguments: argparse.Namespace) -> DQN:
    return DQN(
        "CnnPolicy",
        make_environments(arguments.game, 1, arguments.seed),
        **dqn_settings(arguments.learning_starts, arguments.exploration_steps),
        seed=arguments.seed,
        device="cpu",
    )


def make_environments(game: str, count: int, seed: int, **options: bool) -> VecFrameStack:
    """Make environments that repeat actions and preprocess frames as DQN's do.

    Args:
      game: name of the game, such as 'space_invaders' or 'SpaceInvaders'.
      count: number of environments.
      seed: seed of the first one.
      **options: options of the preprocessing.
    """
    environments = make_atari_env(
        f"ALE/{''.join(word[0].upper() + word[1:] for word in game.split('_'))}-v5",
        count,
        seed,
        wrapper_kwargs=options,
        env_kwargs={"frameskip": 1, "repeat_action_probability": 0.0},  # The wrapper skips frames.
    )
    return VecFrameStack(environments, 4)


class Evaluations(BaseCallback):
    """Evaluates periodically, and ends the run after the last evaluation."""

    def __init__(self, arguments: argparse.Namespace, write_row: Callable[[Iterable[Any]], object]):
        """Make the environments, which are not those of training."""
        super().__init__()
        self._environments = make_environments(
            arguments.game, NUM_EPISODES, arguments.seed + 1_000, clip_reward=False
        )
        self._write_row = write_row
        self._started_at = psutil.Process().create_time()
        self._period = 60 * arguments.evaluation_minutes
        self._end = 60 * arguments.minutes
        self._due = min(self._period, self._end)

    def _on_step(self) -> bool:
        if self._elapsed() < self._due:
            return True
        is_greedy = isinstance(self.model, DQN)
        mean_return, _ = evaluate_policy(
            self.model, self._environments, NUM_EPISODES, deterministic=is_greedy
        )
        steps = (self.model.num_timesteps, self.model._n_updates)
        training = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        training_return = round(float(np.mean(training)), 3) if training else ""
        self._write_row([round(self._elapsed(), 1), *steps, mean_return, training_return])
        is_last = self._due >= self._end
        self._due = min(self._due + self._period, self._end)
        return not is_last

    def _elapsed(self) -> float:
        return time.time() - self._started_at


if __name__ == "__main__":
    main()
