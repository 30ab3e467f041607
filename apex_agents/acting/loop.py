"""Drives the lanes of one actor."""

from collections.abc import Callable, Iterator

from acme import core

from apex_agents.environments import Episode, Lanes


def run_lanes(
    lanes: Lanes, actor: core.Actor, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[list[Episode]]:
    """Let `actor` act in `lanes`, one lock-step at a time, until told to stop.

    Args:
      lanes: environments in lock-step.
      actor: handles batched time steps, as `ApexActor` does.
      should_stop: asked before every step.

    Yields:
      After every lock-step (one agent step in each lane), the episodes that it finished.
    """
    timestep = lanes.reset()
    actor.observe_first(timestep)
    while not should_stop():
        action = actor.select_action(timestep.observation)
        timestep = lanes.step(action)
        actor.observe(action, timestep)
        actor.update()
        yield lanes.finished_episodes()
