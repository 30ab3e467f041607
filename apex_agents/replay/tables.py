"""The tables of the replay server, the one of transitions above all.

Horgan et al. 2018, section 3 and appendix F, built from Reverb's own selectors and limiters.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import reverb
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import (
    make_evaluation_table,
    make_initial_actor_steps_table,
    make_parameter_table,
)

TRANSITIONS = "transitions"


def make_tables(
    config: ReplayConfig,
    signature: Any,
    variables: Mapping[str, Sequence[tf.Variable]],
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
) -> list[reverb.Table]:
    """Build all tables of a replay server.

    Args:
      config: of the transition table.
      signature: of one of its items; see `replay.transitions.item_signature`.
      variables: what the learner will publish, by name.
      rate_limiter: for the transitions, instead of the config's.
    """
    return [
        make_transition_table(config, signature, rate_limiter),
        make_parameter_table(variables),
        make_evaluation_table(),
        make_initial_actor_steps_table(),
    ]


def make_rate_limiter(config: ReplayConfig) -> reverb.rate_limiters.RateLimiter:
    """Build the limiter: adding is always allowed, unless a samples-per-insert ratio is set."""
    if config.samples_per_insert is None:
        return reverb.rate_limiters.MinSize(config.min_size)
    # Reverb counts items, and a transition is `replicas` of them.
    samples_per_item = config.samples_per_insert / config.replicas
    tolerance = config.samples_per_insert_tolerance_rate * config.min_size * samples_per_item
    # Both sides work in batches: a tolerance below a few of them would only make them wait.
    smallest = 4.0 * max(config.max_in_flight * samples_per_item, 1.0)
    return reverb.rate_limiters.SampleToInsertRatio(
        samples_per_insert=samples_per_item,
        min_size_to_sample=config.min_size,
        error_buffer=max(tolerance, smallest),
    )


def make_transition_table(
    config: ReplayConfig,
    signature: Any,
    rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
) -> reverb.Table:
    """Build the prioritized table of transitions.

    Args:
      config: sizes, exponents and ratio.
      signature: nest of `tf.TensorSpec` of one item; see `replay.transitions.item_signature`.
      rate_limiter: used instead of the config's, for callers that interleave acting and learning
        themselves.

    Returns:
      A table with proportional sampling, P(k) = p_k^alpha / sum p^alpha, and the config's removal.
    """
    return reverb.Table(
        name=TRANSITIONS,
        sampler=reverb.selectors.Prioritized(config.priority_exponent),
        # Differs from the paper: one transition leaves for each that enters a full table, instead
        # of all that is over the limit every 100 learner steps; the table keeps the same size.
        remover=_make_remover(config),
        max_size=config.max_size,
        rate_limiter=rate_limiter or make_rate_limiter(config),
        signature=signature,
    )


def _make_remover(config: ReplayConfig) -> Any:
    if config.eviction_policy == "fifo":
        return reverb.selectors.Fifo()
    return reverb.selectors.Prioritized(config.eviction_exponent)
