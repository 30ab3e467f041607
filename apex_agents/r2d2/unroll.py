"""The unroll of a recurrent core over sequences."""

from collections.abc import Callable
from typing import Any

import sonnet as snt
import tensorflow as tf


def unroll(
    core: snt.RNNCore, inputs: tf.Tensor, state: Any, num_steps: tf.Tensor | None = None
) -> tuple[tf.Tensor, Any]:
    """Compute all steps of sequences, as `snt.dynamic_unroll` does.

    The inputs of all steps pass the weights of Sonnet's LSTM and GRU in one product. One for each
    step is slower, above all its gradient: a matrix for each step, which are added up.

    Args:
      core: core whose variables exist.
      inputs: `[T, B, F]` of known T and F.
      state: state before the first step.
      num_steps: `[B]` int32, steps of each sequence that count; None for all.

    Returns:
      Outputs `[T, B, G]`, and the state behind the last step that counts.
    """
    step: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]] = core
    if make_step := _STEPS.get(type(core)):
        length, _, size = inputs.shape
        products = tf.matmul(tf.reshape(inputs, [-1, size]), core.input_to_hidden) + core.b
        inputs = tf.reshape(products, [length, -1, products.shape[-1]])
        step = make_step(core)
    return snt.dynamic_unroll(step, inputs, state, num_steps)


def _make_lstm_step(core: snt.LSTM) -> Callable[..., tuple[tf.Tensor, snt.LSTMState]]:
    def step(products: tf.Tensor, state: snt.LSTMState) -> tuple[tf.Tensor, snt.LSTMState]:
        gates = products + tf.matmul(state.hidden, core.hidden_to_hidden)
        i, f, g, o = tf.split(gates, 4, axis=1)
        cell = tf.sigmoid(f) * state.cell + tf.sigmoid(i) * tf.tanh(g)
        hidden = tf.sigmoid(o) * tf.tanh(cell)
        if core.projection is not None:
            hidden = tf.matmul(hidden, core.projection)
        return hidden, snt.LSTMState(hidden, cell)

    return step


def _make_gru_step(core: snt.GRU) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    def step(products: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = state.shape[1]
        weights = core.hidden_to_hidden
        gates = tf.sigmoid(products[:, : 2 * size] + tf.matmul(state, weights[:, : 2 * size]))
        z, r = tf.split(gates, 2, axis=1)
        a = tf.tanh(products[:, 2 * size :] + tf.matmul(r * state, weights[:, 2 * size :]))
        next_state = (1 - z) * state + z * a
        return next_state, next_state

    return step


# Exactly these classes: a subclass may compute something else.
_STEPS: dict[type, Callable[[Any], Callable[..., Any]]] = {
    snt.LSTM: _make_lstm_step,
    snt.GRU: _make_gru_step,
}
