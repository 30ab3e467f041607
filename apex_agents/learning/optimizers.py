"""Sonnet's optimizers on TensorFlow's fused kernels, and a guard against non-finite gradients.

Sonnet computes a step with a dozen operations per variable, each of which is a pass over memory. A
fused kernel needs one pass. Slots, and thus checkpoints, are Sonnet's.
"""

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

# The smallest relative difference between a gradient's mean square and its squared mean: several
# times the error of rounding to float32.
_MIN_RELATIVE_VARIANCE = 1e-5


def anneal(rate: float, num_steps: tf.Tensor, annealing_steps: int | None) -> tf.Tensor | float:
    """Return rate * max(0.1, 1 - 0.9 * num_steps / annealing_steps); None leaves it as it is."""
    if annealing_steps is None:
        return rate
    done = tf.cast(num_steps, tf.float32) / annealing_steps
    return rate * tf.maximum(0.1, 1.0 - 0.9 * done)


class RMSProp(snt.optimizers.RMSProp):
    """RMSProp, plain or divided by the gradient's standard deviation (Tieleman & Hinton 2012).

      mean_square <- decay * mean_square + (1 - decay) * gradient^2
      mean <- decay * mean + (1 - decay) * gradient, if it is centered; else it stays 0
      parameter <- parameter - learning_rate() * gradient / sqrt(mean_square - mean^2 + epsilon)

    If a gradient hardly changes for hundreds of steps, rounding would make the argument of the root
    negative; the mean square is therefore kept a little above the squared mean.

    `learning_rate` is a function without arguments.
    """

    def apply(self, updates: Sequence[tf.Tensor], parameters: Sequence[tf.Variable]) -> None:
        self._initialize(parameters)
        rates = {"lr": self.learning_rate(), "rho": self.decay}
        rates |= {"momentum": self.momentum, "epsilon": self.epsilon}
        for i, (gradient, parameter) in enumerate(zip(updates, parameters, strict=True)):
            if gradient is None:  # The loss does not depend on the parameter.
                continue
            slots = {"ms": self.ms[i].handle, "mom": self.mom[i].handle}
            options = {"var": parameter.handle, **slots, **rates, "grad": gradient}
            if not self.centered:
                tf.raw_ops.ResourceApplyRMSProp(**options)
                continue
            smallest = (1.0 + _MIN_RELATIVE_VARIANCE) * tf.square(self.mg[i])
            self.ms[i].assign(tf.maximum(self.ms[i], smallest))
            tf.raw_ops.ResourceApplyCenteredRMSProp(mg=self.mg[i].handle, **options)


class Adam(snt.optimizers.Adam):
    """Adam (Kingma & Ba 2015, algorithm 1); `learning_rate` is a function without arguments."""

    def apply(self, updates: Sequence[tf.Tensor], parameters: Sequence[tf.Variable]) -> None:
        self._initialize(parameters)
        self.step.assign_add(1)
        step = tf.cast(self.step, tf.float32)
        powers = {"beta1_power": self.beta1**step, "beta2_power": self.beta2**step}
        # The kernel adds epsilon to the root of the biased moment.
        epsilon = self.epsilon * tf.sqrt(1.0 - powers["beta2_power"])
        rates = {"lr": self.learning_rate(), "beta1": self.beta1, "beta2": self.beta2, **powers}
        for gradient, parameter, m, v in zip(updates, parameters, self.m, self.v, strict=True):
            if gradient is not None:
                handles = {"var": parameter.handle, "m": m.handle, "v": v.handle}
                tf.raw_ops.ResourceApplyAdam(**handles, **rates, epsilon=epsilon, grad=gradient)


class AdaGrad(snt.Optimizer):
    """AdaGrad (Duchi et al. 2011).

    sum <- sum + gradient^2
    parameter <- parameter - learning_rate * gradient / (sqrt(sum) + epsilon)
    """

    def __init__(self, learning_rate: float, epsilon: float = 1e-7):
        super().__init__()
        self._settings = {"lr": learning_rate, "epsilon": epsilon}
        self.sums: list[tf.Variable] = []

    def apply(self, updates: Sequence[tf.Tensor], parameters: Sequence[tf.Variable]) -> None:
        self._initialize(parameters)
        for gradient, parameter, total in zip(updates, parameters, self.sums, strict=True):
            if gradient is not None:
                handles = {"var": parameter.handle, "accum": total.handle}
                tf.raw_ops.ResourceApplyAdagradV2(**handles, **self._settings, grad=gradient)

    @snt.once
    def _initialize(self, parameters: Sequence[tf.Variable]) -> None:
        self.sums += [tf.Variable(tf.zeros_like(each), trainable=False) for each in parameters]


class GuardedOptimizer:
    """Several optimizers that step together; none steps if a gradient is not finite.

    Attributes:
      num_skipped: int64 scalar, steps not taken so far; not part of a checkpoint.
    """

    def __init__(self, *parts: tuple[snt.Optimizer, Sequence[tf.Variable]]):
        """Make the slots of optimizers, each given with the variables that it moves."""
        self._parts = parts
        self.num_skipped = tf.Variable(0, dtype=tf.int64, trainable=False)
        for optimizer, variables in parts:
            # Sonnet would make the slots at the first `apply`, here in a branch of a graph, where
            # no variable can be made.
            optimizer._initialize(variables)

    def apply(self, gradients: Sequence[Sequence[tf.Tensor]], norms: Sequence[tf.Tensor]) -> None:
        """Take one step, or leave all variables and slots as they are and count it as skipped.

        Args:
          gradients: gradients for each optimizer, in the order of the constructor.
          norms: scalars, global norms of these gradients before any clipping. Squares too large for
            float32 also make a norm infinite, by which clipping would make all gradients NaN.
        """
        is_finite = tf.reduce_all(tf.math.is_finite(norms))
        self.num_skipped.assign_add(tf.cast(tf.logical_not(is_finite), tf.int64))

        def apply_all() -> None:
            for (optimizer, variables), updates in zip(self._parts, gradients, strict=True):
                optimizer.apply(updates, variables)

        tf.cond(is_finite, apply_all, lambda: None)
