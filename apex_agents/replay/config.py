"""Settings of the shared replay memory."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from apex_agents.fields import ReadWith, with_fields
from apex_agents.validation import Probability, Rule, require

# Reverb's sizes have 32 bits.
MAX_SIZE = 2**31 - 1
# A priority of 0 is never sampled and never evicted, an infinite one breaks the sum tree.
MIN_PRIORITY, MAX_PRIORITY = 1e-6, 1e6
# With an exponent of 52 the sum of such priorities would be infinite.
MAX_EXPONENT = 10
_EXPONENT = Field(ge=-MAX_EXPONENT, le=MAX_EXPONENT)
_EVICTING = ReadWith("eviction_policy", ("prioritized",))


@dataclasses.dataclass
class ReplayConfig:
    """The prioritized replay memory (Horgan et al. 2018, sections 3, 4.1 and appendix F).

    Attributes:
      max_size: capacity in items; a transition is `replicas` items (section 4.1: 2 million, soft).
      min_size: items needed before sampling starts (appendix C: 50 000).
      priority_exponent: alpha in P(k) = p_k^alpha / sum p^alpha (section 4.1: 0.6); 0 is uniform.
      initial_priority: priority of a new transition: 'td_error', its absolute TD error as its actor
        computes it (section 3), or 'max', the largest one that its actor has computed so far, so
        that it is soon sampled for the first time (Schaul et al. 2016).
      eviction_policy: which item a full table removes: 'fifo', the oldest (section 4.1), or
        'prioritized', a random one with probability proportional to p_k^eviction_exponent
        (appendix D).
      eviction_exponent: alpha_evict, for 'prioritized' only (appendix D: -0.4); below 0 small
        priorities are removed sooner. Neighbouring stacks of frames share memory, little of which
        is freed when they are removed in random order.
      importance_sampling_exponent: beta of the importance weights (section 4.1: 0.4).
      samples_per_insert: transitions sampled by the learner for each one added; None lets acting
        and learning run at unrelated speeds, as in the paper.
      samples_per_insert_tolerance_rate: how far acting or learning may run ahead of that ratio, as
        a fraction of `min_size`.
      replicas: times each transition is added (appendix A: 1, and 8 in the recency ablation).
      insert_batch: number of items after which an adder waits for unconfirmed ones.
      max_in_flight: maximum number of items of an adder that the replay has not confirmed.
      prefetch_batches: batches sampled ahead by the learner (section 4.1: up to 16).
    """

    max_size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 2_000_000
    min_size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 50_000
    priority_exponent: Annotated[float, Field(ge=0, le=MAX_EXPONENT)] = 0.6
    initial_priority: Literal["td_error", "max"] = "td_error"
    eviction_policy: Literal["fifo", "prioritized"] = "fifo"
    eviction_exponent: Annotated[float, _EXPONENT, _EVICTING] = -0.4
    importance_sampling_exponent: Probability = 0.4
    samples_per_insert: PositiveFloat | None = None
    samples_per_insert_tolerance_rate: PositiveFloat = 0.5
    replicas: Annotated[int, Field(ge=1, le=100)] = 1
    # Differs from the paper: actors send batches of 50 and hold up to 100. Reverb's writers send
    # items one by one in the background, and fill the logs with warnings from 50 on.
    insert_batch: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    max_in_flight: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    prefetch_batches: Annotated[int, Field(ge=1, le=1_000)] = 16

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; see `validation.check_config`."""
        fits, covers = self.min_size <= self.max_size, self.max_in_flight >= self.insert_batch
        yield "min_size", fits, f"at most max_size, {self.max_size}"
        yield "max_in_flight", covers, f"at least insert_batch, {self.insert_batch}"


def share_config(config: Any, num_replays: int) -> Any:
    """Return an agent's config for each of several replay servers, which hold the replay together.

    Raises:
      ValueError: batches cannot be shared out evenly.
    """
    size, replay = config.batch_size, config.replay
    allowed = f"a divisor of agent.batch_size ({size})"
    require(size % num_replays == 0, "run.num_replays", num_replays, allowed)
    sizes = {name: -(-getattr(replay, name) // num_replays) for name in ("max_size", "min_size")}
    return with_fields(config, batch_size=size // num_replays, replay=with_fields(replay, **sizes))
