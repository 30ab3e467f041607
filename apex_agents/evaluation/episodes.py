"""Plays one episode in every lane: what evaluates during a run, and after it."""

from collections.abc import Callable, Sequence

import numpy as np
from acme import core

from apex_agents.acting.loop import run_lanes
from apex_agents.environments import Episode, Lanes


def play_episodes(
    lanes: Lanes,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
    on_lock_step: Callable[[Sequence[Episode]], None] = lambda episodes: None,
) -> list[Episode] | None:
    """Play one episode in every lane.

    Counting the first episode of each lane, whenever it ends, does not favour short ones.

    Args:
      lanes: environments in lock-step.
      actor: whose policy is evaluated.
      should_stop: asked at every step.
      on_lock_step: called after every lock-step with the episodes that count and ended in it.

    Returns:
      L episodes, in the order of their lanes; None if told to stop before the last one ended.
    """
    episodes: dict[int, Episode] = {}
    for finished in run_lanes(lanes, actor, should_stop):
        new = []
        for episode in finished:
            if episode.lane not in episodes:
                episodes[episode.lane] = episode
                new.append(episode)
        on_lock_step(new)
        if len(episodes) == lanes.num_lanes:
            return [episodes[lane] for lane in range(lanes.num_lanes)]
    return None


def standard_error(returns: np.ndarray) -> float:
    """Return the standard error of the mean of `[N]` returns, 0 for a single one."""
    return float(returns.std(ddof=1) / len(returns) ** 0.5) if len(returns) > 1 else 0.0
