"""Tests of learning from several batches in one call."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.update import UpdateOutput, update_in_turn

ROWS = np.arange(1.0, 13.0, dtype=np.float32)
EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda function: function, tf.function], ids=["eager", "tf.function"]
)


class RunningSum:
    """Adds up batches; an output depends on all batches so far."""

    def __init__(self):
        self.total = tf.Variable(0.0)

    def __call__(self, batch: dict[str, tf.Tensor]) -> UpdateOutput:
        self.total.assign_add(tf.reduce_sum(batch["rows"]))
        priorities = batch["rows"] + 1000.0 * self.total
        count = tf.cast(batch["pairs"][0, 0], tf.int64)
        return UpdateOutput(priorities, {"total": self.total.read_value(), "count": count})


@EAGER_AND_GRAPH
@pytest.mark.parametrize("num_updates", [1, 2, 3, 12])
def test_batches_are_learned_from_in_their_order(num_updates, run):
    sample = {"rows": tf.constant(ROWS), "pairs": tf.stack([ROWS, -ROWS], axis=1)}
    update = RunningSum()
    output = run(lambda: update_in_turn(update, sample, num_updates))()
    batches = np.split(ROWS, num_updates)
    totals = np.cumsum([batch.sum() for batch in batches])
    expected = [batch + 1000.0 * total for batch, total in zip(batches, totals, strict=True)]
    np.testing.assert_allclose(output.priorities, np.concatenate(expected))
    assert float(output.metrics["total"]) == pytest.approx(totals.mean())
    assert output.metrics["count"].dtype == tf.int64
    assert int(output.metrics["count"]) == batches[-1][0]  # The newest value of a count.


def test_rows_that_make_no_equal_batches():
    with pytest.raises(tf.errors.InvalidArgumentError):
        update_in_turn(RunningSum(), {"rows": tf.constant(ROWS)}, 5)
