"""A user's torso: how it is built, and checked.

The mistakes that are found here would otherwise show in the first learner step, or never: features
of a wrong shape or dtype, variables that no gradient reaches or that nothing would train or save.
"""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.user_code import find_function, in_one_line

# Gets the environment's spec and the agent's config; returns a module from observations `[B, ...]`
# to features `[B, F]` float32.
TorsoFn = Callable[[EnvironmentSpec, Any], tf.Module]

_NEEDED = (
    "It has to return a new Sonnet module at each call, which maps observations [B, ...] to "
    "float32 features [B, F]."
)


def is_own_torso(name: str, torso_fn: TorsoFn | None) -> bool:
    """Return whether a torso is user-defined: a function, or named as 'module:function'."""
    return torso_fn is not None or ":" in name


def make_own_torso(
    name: str,
    field: str,
    torso_fn: TorsoFn | None,
    spec: EnvironmentSpec,
    config: Any,
    observations: tf.Tensor,
) -> tf.Module:
    """Make a torso whose variables exist, with different names that begin with 'torso/'.

    Args:
      name: 'module:function', the value of the config's field.
      field: dotted path of the field, for messages.
      torso_fn: function given in Python, in place of the one that the config names.
      spec: specification of one environment.
      config: settings of the agent.
      observations: two observations, `[2, ...]`, for the first call of the torso.

    Raises:
      ValueError: the function cannot be imported, fails, or returns something else than a torso.
    """
    if torso_fn is None:
        torso_fn, label = find_function(name, field), f"{field} {name!r}"
    else:
        label = f"torso_fn {getattr(torso_fn, '__qualname__', torso_fn)!r}"
    try:
        return _make_and_check(torso_fn, spec, config, observations)
    except _NoTorso as problem:
        raise ValueError(f"{label} {problem}. {_NEEDED}") from None
    except Exception as error:  # The user's code may raise anything.
        raise ValueError(f"{label} raises {in_one_line(error)}. {_NEEDED}") from error


class _NoTorso(Exception):
    """A function returned something else than a torso; the message continues its name."""


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise _NoTorso(problem)


def _make_and_check(
    torso_fn: TorsoFn, spec: EnvironmentSpec, config: Any, observations: tf.Tensor
) -> tf.Module:
    if "keras" in sys.modules:  # It numbers the layers without a name in its process.
        tf.keras.backend.reset_uids()
    with _name_variables() as made, tf.GradientTape() as tape:
        with tf.name_scope("torso"):
            torso = torso_fn(spec, config)
        _require(isinstance(torso, tf.Module) and callable(torso), f"returns {torso!r}")
        features = torso(observations)
    _check_features(features, observations)
    _check_variables(snt.allow_empty_variables(torso), made)
    trained = torso.trainable_variables
    gradients = tape.gradient(features, trained)
    unused = [v for v, gradient in zip(trained, gradients, strict=True) if gradient is None]
    _require(not unused, f"does not use the trainable variables {_names(unused)}")
    # Learners and actors compile it, for different numbers of observations.
    more = tf.TensorSpec([3, *observations.shape[1:]], observations.dtype)
    graph = tf.function(torso, autograph=False).get_concrete_function(more)
    _check_features(graph.structured_outputs, more)
    return torso


def _check_features(features: Any, observations: Any) -> None:
    is_tensor = isinstance(features, (tf.Tensor, tf.TensorSpec))
    _require(is_tensor, f"gives a {type(features).__name__} in place of a tensor")
    shape, dtype = features.shape, features.dtype
    _require(
        shape.rank == 2 and shape[0] == observations.shape[0] and dtype == tf.float32,
        f"maps {observations.dtype.name} {observations.shape} to {dtype.name} {shape}",
    )


def _check_variables(torso: tf.Module, made: Sequence[tf.Variable]) -> None:
    owned, new = ({id(v): v for v in group} for group in (torso.variables, made))
    lost = [v for key, v in new.items() if key not in owned]
    _require(not lost, f"has variables that are no attributes of it: {_names(lost)}")
    old = [v for key, v in owned.items() if key not in new]
    _require(not old, f"has variables of an earlier call: {_names(old)}")


@contextlib.contextmanager
def _name_variables() -> Iterator[list[tf.Variable]]:
    """Yield a list that the variables made within join, each with a distinct name.

    Sonnet gives two layers of a kind the same name: the second one's `linear/w` is `linear_1/w`.
    """
    made: list[tf.Variable] = []
    taken: set[str] = set()
    num_layers: collections.Counter[str] = collections.Counter()  # Further ones, by their scope.
    newest: dict[str, str] = {}  # Names of the newest of them.

    def make_variable(make_next: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        scope, name = tf.get_current_name_scope(), settings["name"] or "variable"
        while (full_name := f"{newest.get(scope, scope)}/{name}") in taken:
            num_layers[scope] += 1
            newest[scope] = f"{scope}_{num_layers[scope]}"
        taken.add(full_name)
        with tf.name_scope(""):
            made.append(make_next(**{**settings, "name": full_name}))
        return made[-1]

    with tf.variable_creator_scope(make_variable):
        yield made


def _names(variables: Iterable[tf.Variable]) -> list[str]:
    return [variable.name.removesuffix(":0") for variable in variables]
