"""Human-normalized Atari scores, and the rules under which scores compare with the paper's.

Horgan et al. 2018, table 2; `atari_scores.csv` names the sources of the other scores.
"""

import csv
import dataclasses
import functools
import importlib.resources

from apex_agents.environments import AtariConfig
from apex_agents.environments.atari_config import rom_name

_FILE = "atari_scores.csv"


@dataclasses.dataclass(frozen=True)
class AtariScores:
    """Mean scores in one game.

    Attributes:
      random: score of uniformly random actions from no-op starts.
      human: score of a professional game tester from no-op starts.
      apex_no_op: score of the paper's Ape-X DQN from no-op starts.
      apex_human_starts: score of the paper's Ape-X DQN from states that human players reached.
    """

    random: float
    human: float
    apex_no_op: float
    apex_human_starts: float


@functools.cache
def atari_scores() -> dict[str, AtariScores]:
    """Return the scores of the 57 games, keyed by ROM name ('ms_pacman')."""
    lines = importlib.resources.files(__package__).joinpath(_FILE).read_text().splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {
        row.pop("game"): AtariScores(**{name: float(score) for name, score in row.items()})
        for row in rows
    }


def scored_game(suite: str, task: str) -> str | None:
    """Return the ROM name of a task, or None unless it is one of the 57 games.

    Args:
      suite: `EnvironmentConfig.suite`.
      task: `EnvironmentConfig.task`.
    """
    game = rom_name(task) if suite == "atari" else ""
    return game if game in atari_scores() else None


def human_normalized_score(game: str, score: float) -> float:
    """Normalize a score so that random play is 0 and the human tester is 1.

      (score - random) / (human - random)

    Args:
      game: ROM name of one of the 57 games.
      score: unclipped return of an episode, or a mean of such returns.

    Returns:
      The normalized score, below 0 or above 1 for scores outside of that range.

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
    """List the settings that make scores incomparable with the paper's.

    Args:
      config: preprocessing with which the agent was trained.

    Returns:
      One text per deviating setting; empty if scores compare.
    """
    paper = AtariConfig()
    return [
        f"{name} is {getattr(config, name)}, not {getattr(paper, name)}"
        for name in ("sticky_action_probability", "action_repeat")
        if getattr(config, name) != getattr(paper, name)
    ]
