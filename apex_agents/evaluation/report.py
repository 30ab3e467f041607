"""What a final evaluation says: to programs, to tables, and to the person who asked for it."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from apex_agents.config import ExperimentConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig, Episode
from apex_agents.environments.atari_config import rom_name
from apex_agents.evaluation.atari_scores import (
    atari_scores,
    human_normalized_score,
    protocol_deviations,
)
from apex_agents.evaluation.episodes import standard_error
from apex_agents.evaluation.final_evaluation import Request, Result


def to_csv(environment: EnvironmentConfig, episodes: Sequence[Episode]) -> str:
    """Return a table with a row for each episode, human-normalized where that is possible."""
    game = _scored_game(environment)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["episode", "env_index", "episode_return", "clipped_return", "episode_length"]
    writer.writerow([*names, "human_normalized_score"] if game else names)
    for index, episode in enumerate(episodes):
        row = [
            index,
            episode.env_index,
            episode.episode_return,
            episode.clipped_return,
            episode.length,
        ]
        score = [human_normalized_score(game, episode.episode_return)] if game else []
        writer.writerow(row + score)
    return text.getvalue()


def summarise(config: ExperimentConfig, request: Request, result: Result) -> dict[str, Any]:
    """Return what was evaluated, how, and what came of it, as JSON can hold it."""
    returns = np.array([episode.episode_return for episode in result.episodes])
    exploration = getattr(config.agent, "exploration", None)
    summary: dict[str, Any] = {
        "suite": config.environment.suite,
        "task": config.environment.task,
        "checkpoint": request.path.stem,
        "learner_steps": result.learner_steps,
        "seed": request.seed,
        "epsilon": exploration and exploration.evaluation_epsilon,
        "episodes": len(returns),
        "mean_return": float(returns.mean()),
        "standard_error": standard_error(returns),
        "median_return": float(np.median(returns)),
        "min_return": float(returns.min()),
        "max_return": float(returns.max()),
        "mean_length": float(np.mean([episode.length for episode in result.episodes])),
    }
    if config.environment.suite == "atari":
        summary["rules"] = _rules(config.environment.atari)
        summary["departures_from_the_paper"] = protocol_deviations(config.environment.atari)
    game = _scored_game(config.environment)
    if game is not None:
        reference = atari_scores()[game]
        summary["human_normalized"] = {
            "mean": human_normalized_score(game, summary["mean_return"]),
            "median": human_normalized_score(game, summary["median_return"]),
            "paper": human_normalized_score(game, reference.apex_no_op),
        }
        summary["reference_scores"] = {
            "random": reference.random,
            "human": reference.human,
            "paper": reference.apex_no_op,
        }
    return summary


def describe(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines that a person reads: what is told, and the telling."""
    steps, epsilon = summary["learner_steps"], summary["epsilon"]
    yield "task", summary["task"]
    step = "" if steps is None else f", learner step {steps:,}"
    yield "parameters", f"{summary['checkpoint']}{step}"
    exploration = "" if epsilon is None else f", epsilon {epsilon:g}"
    yield "episodes", f"{summary['episodes']:,}, seed {summary['seed']}{exploration}"
    yield "mean return", f"{summary['mean_return']:,.2f} ± {summary['standard_error']:,.2f}"
    yield "median", f"{summary['median_return']:,.2f}"
    yield "lowest, highest", f"{summary['min_return']:,.2f}, {summary['max_return']:,.2f}"
    yield "mean length", f"{summary['mean_length']:,.1f} steps"
    if "human_normalized" in summary:
        normalized, scores = summary["human_normalized"], summary["reference_scores"]
        yield (
            "human-normalized",
            f"mean {normalized['mean']:.1%}, median {normalized['median']:.1%}",
        )
        yield "in the paper", f"{scores['paper']:,.1f} ({normalized['paper']:.1%})"
        yield "random, human", f"{scores['random']:,.1f}, {scores['human']:,.1f}"
    elif "rules" in summary:
        yield "human-normalized", "none: no human's score is known in this game"
    if "rules" in summary:
        rules = summary["rules"]
        yield (
            "rules",
            f"{rules['max_noops']} no-ops, {rules['max_frames']:,} frames, action repeat "
            f"{rules['action_repeat']}, sticky actions {rules['sticky_action_probability']:g}",
        )


def _scored_game(environment: EnvironmentConfig) -> str | None:
    """Return the ROM if it is one of the 57 games with reference scores."""
    game = rom_name(environment.task) if environment.suite == "atari" else ""
    return game if game in atari_scores() else None


def _rules(atari: AtariConfig) -> dict[str, Any]:
    return {
        "max_noops": atari.max_noops,
        "max_frames": atari.evaluation_max_frames,
        "action_repeat": atari.action_repeat,
        "sticky_action_probability": atari.sticky_action_probability,
    }
