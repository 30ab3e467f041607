"""What a score in an Atari game is worth, and the rules under which such scores are compared.

Horgan et al. 2018, table 2; the sources of the other scores are in `atari_scores.csv`.
"""

import csv
import dataclasses
import functools
import importlib.resources

from apex_agents.environments import AtariConfig

_FILE = "atari_scores.csv"


@dataclasses.dataclass(frozen=True)
class AtariScores:
    """Mean scores in one game.

    Attributes:
      random: of a player that acts at random, from no-op starts.
      human: of a professional tester, from no-op starts.
      apex_no_op: of the paper's Ape-X DQN, from no-op starts.
      apex_human_starts: of the paper's Ape-X DQN, from positions that a human player has reached.
    """

    random: float
    human: float
    apex_no_op: float
    apex_human_starts: float


@functools.cache
def atari_scores() -> dict[str, AtariScores]:
    """Return the scores of the 57 games by the names of their ROMs ('ms_pacman')."""
    lines = importlib.resources.files(__package__).joinpath(_FILE).read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {
        row.pop("game"): AtariScores(**{name: float(score) for name, score in row.items()})
        for row in rows
    }


def human_normalized_score(game: str, score: float) -> float:
    """Return a score as a share of the way from a random player to a human one.

      (score - random) / (human - random)

    Args:
      game: name of the ROM, one of the 57.
      score: an unclipped return, or a mean of such.

    Returns:
      0 for the random player's score, 1 for the human's.

    Raises:
      ValueError: there are no such scores of the game.
    """
    if game not in atari_scores():
        raise ValueError(f"game is {game!r}; it has to be one of {', '.join(atari_scores())}.")
    reference = atari_scores()[game]
    return (score - reference.random) / (reference.human - reference.random)


def no_op_rules(config: AtariConfig) -> AtariConfig:
    """Return the settings with the paper's rules of evaluation for what has no part in learning.

    Up to 30 no-op frames at the start, and episodes of up to 108,000 frames.
    """
    paper = AtariConfig()
    return dataclasses.replace(
        config, max_noops=paper.max_noops, evaluation_max_frames=paper.evaluation_max_frames
    )


def protocol_deviations(config: AtariConfig) -> list[str]:
    """Say which settings make another game of it than the paper's, so that scores do not compare.

    Args:
      config: the preprocessing with which an agent has learned.

    Returns:
      One text for each, none if the scores can be compared.
    """
    paper = AtariConfig()
    return [
        f"{name} is {getattr(config, name)}, not {getattr(paper, name)}"
        for name in ("sticky_action_probability", "action_repeat")
        if getattr(config, name) != getattr(paper, name)
    ]
