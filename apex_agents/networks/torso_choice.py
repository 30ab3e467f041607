"""The torso of an agent: which built-in one fits the observations, and how a user's one is made.

Configs of agents with discrete actions have the fields `torso`, `frame_stack`, `conv_*` and
`mlp_hidden_sizes`. The mistakes in user-defined torsos that are found here would otherwise show in
the first learner step, or never: features of a wrong shape or dtype, variables that no gradient
reaches or that nothing would train or save.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec, has_mask, without_mask
from apex_agents.legal_actions import drop_masks
from apex_agents.networks.observations import has_images, is_image, part_specs
from apex_agents.networks.torsos import (
    DQN_CONVOLUTIONS,
    ConvTorso,
    PartsTorso,
    VectorTorso,
    fitting_convolutions,
)
from apex_agents.torso_config import CONV_FIELDS, TORSOS, require_torso
from apex_agents.user_code import find_function

# Gets the environment's spec and the agent's config; returns a module from observations `[B, ...]`
# to features `[B, F]` float32.
TorsoFn = Callable[[EnvironmentSpec, Any], tf.Module]

_AUTO = "auto"
_NEEDED = (
    "It has to return a new Sonnet module at each call, which maps observations [B, ...] to "
    "float32 features [B, F]."
)


def make_torso(
    config: Any,
    spec: EnvironmentSpec,
    observations: tf.Tensor,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> tf.Module:
    """Build a torso, from observations `[B, ...]` to features `[B, F]`.

    Args:
      config: settings of the agent.
      spec: specification of one environment.
      observations: two observations, `[2, ...]`, with which a user-defined torso is tried.
      dtype: dtype of the variables, unless the torso is user-defined.
      torso_fn: maker of the torso in place of the config's.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    if has_mask(spec):
        own, rest = drop_masks(observations, spec), without_mask(spec)
        torso = make_torso(config, rest, own, dtype, torso_fn)
        return snt.Sequential([lambda masked: drop_masks(masked, spec), torso])
    if is_own_torso(config.torso, torso_fn):
        return make_own_torso(config.torso, "agent.torso", torso_fn, spec, config, observations)
    require_torso(config.torso, "agent.torso", TORSOS)
    config = fit_torso(config, spec)
    if config.torso == "mlp":
        return VectorTorso(config.mlp_hidden_sizes, spec, dtype, name="torso")
    convolutions, hidden_sizes = DQN_CONVOLUTIONS, ()
    if config.torso == "conv":
        sizes = [getattr(config, name) for name in CONV_FIELDS]
        convolutions, hidden_sizes = tuple(zip(*sizes, strict=True)), config.mlp_hidden_sizes
    if part_specs(spec) != [spec]:
        return PartsTorso(convolutions, hidden_sizes, spec, dtype, name="torso")
    return ConvTorso(convolutions, hidden_sizes, spec, config.frame_stack, dtype, name="torso")


def fit_torso(config: Any, spec: EnvironmentSpec) -> Any:
    """Return the config of an agent with the torso that fits the observations in place of 'auto'.

    It is 'conv' for images and for a Dict or a Tuple with images, and 'mlp' for all else and for
    images that are too small. `fitting_convolutions` chooses the convolutions, unless the config
    changes the defaults of its class.
    """
    if getattr(config, "torso", None) != _AUTO:
        return config
    spec = without_mask(spec)
    config = copy.copy(config)  # A copy keeps attributes that are no fields, unlike `replace`.
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    fitting = fitting_convolutions(spec, _stack_size(config, spec))
    config.torso = "conv" if fitting else "mlp"
    if fitting and all(getattr(config, name) == defaults[name] for name in CONV_FIELDS):
        for name, values in zip(CONV_FIELDS, zip(*fitting, strict=True), strict=True):
            setattr(config, name, values)
    return config


def check_observations(config: Any, spec: EnvironmentSpec, torso_fn: TorsoFn | None) -> None:
    """Raise a ValueError that says what to set, unless torso and stack fit the observations."""
    spec = without_mask(spec)
    shape, dtype = spec.observations.shape, spec.observations.dtype
    stack, is_one_image = _stack_size(config, spec), is_image(spec)
    fits = config.frame_stack == stack
    given, advice, observed = "", "", f"{dtype} {shape}"
    if not is_own_torso(config.torso, torso_fn):
        torso, is_atari = fit_torso(config, spec).torso, is_one_image and shape[1:] == (84, 84)
        given, advice = f"agent.torso is {torso!r} and ", f"agent.torso={_AUTO!r}, "
        if has_images(spec) and not is_one_image:
            fits = fits and torso == "conv"
            shapes = [str(part.observations.shape) for part in part_specs(spec)]
            observed = f"parts {', '.join(shapes)} with images among them"
        elif torso == "conv":
            fits = fits and len(shape) - bool(stack) in (2, 3)
        if torso == "atari":
            fits = bool(stack) and is_atari
        # Three images may also be the colours of one, unless the config says that they are a stack.
        if (is_atari and shape[0] != 3) or (is_one_image and len(shape) == 4):
            stack = shape[0]
    if not fits:
        raise ValueError(
            f"{given}agent.frame_stack is {config.frame_stack}, but observations are {observed}: "
            f"set {advice}agent.frame_stack={stack}."
        )


def require_no_normalized_images(normalize_observations: bool, spec: EnvironmentSpec) -> None:
    """Raise a ValueError if observations are images, or have some, and are to be normalized."""
    spec = without_mask(spec)
    if normalize_observations and has_images(spec):
        shapes = [part.observations.shape for part in part_specs(spec) if is_image(part)]
        raise ValueError(
            "agent.normalize_observations is True, but observations are images of shape "
            f"{', '.join(map(str, shapes))}, which are scaled anyway; it has to be False."
        )


def _stack_size(config: Any, spec: EnvironmentSpec) -> int:
    """Return the number of frames in an observation, 0 if it is no stack of them."""
    shape = spec.observations.shape
    return config.frame_stack if len(shape) > 1 and shape[0] == config.frame_stack else 0


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
        line = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(f"{label} raises {type(error).__name__}: {line}. {_NEEDED}") from error


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
