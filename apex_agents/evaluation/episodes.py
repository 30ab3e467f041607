"""Plays one episode in every environment, for evaluations during a run and after it."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from acme import core

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.environments import Episode, VectorEnvironment

_MIN_EPISODES_OF_ERROR = 3


def play_episodes(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
    on_lock_step: Callable[[Sequence[Episode]], None] = lambda episodes: None,
) -> list[Episode] | None:
    """Play one episode in every environment.

    The first episode of each environment counts, whenever it ends. Counting the first E episodes to
    end would favour short ones.

    Args:
      environment: E environments.
      actor: actor whose policy is evaluated.
      should_stop: called before every lock-step; True ends the evaluation.
      on_lock_step: called after every lock-step with the counted episodes that ended in it.

    Returns:
      E episodes in the order of their environments; None if stopped before all of them ended.
    """
    first: dict[int, Episode] = {}
    for finished in run_in_lock_step(environment, actor, should_stop):
        counted = [e for e in finished if first.setdefault(e.env_index, e) is e]
        for episode in counted:  # Its later steps do not count, and a reset may take long.
            environment.pause(episode.env_index)
        on_lock_step(counted)
        if len(first) == environment.num_envs:
            return [first[i] for i in range(environment.num_envs)]
    return None


def standard_error(returns: np.ndarray) -> float:
    """Return the standard error of the mean of `[N]` returns; NaN for one or two, which have none.

    Equal returns of two episodes would look like a mean without an error.
    """
    is_known = len(returns) >= _MIN_EPISODES_OF_ERROR
    return float(returns.std(ddof=1) / len(returns) ** 0.5) if is_known else math.nan
