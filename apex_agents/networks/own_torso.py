"""Builds and checks user-defined torsos.

The mistakes found here would otherwise show in the first learner step, or never: features of a
wrong shape or dtype, variables that no gradient reaches or that nothing would train or save.
"""

import collections
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.user_code import find_function

# Gets the environment's spec and the agent's config; returns a module from observations `[B, ...]`
# to features `[B, F]` float32.
TorsoFn = Callable[[EnvironmentSpec, Any], tf.Module]

_NEEDED = (
    "It has to return a new Sonnet module at each call, which maps observations [B, ...] to "
    "float32 features [B, F]."
)


def find_own_torso(
    name: str, field: str, built_in: Sequence[str], torso_fn: TorsoFn | None
) -> "OwnTorso | None":
    """Return the torso given in Python or named as module:function; None for a built-in one.

    Args:
      name: value of the config's field: a built-in torso or 'module:function'.
      field: dotted path of the field, for messages.
      built_in: names of the built-in torsos.
      torso_fn: function given in Python, in place of the one that the config names.

    Raises:
      ValueError: the function that the config names cannot be imported.
    """
    if torso_fn is not None:
        return OwnTorso(torso_fn, f"torso_fn {getattr(torso_fn, '__qualname__', torso_fn)!r}")
    if name in built_in:
        return None
    return OwnTorso(find_function(name, field), f"{field} {name!r}")


class OwnTorso:
    """A user-defined function that makes torsos, and its name in messages."""

    def __init__(self, torso_fn: TorsoFn, label: str):
        self._torso_fn = torso_fn
        self._label = label

    def make(self, spec: EnvironmentSpec, config: Any, observations: tf.Tensor) -> tf.Module:
        """Make a torso whose variables exist, with different names that begin with 'torso/'.

        Args:
          spec: specification of one environment.
          config: settings of the agent.
          observations: two observations, `[2, ...]`, for the first call of the torso.

        Raises:
          ValueError: the function fails, or returns something else than such a torso.
        """
        if "keras" in sys.modules:  # It numbers the layers without a name in its process.
            tf.keras.backend.reset_uids()
        with _name_variables() as made, tf.GradientTape() as tape:
            with tf.name_scope("torso"):
                torso = self._call(self._torso_fn, spec, config)
            is_module = isinstance(torso, tf.Module) and callable(torso)
            self._require(is_module, f"returns {torso!r}")
            features = self._call(torso, observations)
        self._check_features(features, observations)
        self._check_variables(snt.allow_empty_variables(torso), made)
        trained = torso.trainable_variables
        gradients = tape.gradient(features, trained)
        unused = [v for v, gradient in zip(trained, gradients, strict=True) if gradient is None]
        self._require(not unused, f"does not use the trainable variables {_names(unused)}")
        # Learners and actors compile it, for other numbers of observations.
        more = tf.TensorSpec([3, *observations.shape[1:]], observations.dtype)
        graph = self._call(tf.function(torso, autograph=False).get_concrete_function, more)
        self._check_features(graph.structured_outputs, more)
        return torso

    def _check_features(self, features: Any, observations: Any) -> None:
        is_tensor = isinstance(features, (tf.Tensor, tf.TensorSpec))
        self._require(is_tensor, f"gives a {type(features).__name__} in place of a tensor")
        shape, dtype = features.shape, features.dtype
        self._require(
            shape.rank == 2 and shape[0] == observations.shape[0] and dtype == tf.float32,
            f"maps {observations.dtype.name} {observations.shape} to {dtype.name} {shape}",
        )

    def _check_variables(self, torso: tf.Module, made: Sequence[tf.Variable]) -> None:
        owned, new = ({id(v): v for v in group} for group in (torso.variables, made))
        lost = [v for key, v in new.items() if key not in owned]
        self._require(not lost, f"has variables that are no attributes of it: {_names(lost)}")
        old = [v for key, v in owned.items() if key not in new]
        self._require(not old, f"has variables of an earlier call: {_names(old)}")

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:  # The user's code may raise anything.
            line = str(error).strip().partition("\n")[0].rstrip(".")
            problem = f"{self._label} raises {type(error).__name__}: {line}"
            raise ValueError(f"{problem}. {_NEEDED}") from error

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise ValueError(f"{self._label} {problem}. {_NEEDED}")


@contextlib.contextmanager
def _name_variables() -> Iterator[list[tf.Variable]]:
    """Yield a list that the variables made within join, each with a distinct name.

    Sonnet gives two layers of a kind the same name: the second one's `linear/w` is `linear_1/w`.
    """
    made: list[tf.Variable] = []
    taken: set[str] = set()
    num_layers: collections.Counter[str] = collections.Counter()  # Further ones, by their scope.

    def make_variable(make_next: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        scope, name = tf.get_current_name_scope(), settings["name"] or "variable"
        while (full_name := f"{scope}{_suffix(num_layers[scope])}/{name}") in taken:
            num_layers[scope] += 1
        taken.add(full_name)
        with tf.name_scope(""):
            made.append(make_next(**{**settings, "name": full_name}))
        return made[-1]

    with tf.variable_creator_scope(make_variable):
        yield made


def _suffix(index: int) -> str:
    return f"_{index}" if index else ""


def _names(variables: Iterable[tf.Variable]) -> list[str]:
    return [variable.name.removesuffix(":0") for variable in variables]
