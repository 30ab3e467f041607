"""What the shared replay memory holds and how it is sampled."""

import dataclasses
import math

from apex_agents.validation import require, require_fraction, require_positive

REMOVERS = ("fifo", "prioritized")


@dataclasses.dataclass
class ReplayConfig:
    """The prioritized replay memory (Horgan et al. 2018, sections 3, 4.1 and appendix F).

    Attributes:
      max_size: capacity in items, which are transitions, each counted `replicas` times (section
        4.1: 2 million, soft).
      min_size: items needed before sampling starts (appendix C: 50 000).
      priority_exponent: alpha in P(k) = p_k^alpha / sum p^alpha (section 4.1: 0.6); 0 is uniform.
      remover: who leaves a full memory, 'fifo' for the oldest (section 4.1), 'prioritized' for a
        random one, drawn in proportion to p_k^eviction_exponent (appendix D).
      eviction_exponent: alpha_evict, for 'prioritized' only (appendix D: -0.4); below 0 small
        priorities leave sooner. Stacks of frames share memory with their neighbours, which frees
        little of it when they leave in random order.
      importance_exponent: beta of the importance weights (section 4.1: 0.4).
      samples_per_insert: transitions sampled by the learner for each one added; None lets acting
        and learning run at unrelated speeds, as in the paper.
      samples_per_insert_tolerance: how far acting or learning may run ahead of that ratio, as a
        share of `min_size`.
      replicas: times each transition is added (appendix A: 1, and 8 in the recency ablation).
      insert_batch: items after which a lane looks how many are unconfirmed.
      max_in_flight: items of a lane that the replay has not confirmed yet.
      prefetch_batches: batches sampled ahead by the learner (section 4.1: up to 16).
    """

    max_size: int = 2_000_000
    min_size: int = 50_000
    priority_exponent: float = 0.6
    remover: str = "fifo"
    eviction_exponent: float = -0.4
    importance_exponent: float = 0.4
    samples_per_insert: float | None = None
    samples_per_insert_tolerance: float = 0.5
    replicas: int = 1
    # Differs from the paper: actors send batches of 50 and hold up to 100. Reverb's writers send
    # items one by one in the background, and fill the logs with warnings from 50 on.
    insert_batch: int = 20
    max_in_flight: int = 40
    prefetch_batches: int = 16

    def validate(self, prefix: str = "replay.") -> None:
        """Raise a ValueError that names the first field with a value that cannot work."""
        require_positive(self, prefix, "max_size", "min_size", "replicas", "insert_batch")
        require_positive(self, prefix, "prefetch_batches", "samples_per_insert_tolerance")
        require_positive(self, prefix, "samples_per_insert", optional=True)
        require_fraction(self, prefix, "importance_exponent")
        require(
            self.priority_exponent >= 0,
            f"{prefix}priority_exponent",
            self.priority_exponent,
            "at least 0",
        )
        require(self.remover in REMOVERS, f"{prefix}remover", self.remover, f"one of {REMOVERS}")
        require(
            math.isfinite(self.eviction_exponent),
            f"{prefix}eviction_exponent",
            self.eviction_exponent,
            "a finite number",
        )
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
