"""Human-normalized Atari scores, and the rules under which scores compare with the paper's.

Horgan et al. 2018, table 2; `atari_scores.csv` names the sources of the other scores.
"""

import csv
import dataclasses
import functools
import importlib.resources
from typing import NamedTuple

from apex_agents.environments import AtariConfig
from apex_agents.environments.atari import rom_name


class AtariScores(NamedTuple):
    """Mean scores in one game, from no-op starts unless the name says otherwise."""

    random: float  # Uniformly random actions.
    human: float  # A professional game tester.
    apex_no_op: float  # The paper's Ape-X DQN.
    apex_human_starts: float  # The same from states that human players reached.


@functools.cache
def atari_scores() -> dict[str, AtariScores]:
    """Return the scores of the 57 games, keyed by ROM name ('ms_pacman')."""
    text = importlib.resources.files(__package__).joinpath("atari_scores.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        row.pop("game"): AtariScores(**{name: float(score) for name, score in row.items()})
        for row in rows
    }


def scored_game(suite: str, task: str) -> str | None:
    """Return the ROM name of a task of `EnvironmentConfig`, or None if it has no scores."""
    game = rom_name(task) if suite == "atari" else ""
    return game if game in atari_scores() else None


def human_normalized_score(game: str, score: float) -> float:
    """Normalize a score so that random play is 0 and the human tester is 1.

      (score - random) / (human - random)

    Args:
      game: ROM name of one of the 57 games.
      score: unclipped return of an episode, or a mean of such returns.

    Raises:
      ValueError: the game is not one of the 57.
    """
    if game not in atari_scores():
        raise ValueError(f"game is {game!r}; it has to be one of {', '.join(atari_scores())}.")
    reference = atari_scores()[game]
    return (score - reference.random) / (reference.human - reference.random)


def no_op_rules(config: AtariConfig) -> AtariConfig:
    """Replace the settings of evaluation by the paper's, and keep those that affect learning.

    The paper evaluates with up to 30 no-op frames at the start and at most 108,000 frames.
    """
    paper = AtariConfig()
    return dataclasses.replace(
        config, max_noops=paper.max_noops, evaluation_max_frames=paper.evaluation_max_frames
    )


def protocol_deviations(config: AtariConfig) -> list[str]:
    """List the settings of training that make scores incomparable with the paper's, as texts."""
    paper = AtariConfig()
    deviations = [
        f"{name} is {getattr(config, name)}, not {getattr(paper, name)}"
        for name in ("sticky_action_probability", "action_repeat")
        if getattr(config, name) != getattr(paper, name)
    ]
    if config.life_loss_ends_episode:
        deviations.append("after the loss of a life action 0 is played and older frames are black")
    return deviations
