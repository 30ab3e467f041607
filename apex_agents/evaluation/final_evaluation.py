"""Evaluates trained parameters: many episodes, one row for each, and what they come to.

Horgan et al. 2018, table 2.
"""

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from apex_agents.acting.actor import ApexActor
from apex_agents.environments import Episode
from apex_agents.evaluation.episodes import play_episodes
from apex_agents.evaluation.filming import FilmedActor
from apex_agents.evaluation.parameters import load_into
from apex_agents.experiment import Experiment

# More at once would be no faster.
MAX_ENVS = 100


class Request(NamedTuple):
    """What to evaluate.

    Attributes:
      path: of the parameters, as `trained.find_parameters` returns it.
      num_episodes: at most `MAX_ENVS` of them are played at once.
      seed: of environments and policy.
      videos: files for the films of the first episodes, at most `MAX_ENVS`.
    """

    path: pathlib.Path
    num_episodes: int
    seed: int
    videos: Sequence[pathlib.Path] = ()


class Result(NamedTuple):
    """What came of it.

    Attributes:
      episodes: all of them, in an order that the seed decides.
      learner_steps: that led to the parameters, if known.
      videos: files that are complete.
    """

    episodes: list[Episode]
    learner_steps: int | None
    videos: list[pathlib.Path]


def evaluate(
    experiment: Experiment,
    request: Request,
    on_lock_step: Callable[[Sequence[Episode]], None] = lambda episodes: None,
    on_trouble: Callable[[Exception], None] = lambda error: None,
) -> Result:
    """Play episodes with trained parameters; equal requests give equal episodes.

    Args:
      experiment: of the run that has trained them.
      request: which parameters, and how many episodes.
      on_lock_step: called after every lock-step with the episodes that ended in it.
      on_trouble: called when there will be no videos; see `FilmedActor`.

    Raises:
      ValueError: the parameters cannot be read or are not those of the experiment.
    """
    episodes: list[Episode] = []
    finished: list[pathlib.Path] = []
    learner_steps = None
    while len(episodes) < request.num_episodes:
        num_envs = min(request.num_episodes - len(episodes), MAX_ENVS)
        # A group of environments has a seed of its own; where it begins tells it from the others.
        seed = int(np.random.SeedSequence([request.seed, len(episodes)]).generate_state(1)[0] >> 1)
        videos = request.videos if not episodes else ()
        environment = experiment.make_vector_environment(
            num_envs, seed, evaluation=True, num_rendered=len(videos)
        )
        experiment.builder.check_environment(environment.spec)
        policy = experiment.builder.make_evaluation_policy(environment.spec, num_envs, seed)
        learner_steps = load_into(policy, request.path)
        is_known = learner_steps is not None
        step = f"learner step {learner_steps:,}" if is_known else request.path.stem
        captions = (experiment.task, step)
        with contextlib.closing(
            FilmedActor(ApexActor(policy), environment, videos, captions, on_trouble)
        ) as actor:
            played = play_episodes(environment, actor, on_lock_step=on_lock_step)
        assert played is not None  # Nobody stops it.
        episodes += played
        finished += actor.finished
        environment.close()
    return Result(episodes, learner_steps, finished)
