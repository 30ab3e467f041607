"""The loop in which one actor acts in its environments."""

from collections.abc import Callable, Iterator

from acme import core

from apex_agents.environments import Episode, VectorEnvironment


def run_in_lock_step(
    environment: VectorEnvironment,
    actor: core.Actor,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[Episode]]:
    """Let an actor that handles batched time steps act until `should_stop`.

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
