"""Tests of the precision in which the methods of modules compute."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.precision import computing_in, mixed_precision

# 1 + 2^-9 needs nine bits behind the point; bfloat16 has seven.
WEIGHT = 1 + 2**-9


class Product(snt.Module):
    """A product with a weight in a submodule; `pause` is called in the middle."""

    def __init__(self, pause: Callable[[], None] = lambda: None):
        super().__init__()
        self._linear = snt.Linear(1, with_bias=False)
        self._linear(tf.zeros([1, 1]))
        self._linear.w.assign([[WEIGHT]])
        self._pause = pause

    @mixed_precision
    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        self._pause()
        return self._linear(features)


def test_a_decorated_method_computes_in_the_dtype_of_its_context():
    product, one = Product(), tf.ones([1, 1])
    outputs = [product(one)]
    with computing_in(tf.bfloat16):
        outputs.append(product(one))
        with computing_in(tf.float32):
            outputs.append(product(one))
        outputs.append(product(one))
    outputs.append(product(one))
    assert {output.dtype for output in outputs} == {tf.float32}
    assert [float(output) for output in outputs] == [WEIGHT, 1.0, WEIGHT, 1.0, WEIGHT]


def test_the_context_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), computing_in(tf.bfloat16):
        raise ZeroDivisionError
    assert float(Product()(tf.ones([1, 1]))) == WEIGHT


def test_a_trace_in_one_thread_leaves_the_modules_of_others_alone():
    is_inside, may_continue = threading.Event(), threading.Event()

    def pause() -> None:
        is_inside.set()
        assert may_continue.wait(60)

    slow, traced = Product(pause), []

    def trace() -> None:
        with computing_in(tf.bfloat16):
            traced.append(float(tf.function(slow, autograph=False)(tf.ones([1, 1]))))

    thread = threading.Thread(target=trace)
    thread.start()
    try:
        assert is_inside.wait(60)
        made = Product()  # Makes variables, and is called, in the middle of the trace.
        outputs = [made(tf.ones([1, 1])), tf.function(made)(tf.ones([1, 1]))]
        trained = made.trainable_variables
    finally:
        may_continue.set()
        thread.join()
    assert [float(output) for output in outputs] == [WEIGHT, WEIGHT]
    assert [variable.dtype for variable in trained] == [tf.float32]
    np.testing.assert_array_equal(traced, [1.0])
