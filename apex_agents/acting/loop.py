"""The loop in which one actor acts in its environments."""

from collections.abc import Callable, Iterator

from acme import core

from apex_agents.environments import Episode, VectorEnvironment


def run_in_lock_step(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[Episode]]:
    """Let `actor` act in all environments at once, one lock-step after the other.

    Args:
      environment: E environments in lock-step.
      actor: handles batched time steps, as `ApexActor` does.
      should_stop: asked before every step.

    Yields:
      The episodes that finished in each lock-step (one agent step in each environment).
    """
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not should_stop():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
        actor.update()
        yield environment.finished_episodes()
