"""Tests of target networks and of learning from several batches in one call."""

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.learning.update import Computed, TargetCopies, update_in_turn

ROWS = np.arange(1.0, 13.0, dtype=np.float32)
EAGER_AND_GRAPH = pytest.mark.parametrize(
    "run", [lambda function: function, tf.function], ids=["eager", "tf.function"]
)


class RunningSum:
    """Adds up batches; an output depends on all batches so far."""

    def __init__(self):
        self.total = tf.Variable(0.0)

    def __call__(self, batch: dict[str, tf.Tensor]) -> Computed:
        self.total.assign_add(tf.reduce_sum(batch["rows"]))
        priorities = batch["rows"] + 1000.0 * self.total
        count = tf.cast(batch["pairs"][0, 0], tf.int64)
        is_large = batch["rows"][0] >= 7.0
        metrics = {"total": self.total.read_value(), "count": count, "is_large": is_large}
        return Computed((), priorities, metrics)


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
    large_fraction = np.mean([batch[0] >= 7.0 for batch in batches])
    assert float(output.metrics["is_large"]) == pytest.approx(large_fraction)
    assert output.metrics["count"].dtype == tf.int64
    assert int(output.metrics["count"]) == batches[-1][0]  # The newest value of a count.


@EAGER_AND_GRAPH
def test_targets_move_a_part_of_the_way_every_period(run):
    online, target = tf.Variable([4.0, -8.0]), tf.Variable([0.0, 0.0])
    copies = TargetCopies([online], [target], update_period=2, update_rate=0.25)
    np.testing.assert_array_equal(target, [4.0, -8.0])  # Equal to begin with.
    online.assign([8.0, 8.0])
    count_update = run(copies.count_update)
    rows = []
    for _ in range(5):
        count_update()
        rows.append(target.numpy().tolist())
    second = [4.0 + 0.25 * 4.0, -8.0 + 0.25 * 16.0]  # 5 and -4
    fourth = [5.0 + 0.25 * 3.0, -4.0 + 0.25 * 12.0]
    assert rows == [[4.0, -8.0], second, second, fourth, fourth]


@EAGER_AND_GRAPH
def test_targets_copy_what_is_not_trained_whole(run):
    online = [tf.Variable(8, trainable=False), tf.Variable(8.0, trainable=False)]
    target = [tf.Variable(0, trainable=False), tf.Variable(0.0, trainable=False)]
    copies = TargetCopies(online, target, update_period=1, update_rate=0.25)
    for variable in online:
        variable.assign_add(tf.ones([], variable.dtype))
    run(copies.count_update)()
    assert [variable.numpy() for variable in target] == [9, 9.0]


def test_rows_that_make_no_equal_batches():
    with pytest.raises(tf.errors.InvalidArgumentError):
        update_in_turn(RunningSum(), {"rows": tf.constant(ROWS)}, 5)
