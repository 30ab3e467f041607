"""The tables of the replay server: transitions, parameters and the latest evaluation.

Horgan et al. 2018, section 3 and appendix F, built from Reverb's own selectors and limiters.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.replay.config import ReplayConfig

TRANSITIONS = "transitions"
PARAMETERS = "parameters"
EVALUATION = "evaluation"


class Evaluation(NamedTuple):
    """One evaluation, as the evaluator reports it to the learner; every field a scalar.

    Attributes:
      mean_return: mean unclipped return over the episodes.
      standard_error: standard error of that mean.
      num_episodes: episodes evaluated.
      learner_steps: learner steps of the parameters that were evaluated.
      actor_steps: transitions that all actors had added by then.
    """

    mean_return: np.ndarray
    standard_error: np.ndarray
    num_episodes: np.ndarray
    learner_steps: np.ndarray
    actor_steps: np.ndarray


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
    ]


def make_rate_limiter(config: ReplayConfig) -> reverb.rate_limiters.RateLimiter:
    """Build the limiter: adding is always allowed, unless a samples-per-insert ratio is set."""
    if config.samples_per_insert is None:
        return reverb.rate_limiters.MinSize(config.min_size)
    # Reverb counts items, and a transition is `replicas` of them.
    samples_per_item = config.samples_per_insert / config.replicas
    tolerance = config.samples_per_insert_tolerance * config.min_size * samples_per_item
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
    if config.remover == "fifo":
        return reverb.selectors.Fifo()
    return reverb.selectors.Prioritized(config.eviction_exponent)


def make_parameter_table(variables: Mapping[str, Sequence[tf.Variable]]) -> reverb.Table:
    """Build the table of one item from which actors and evaluator read the newest parameters."""
    parameters = {
        name: [tf.TensorSpec(variable.shape, variable.dtype) for variable in group]
        for name, group in variables.items()
    }
    signature = {"learner_steps": tf.TensorSpec([], tf.int64), "variables": parameters}
    return _make_latest_value_table(PARAMETERS, signature)


def make_evaluation_table() -> reverb.Table:
    """Build the table of one item through which the evaluator reports to the learner."""
    signature = Evaluation(*[tf.TensorSpec([], tf.float64) for _ in Evaluation._fields])
    return _make_latest_value_table(EVALUATION, signature)


def _make_latest_value_table(name: str, signature: Any) -> reverb.Table:
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Lifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )
