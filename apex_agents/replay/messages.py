"""Tables of one item, the newest, through which nodes exchange messages."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

PARAMETERS = "parameters"
PARAMETER_VERSION = "parameter_version"
EVALUATION = "evaluation"
INITIAL_ACTOR_STEPS = "initial_actor_steps"
LAST_STEP = "last_step"


class Evaluation(NamedTuple):
    """One evaluation, as the evaluator reports it to the learner; every field a scalar."""

    mean_return: np.ndarray  # Mean unclipped return over the episodes.
    standard_error: np.ndarray  # Standard error of that mean.
    num_episodes: np.ndarray
    learner_steps: np.ndarray  # Learner steps of the evaluated parameters.
    actor_steps: np.ndarray  # Transitions that all actors had added when it began.


def make_parameter_tables(variables: Mapping[str, Sequence[tf.Variable]]) -> list[reverb.Table]:
    """Build the tables of the newest parameters, and of a number that is drawn for each of them.

    By that number readers tell whether they have them; a count begins anew with a new server.
    """
    parameters = {
        name: [tf.TensorSpec(variable.shape, variable.dtype) for variable in group]
        for name, group in variables.items()
    }
    signature = {"learner_steps": tf.TensorSpec([], tf.int64), "variables": parameters}
    return [
        _make_latest_value_table(PARAMETERS, signature),
        _make_latest_value_table(PARAMETER_VERSION, tf.TensorSpec([], tf.int64)),
    ]


def make_evaluation_table() -> reverb.Table:
    """Build the table through which the evaluator reports to the learner."""
    signature = Evaluation(*[tf.TensorSpec([], tf.float64) for _ in Evaluation._fields])
    return _make_latest_value_table(EVALUATION, signature)


def make_initial_actor_steps_table() -> reverb.Table:
    """Build the table that holds how far the run was before this server."""
    return _make_latest_value_table(INITIAL_ACTOR_STEPS, tf.TensorSpec([], tf.int64))


def make_last_step_table() -> reverb.Table:
    """Build the table that gets the learner steps of the run's last parameters at its end."""
    return _make_latest_value_table(LAST_STEP, tf.TensorSpec([], tf.int64))


def read_latest(client: reverb.Client, table: str) -> Any:
    """Return the item of a table that is not empty, by the name that it has in the run."""
    samples = client.sample(table, emit_timesteps=False, unpack_as_table_signature=True)
    return tf.nest.map_structure(lambda column: column[0], next(iter(samples)).data)


def _make_latest_value_table(name: str, signature: Any) -> reverb.Table:
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Lifo(),
        remover=reverb.selectors.Fifo(),
        max_size=1,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )
