"""The limit in transitions of a run, as each of its actors observes it."""

import math
from collections.abc import Sequence

import reverb

from apex_agents.builder import Adder
from apex_agents.config import RunConfig
from apex_agents.replay.flow import DataFlow
from apex_agents.replay.statistics import count_actor_steps
from apex_agents.replay.tables import if_reachable

_PARTS = 8


class StepLimit:
    """Tells an actor when all actors together have added as many transitions as they may.

    An actor adds an eighth of its share of what is left, waits until the replay has all of it, and
    asks how much is left now. So a single actor exceeds the limit by less than a lock-step adds, a
    worker of A2C or A3C by less than a rollout. Of several actors each may do so, and one that is
    eight times as slow as the others by some of its first eighth, too. With several replay servers
    the actors of each have an equal part of the limit.
    """

    def __init__(
        self,
        client: reverb.Client,
        adders: Sequence[Adder],
        run: RunConfig,
        flow: DataFlow,
    ):
        """Allow nothing before `is_reached` is asked.

        Args:
          client: client of the replay server.
          adders: adders of this actor.
          run: number of actors, of replay servers and of transitions since the run began.
          flow: how transitions become items of the replay.
        """
        self._client = client
        self._adders = adders
        self._limit = run.max_actor_steps
        if self._limit is not None:
            self._limit = math.ceil(self._limit / run.num_replays)
        self._num_actors = run.num_actors // run.num_replays
        self._flow = flow
        self._allowed = 0 if self._limit is not None else math.inf  # Transitions of this actor.

    def is_reached(self) -> bool:
        """Return whether this actor may not act now, which a server that has died can change."""
        added = sum(adder.num_transitions for adder in self._adders)
        if added < self._allowed:
            return False
        for adder in self._adders:
            adder.flush()
        left = self._count_left()
        self._allowed = added + math.ceil(left / (_PARTS * self._num_actors))
        return left == 0

    def _count_left(self) -> int:
        """Return how many transitions are missing, 0 while the server does not know."""
        assert self._limit is not None
        steps = if_reachable(lambda: count_actor_steps(self._client, self._flow))
        return 0 if steps is None else max(self._limit - steps, 0)
