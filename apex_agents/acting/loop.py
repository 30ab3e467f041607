"""Drives the environments of one actor."""

from collections.abc import Callable, Iterator

from acme import core

from apex_agents.environments import Episode, VectorEnvironment


def run_in_lock_step(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[Episode]]:
    """Let `actor` act in `environment`, one lock-step at a time, until told to stop.

    Args:
      environment: environments in lock-step.
      actor: handles batched time steps, as `ApexActor` does.
      should_stop: asked before every step.

    Yields:
      After every lock-step (one agent step in each environment), the episodes that it finished.
    """
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not should_stop():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
        actor.update()
        yield environment.finished_episodes()
