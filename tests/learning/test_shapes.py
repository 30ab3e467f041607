"""Tests of the static checks of shapes."""

import pytest
import tensorflow as tf

from apex_agents.learning.losses import check_shapes


@pytest.mark.parametrize("shape", [[2], [None], [None, 3], [2, 3, 1], tf.TensorShape([2])])
def test_equal_shapes_pass(shape):
    tensor = tf.zeros([size or 7 for size in shape])
    check_shapes(shape, first=tensor, second=tensor)


@pytest.mark.parametrize(
    ("shape", "other"),
    [([2], [2, 1]), ([2, 1], [2]), ([2], []), ([2], [1]), ([None], [2, 1]), ([None, 3], [2, 1])],
)
def test_another_shape_is_refused_by_name(shape, other):
    good = tf.zeros([size or 2 for size in shape])
    with pytest.raises(ValueError, match="second"):
        check_shapes(shape, first=good, second=tf.zeros(other))


def test_sizes_that_a_graph_does_not_know_pass():
    def function(tensor: tf.Tensor) -> tf.Tensor:
        check_shapes([8], tensor=tensor)
        return tensor

    tf.function(function).get_concrete_function(tf.TensorSpec([None]))
    with pytest.raises(ValueError, match="tensor"):
        tf.function(function).get_concrete_function(tf.TensorSpec([None, 1]))


def test_nothing_is_added_to_a_graph():
    def list_operations(check: bool) -> list[str]:
        def function(tensor: tf.Tensor) -> tf.Tensor:
            if check:
                check_shapes([8, None], tensor=tensor)
            return tensor

        graph = tf.function(function).get_concrete_function(tf.TensorSpec([8, 3])).graph
        return [operation.type for operation in graph.get_operations()]

    assert list_operations(check=True) == list_operations(check=False)
