"""The seam between an algorithm and its actors: all that acting needs from any network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf


class PolicyOutput(NamedTuple):
    """Output of a policy for one time step of every environment.

    Attributes:
      action: `[E]` int32 or `[E, D]`, the action to take, exploration included.
      q_taken: `[E]`, q(s, action).
      value: `[E]`, the value to bootstrap from if a return ends here: max_a q(s, a) or q(s, pi(s)).
    """

    action: np.ndarray
    q_taken: np.ndarray
    value: np.ndarray


class Policy(Protocol):
    """Chooses actions for all environments at once.

    Attributes:
      variables: variables to keep up to date, by the names under which they are published.
      exploration: what decides how much each environment explores, `[E]` or one value, by name.
    """

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]: ...

    @property
    def exploration(self) -> Mapping[str, np.ndarray | float]: ...

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        """Evaluate the network once for `[E, ...]` observations; return new arrays."""
        ...


class CompiledFunction:
    """A compiled function from observations, `[E, ...]`, to any nest of tensors.

    It skips TensorFlow's look-up of the graph for an input, which for small networks takes as long
    as their evaluation.
    """

    def __init__(self, function: Callable[[tf.Tensor], Any]):
        # AutoGraph would take a second, and networks have no Python control flow to convert.
        self._function = tf.function(function, autograph=False)
        self._graphs: dict[Any, Callable[[tf.Tensor], Any]] = {}

    def __call__(self, observation: np.ndarray) -> Any:
        tensor = tf.convert_to_tensor(observation)
        key = (observation.shape, observation.dtype)
        if key not in self._graphs:
            self._graphs[key] = self._function.get_concrete_function(tensor)
        return self._graphs[key](tensor)
