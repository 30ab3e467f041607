"""The seam between an algorithm and its actors: all that acting needs from any network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import sonnet as snt
import tensorflow as tf


class PolicyOutput(NamedTuple):
    """What a policy says of one time step of every environment.

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
      variables: the variables to keep up to date, by the names under which they are published.
      networks: what they belong to, by the names that it has in the state of `learning.update`.
      exploration: what decides how much each environment explores, `[E]` or one for all, by its
        name.
    """

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]: ...

    @property
    def networks(self) -> Mapping[str, snt.Module]: ...

    @property
    def exploration(self) -> Mapping[str, np.ndarray | float]: ...

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        """Evaluate the network once for `[E, ...]` observations."""
        ...


class CompiledFunction:
    """Compiles a function of observations.

    It is called without TensorFlow's look-up of the right graph, which for small networks takes as
    long as their evaluation.
    """

    def __init__(self, function: Callable[[tf.Tensor], Any]):
        """Take a function from a tensor `[E, ...]` to any nest of tensors."""
        # AutoGraph would take a second, and networks have nothing for it.
        self._function = tf.function(function, autograph=False)
        self._graphs: dict[Any, Callable[[tf.Tensor], Any]] = {}

    def __call__(self, observation: np.ndarray) -> Any:
        """Compile the function for this shape if that is new, and call it."""
        tensor = tf.convert_to_tensor(observation)
        key = (observation.shape, observation.dtype)
        if key not in self._graphs:
            self._graphs[key] = self._function.get_concrete_function(tensor)
        return self._graphs[key](tensor)
