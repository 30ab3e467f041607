"""Trains DQN, QR-DQN, A2C or PPO of Stable-Baselines3 on a game of Atari for a stated time.

Hyperparameters are those of RL Baselines3 Zoo. Its schedules are made for 10 million agent steps,
of which an hour on a small machine sees few: PPO's, which end at 0, end with this run instead; DQN
learns after 10,000 steps and anneals epsilon over 100,000, in place of 100,000 and a million.
QR-DQN, of the package sb3-contrib, anneals over as many in place of 250,000; its replay is as large
as DQN's, a tenth of its own.

There are no sticky actions, as with ours. As in the Zoo, a life is an episode and begins with a
shot, where the game has lives and shots. Evaluations are whole games with their real score, in
which A2C and PPO sample their actions and the DQNs take a random one with probability 0.001; each
is printed as a line of JSON.

Example:
  .venv-peers/bin/python benchmarks/peers/atari.py ppo breakout --limit 1800
"""

import argparse

import ale_py
import gymnasium
from process_clock import seconds_of_process
from sb3_contrib import QRDQN
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack
from timed_evaluations import TimedEvaluations
from zoo import A2C_POLICY, A2C_SETTINGS, AGENT_STEPS, NUM_A2C_ENVIRONMENTS, dqn_settings

LEARNING_STARTS = 10_000
EXPLORATION_STEPS = 100_000
EVALUATION_EPSILON = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("algorithm", choices=tuple(MAKERS))
    parser.add_argument("game", help="name of gymnasium's, without version, in either form")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    parser.add_argument("--period", type=float, default=300.0, help="seconds between evaluations")
    parser.add_argument("--episodes", type=int, default=8, help="games per evaluation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    gymnasium.register_envs(ale_py)
    environments = make_environments(
        arguments.game, arguments.episodes, arguments.seed + 1_000, clip_reward=False
    )
    evaluations = TimedEvaluations(
        environments,
        arguments.episodes,
        arguments.limit,
        arguments.period,
        epsilon=EVALUATION_EPSILON,
    )
    MAKERS[arguments.algorithm](arguments).learn(AGENT_STEPS, callback=evaluations)


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
    def remaining() -> float:
        return max(0.0, 1 - seconds_of_process() / arguments.limit)

    return PPO(
        "CnnPolicy",
        make_environments(arguments.game, 8, arguments.seed),
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda _: 2.5e-4 * remaining(),
        clip_range=lambda _: 0.1 * remaining(),
        vf_coef=0.5,
        ent_coef=0.01,
        seed=arguments.seed,
        device="cpu",
    )


def make_dqn(arguments: argparse.Namespace) -> DQN:
    return DQN(
        "CnnPolicy",
        make_environments(arguments.game, 1, arguments.seed),
        **dqn_settings(LEARNING_STARTS, EXPLORATION_STEPS),
        seed=arguments.seed,
        device="cpu",
    )


def make_qr_dqn(arguments: argparse.Namespace) -> QRDQN:
    return QRDQN(
        "CnnPolicy",
        make_environments(arguments.game, 1, arguments.seed),
        buffer_size=100_000,
        exploration_fraction=EXPLORATION_STEPS / AGENT_STEPS,
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


MAKERS = {"dqn": make_dqn, "qr_dqn": make_qr_dqn, "a2c": make_a2c, "ppo": make_ppo}

if __name__ == "__main__":
    main()
