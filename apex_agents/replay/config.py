"""Settings of the shared replay memory."""

import copy
import dataclasses
from typing import Any

from apex_agents.validation import bounded, one_of, positive, require, require_fields

EVICTION_POLICIES = ("fifo", "prioritized")
# Reverb's sizes have 32 bits.
MAX_SIZE = 2**31 - 1
# A priority of 0 is never sampled and never evicted, an infinite one breaks the sum tree.
MIN_PRIORITY, MAX_PRIORITY = 1e-6, 1e6
# With an exponent of 52 the sum of such priorities would be infinite.
MAX_EXPONENT = 10


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

    max_size: int = bounded(2_000_000, 1, MAX_SIZE)
    min_size: int = bounded(50_000, 1, MAX_SIZE)
    priority_exponent: float = bounded(0.6, 0, MAX_EXPONENT)
    initial_priority: str = one_of("td_error", "max")
    eviction_policy: str = one_of(*EVICTION_POLICIES)
    eviction_exponent: float = bounded(-0.4, -MAX_EXPONENT, MAX_EXPONENT)
    importance_sampling_exponent: float = bounded(0.4, 0, 1)
    samples_per_insert: float | None = positive(None)
    samples_per_insert_tolerance_rate: float = positive(0.5)
    replicas: int = bounded(1, 1, 100)
    # Differs from the paper: actors send batches of 50 and hold up to 100. Reverb's writers send
    # items one by one in the background, and fill the logs with warnings from 50 on.
    insert_batch: int = bounded(20, 1, 1_000_000)
    max_in_flight: int = bounded(40, 1, 1_000_000)
    prefetch_batches: int = bounded(16, 1, 1_000)

    def validate(self, prefix: str = "replay.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
        require(
            self.min_size <= self.max_size,
            f"{prefix}min_size",
            self.min_size,
            f"at most max_size ({self.max_size})",
        )
        require(
            self.max_in_flight >= self.insert_batch,
            f"{prefix}max_in_flight",
            self.max_in_flight,
            f"at least insert_batch ({self.insert_batch})",
        )


def share_config(config: Any, num_replays: int) -> Any:
    """Return an agent's config for each of several replay servers, which hold the replay together.

    Raises:
      ValueError: batches cannot be shared out evenly.
    """
    size, replay = config.batch_size, config.replay
    allowed = f"a divisor of agent.batch_size ({size})"
    require(size % num_replays == 0, "run.num_replays", num_replays, allowed)
    sizes = {name: -(-getattr(replay, name) // num_replays) for name in ("max_size", "min_size")}
    config = copy.copy(config)  # With attributes that are no fields.
    config.batch_size, config.replay = size // num_replays, dataclasses.replace(replay, **sizes)
    return config
