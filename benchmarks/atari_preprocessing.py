"""Compares our Atari observations with gymnasium's AtariPreprocessing, frame by frame.

Both play the same game without random starts, with the same actions. gymnasium's wrapper needs
OpenCV: `pip install opencv-python-headless`.

  python benchmarks/atari_preprocessing.py --games=Pong,Breakout --steps=2000
"""

import argparse

import gymnasium
import numpy as np

from apex_agents.environments import AtariConfig, EnvironmentConfig, make_vector_environment
from apex_agents.environments.gymnasium_tasks import find_task

_FIRST, _LAST = 0, 2


def compare(game: str, num_steps: int) -> dict[str, int]:
    """Return the differences over a number of steps, resets included.

    Args:
      game: name of the game, as gymnasium writes it ('Pong').
      num_steps: number of steps.
    """
    config = EnvironmentConfig(task=game, atari=AtariConfig(max_noops=0, clip_rewards=False))
    ours = make_vector_environment(config, num_envs=1, seed=0)
    spec = find_task(f"ALE/{game}-v5", "--games")
    theirs = gymnasium.make(spec, frameskip=1, repeat_action_probability=0.0)
    theirs = gymnasium.wrappers.AtariPreprocessing(theirs, noop_max=0)
    theirs = gymnasium.wrappers.FrameStackObservation(theirs, 4, padding_type="zero")
    counts = dict.fromkeys(
        (
            "frames",
            "other frames",
            "greatest difference",
            "other rewards",
            "other ends",
            "episodes",
        ),
        0,
    )

    step = ours.reset()
    observation, _ = theirs.reset(seed=0)
    actions = np.random.default_rng(0).integers(ours.spec.actions.num_values, size=num_steps)
    for action in actions:
        difference = np.abs(step.observation[0].astype(int) - observation)
        counts["frames"] += 1
        counts["other frames"] += int(difference[-1].any())
        counts["greatest difference"] = max(counts["greatest difference"], int(difference.max()))
        if step.step_type[0] == _LAST:  # The next step of ours resets.
            observation, _ = theirs.reset()
            step = ours.step(np.array([action]))
            counts["episodes"] += 1
            continue
        step = ours.step(np.array([action]))
        observation, reward, terminated, truncated, _ = theirs.step(action)
        counts["other rewards"] += int(step.reward[0] != reward)
        counts["other ends"] += int((step.step_type[0] == _LAST) != (terminated or truncated))
    return counts


def main() -> None:
    """Print a row for each game."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", default="Pong,Breakout,Seaquest,MsPacman")
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    for game in arguments.games.split(","):
        counts = compare(game, arguments.steps)
        print(f"{game:>12}: {', '.join(f'{value} {name}' for name, value in counts.items())}")


if __name__ == "__main__":
    main()
