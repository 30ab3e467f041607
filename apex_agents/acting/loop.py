"""The loop in which one actor acts in its environments."""

from collections.abc import Callable, Iterator

from acme import core

from apex_agents.environments import Episode, VectorEnvironment


def run_in_lock_step(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
    wait: bool = False,
) -> Iterator[list[Episode]]:
    """Let a batched actor act until `should_stop`; with `wait` it waits for parameters when due.

    Yields:
      The episodes that finished in each lock-step (one agent step in each environment).
    """
    timestep = environment.reset()
    actor.observe_first(timestep)
    while not should_stop():
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        actor.observe(action, timestep)
        actor.update(wait)
        yield environment.finished_episodes()
