"""Evaluates saved parameters in many episodes, as in table 2 of Horgan et al. 2018."""

import contextlib
import csv
import io
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from apex_agents.acting.actor import ApexActor
from apex_agents.config import ExperimentConfig
from apex_agents.environments import EnvironmentConfig, Episode, record_spec
from apex_agents.evaluation.atari_scores import (
    atari_scores,
    human_normalized_score,
    protocol_deviations,
    scored_game,
)
from apex_agents.evaluation.episodes import play_episodes, standard_error
from apex_agents.evaluation.videos import FilmedActor, MakeWriter, VideoWriter
from apex_agents.experiment import Experiment
from apex_agents.metrics import columns
from apex_agents.metrics.loggers import mean_metrics
from apex_agents.metrics.run_state import format_return
from apex_agents.runs.config_file import check_same_spec
from apex_agents.runs.parameter_file import SavedParameters, assign

MAX_ENVS = 100  # More at once are not faster.


class Request(NamedTuple):
    """Parameters and episodes of an evaluation."""

    parameters: SavedParameters
    num_episodes: int
    seed: int  # Seed of environments and policy.
    videos: Sequence[pathlib.Path] = ()  # One for each of the first episodes, at most `max_envs`.


class Result(NamedTuple):
    """Episodes and videos of an evaluation."""

    episodes: list[Episode]  # The seed determines their order.
    videos: list[pathlib.Path]  # Complete ones only.
    num_failures: int = 0  # Episodes that the environment broke off, in whose place others count.


def evaluate(
    experiment: Experiment,
    request: Request,
    on_lock_step: Callable[[Sequence[Episode]], None] = lambda episodes: None,
    on_failure: Callable[[Exception], None] = lambda error: None,
    max_envs: int = MAX_ENVS,
    make_writer: MakeWriter = VideoWriter,
) -> Result:
    """Play episodes with saved parameters; equal requests give equal episodes.

    Args:
      experiment: experiment that was trained; with a `workdir` its spec has to be that of the run.
      request: parameters and episodes.
      on_lock_step: called after every lock-step with the episodes that ended in it.
      on_failure: called when the videos cannot be made, see `FilmedActor`.
      max_envs: number of episodes played at once; a different number gives different episodes.
      make_writer: see `FilmedActor`.

    Raises:
      ValueError: the run had an environment with a different spec, or the parameters are not those
        of the experiment's networks.
    """
    episodes: list[Episode] = []
    finished: list[pathlib.Path] = []
    num_failures = 0
    while len(episodes) < request.num_episodes:
        num_envs = min(request.num_episodes - len(episodes), max_envs)
        # Every group of environments has a different seed.
        seed = int(np.random.SeedSequence([request.seed, len(episodes)]).generate_state(1)[0] >> 1)
        videos = request.videos if not episodes else ()
        environment = experiment.make_vector_environment(
            num_envs, seed, evaluation=True, num_rendered=len(videos)
        )
        experiment.builder.check_environment(environment.spec)
        if experiment.workdir:
            check_same_spec(pathlib.Path(experiment.workdir), record_spec(environment.spec))
        policy = experiment.builder.make_evaluation_policy(environment.spec, num_envs, seed)
        assign(policy.variables, request.parameters)
        captions = (experiment.task, f"learner step {request.parameters.learner_steps:,}")
        actor = FilmedActor(
            ApexActor(policy), environment, videos, captions, on_failure, make_writer
        )
        with contextlib.closing(actor):
            played = play_episodes(environment, actor, on_lock_step=on_lock_step)
        assert played is not None  # It is never told to stop.
        episodes += played
        finished += actor.finished
        num_failures += environment.num_failures
        environment.close()
    return Result(episodes, finished, num_failures)


def to_csv(environment: EnvironmentConfig, episodes: Sequence[Episode]) -> str:
    """Return a CSV table with one row per episode, human-normalized if the game has scores."""
    game = scored_game(environment.suite, environment.task)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["episode", "env_index", "episode_return", "clipped_return", "episode_length"]
    metrics = [*_mean_metrics(episodes)]
    writer.writerow([*names, *metrics, *(["human_normalized_score"] if game else [])])
    for index, episode in enumerate(episodes):
        score = [human_normalized_score(game, episode.episode_return)] if game else []
        values = [dict(episode.metrics).get(name, math.nan) for name in metrics]
        writer.writerow([index, *episode[: len(names) - 1], *values, *score])
    return text.getvalue()


def _mean_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the means of the metrics that episodes have."""
    names = {name: None for episode in episodes for name, _ in episode.metrics}
    return mean_metrics([*names], episodes)


def summarise(config: ExperimentConfig, request: Request, result: Result) -> dict[str, Any]:
    """Return parameters, rules and results of an evaluation, as JSON values."""
    returns = np.array([episode.episode_return for episode in result.episodes])
    exploration = getattr(config.agent, "exploration", None)
    summary: dict[str, Any] = {
        "suite": config.environment.suite,
        "task": config.environment.task,
        "checkpoint": request.parameters.path.stem,
        "learner_steps": request.parameters.learner_steps,
        "seed": request.seed,
        "epsilon": getattr(exploration, "evaluation_epsilon", None),  # DPG has none.
        "episodes": len(returns),
        columns.ENVIRONMENT_FAILURES: result.num_failures,
        "mean_return": float(returns.mean()),
        "standard_error": None if math.isnan(error := standard_error(returns)) else error,
        "median_return": float(np.median(returns)),
        "min_return": float(returns.min()),
        "max_return": float(returns.max()),
        "mean_length": float(np.mean([episode.length for episode in result.episodes])),
    }
    if metrics := _mean_metrics(result.episodes):
        summary["metrics"] = metrics
    if config.environment.suite == "atari":
        atari = config.environment.atari
        summary["rules"] = {
            "max_noops": atari.max_noops,
            "max_frames": atari.evaluation_max_frames,
            "action_repeat": atari.action_repeat,
            "sticky_action_probability": atari.sticky_action_probability,
        }
        summary["departures_from_the_paper"] = protocol_deviations(atari)
    game = scored_game(config.environment.suite, config.environment.task)
    if game is not None:
        random, human, paper, _ = atari_scores()[game]
        summary["human_normalized"] = {
            "mean": human_normalized_score(game, summary["mean_return"]),
            "median": human_normalized_score(game, summary["median_return"]),
            "paper": human_normalized_score(game, paper),
        }
        summary["reference_scores"] = {"random": random, "human": human, "paper": paper}
    return summary


def describe(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (label, value) lines for a terminal."""
    yield "task", summary["task"]
    yield "parameters", f"{summary['checkpoint']}, learner step {summary['learner_steps']:,}"
    epsilon = summary["epsilon"]
    exploration = "" if epsilon is None else f", epsilon {epsilon:g}"
    yield "episodes", f"{summary['episodes']:,}, seed {summary['seed']}{exploration}"
    if failures := summary[columns.ENVIRONMENT_FAILURES]:
        yield "failures", f"{failures:,} of the environment, in whose place other episodes count"
    yield "mean return", format_return(summary["mean_return"], summary["standard_error"])
    yield "median", f"{summary['median_return']:,.2f}"
    yield "lowest, highest", f"{summary['min_return']:,.2f}, {summary['max_return']:,.2f}"
    yield "mean length", f"{summary['mean_length']:,.1f} steps"
    for name, mean in summary.get("metrics", {}).items():
        is_rate = name == columns.IS_SUCCESS
        yield "success rate" if is_rate else name, f"{mean:.1%}" if is_rate else f"{mean:,.4g}"
    if "human_normalized" in summary:
        normalized, scores = summary["human_normalized"], summary["reference_scores"]
        percentages = f"mean {normalized['mean']:.1%}, median {normalized['median']:.1%}"
        yield "human-normalized", percentages
        yield "in the paper", f"{scores['paper']:,.1f} ({normalized['paper']:.1%})"
        yield "random, human", f"{scores['random']:,.1f}, {scores['human']:,.1f}"
    elif "rules" in summary:
        yield "human-normalized", "none: there is no human score of this game"
    if "rules" in summary:
        rules = summary["rules"]
        yield (
            "rules",
            f"{rules['max_noops']} no-ops, {rules['max_frames']:,} frames, action repeat "
            f"{rules['action_repeat']}, sticky actions {rules['sticky_action_probability']:g}",
        )
