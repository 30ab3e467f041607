"""Exports a trained policy as a SavedModel and as ONNX, and compares both with its network.

Both have the input `observation` `[B, ...]` and the output `action`, `[B]` or `[B, D]`, in the
units and the dtype of the environment's action space; those of Ape-X DQN also have `q_values`,
those of A2C and A3C `logits`, both `[B, A]`. Where some actions are not legal, there is an input
`action_mask` int8 `[B, A]`, 1 for those that are. A policy with memory has an input `state_0`,
`state_1` ... `[B, ...]` for each part of its state, and an output `next_state_0` ... for the next
call; one that sees rewards has an input `reward` `[B]`. B is free. `describe` has the shapes, and
the state that begins an episode.
"""

import collections
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from apex_agents.environments import (
    Actions,
    BoxActions,
    CombinedActions,
    DiscreteActions,
    EnvironmentConfig,
    MaskedObservationSpec,
    draw_actions,
    has_mask,
    without_mask,
)
from apex_agents.environments.atari import emulator_settings, rom_name
from apex_agents.legal_actions import is_legal
from apex_agents.loading import TrainedPolicy
from apex_agents.networks.torsos import PixelConv2D
from apex_agents.registry import find_agent
from apex_agents.runs.files import remove

_OPSET = 17  # The newest one that all of tf2onnx's converters know.
# Greatest difference from the network, absolute, or relative to the greatest output if that is more
# than 100: float32 has seven digits.
_TOLERANCE, _RELATIVE_TOLERANCE = 1e-4, 1e-6


class ExportError(ValueError):
    """An export cannot be made, or does not compute what the network computes."""


def record_observations(
    policy: TrainedPolicy, num_steps: int = 200, num_envs: int = 1, seed: int = 0
) -> np.ndarray:
    """Play in environments of a run and return all observations, `[N, ...]`.

    Half of the actions are random, so that the policy sees more than its own path.
    """
    random = np.random.default_rng(seed)
    with contextlib.closing(policy.make_environment(num_envs, seed)) as environment:
        timestep = environment.reset()
        observations = [timestep.observation]
        for _ in range(num_steps):
            actions = policy.act_at(timestep)
            is_random = random.random(num_envs) < 0.5
            numbers = draw_actions(policy.spec, timestep.observation, random)
            drawn = policy.actions.to_environment(numbers)
            actions[is_random] = drawn[is_random]
            timestep = environment.step(actions)
            observations.append(timestep.observation)
    return np.concatenate(observations)


def describe(policy: TrainedPolicy) -> dict[str, Any]:
    """Return the facts with which a program uses an export; docs/how_to/export.md explains them."""
    environment, action = policy.config.environment, policy.actions.environment_spec
    observations = without_mask(policy.spec).observations
    described = {
        "agent": find_agent(policy.config.agent),
        "parameters": policy.path.stem,
        "learner_steps": policy.learner_steps,
        "environment": dataclasses.asdict(environment),
        "gymnasium": _gymnasium_environment(environment),
        "action_repeat": environment.num_repeats,
        "observation": {"shape": list(observations.shape), "dtype": str(observations.dtype)},
        "action": {
            "shape": list(action.shape),
            "dtype": str(action.dtype),
            "low": action.minimum.tolist(),
            "high": action.maximum.tolist(),
        },
    }
    if not isinstance(policy.actions, BoxActions):
        output = {"shape": [policy.actions.num_values], "dtype": "float32"}
        described[policy.greedy.output_name] = output
    if has_mask(policy.spec):
        described["action_mask"] = {"shape": [policy.actions.num_values], "dtype": "int8"}
    described["memory"] = memory = {}
    if policy.greedy.sees_reward:
        memory["reward"] = {"shape": [], "dtype": "float32", "initial": 0.0}
    for name, part in _name_state(policy.greedy.initial_state(1)).items():
        shape, initial = part.shape[1:].as_list(), part[0].numpy().tolist()
        memory[name] = {"shape": shape, "dtype": part.dtype.name, "initial": initial}
    return described


def _gymnasium_environment(config: EnvironmentConfig) -> dict[str, Any] | None:
    """Return the arguments of `gymnasium.make_vec` for the environment; None if it has no id."""
    if config.suite == "atari":
        game = rom_name(config.task).title().replace("_", "")
        return {"id": f"ale_py:ALE/{game}-v5", **emulator_settings(config.atari, evaluation=True)}
    if config.suite != "gymnasium":
        return None
    limit = config.max_episode_steps
    limits = {} if limit is None else {"max_episode_steps": limit}
    return {"id": config.task, **config.kwargs, **config.evaluation_kwargs, **limits}


def export_saved_model(
    policy: TrainedPolicy, path: pathlib.Path, observations: np.ndarray
) -> float:
    """Write a SavedModel, read it and return its greatest difference from the network.

    Args:
      policy: policy to export.
      path: folder of the SavedModel.
      observations: observations to compare the outputs for, `[N, ...]`.

    Raises:
      ExportError: the difference is too great.
      OSError: the files cannot be written.
    """
    module = tf.Module()
    module.network = policy.network
    module.evaluate = _make_function(policy)
    partial = path.with_name(f"{path.name}.partial")
    remove(partial)  # Left by an export that was killed.
    try:
        try:
            tf.saved_model.save(module, str(partial), signatures=module.evaluate)
        except tf.errors.OpError as error:
            raise OSError(f"{path} cannot be written: {error.message}") from error
        except (TypeError, ValueError) as error:  # Raised by the code of a network.
            problem = f"the network needs a known number of observations: {error}"
            raise ExportError(problem) from error
        signature = tf.saved_model.load(str(partial)).signatures["serving_default"]

        def evaluate(inputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
            return {name: output.numpy() for name, output in signature(**inputs).items()}

        difference = _greatest_difference(policy, evaluate, observations)
        remove(path)
        partial.rename(path)
    finally:
        remove(partial)
    return difference


def export_onnx(policy: TrainedPolicy, path: pathlib.Path, observations: np.ndarray) -> float:
    """Write an ONNX file and return its greatest difference from the network.

    Args:
      policy: policy to export.
      path: path of the file.
      observations: observations to compare the outputs for, `[N, ...]`.

    Raises:
      ImportError: the packages of the extra `export` cannot be imported.
      ExportError: the network has an operation that ONNX has not, or the difference is too great.
      OSError: the file cannot be written.
    """
    try:
        import onnxruntime
        import tf2onnx
    # An onnx after 1.18 asks for data types that the ml_dtypes of TensorFlow 2.15 has not.
    except AttributeError as error:
        raise ImportError(str(error)) from error
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    try:
        with _without_bitcasts(policy.network):
            function = _make_function(policy)
            model, _ = tf2onnx.convert.from_function(
                function, function.input_signature, opset=_OPSET
            )
        content = model.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except Exception as error:  # Raised by tf2onnx, onnxruntime or the code of a network.
        raise ExportError(f"the network cannot be written as ONNX: {error}") from error

    def evaluate(inputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        names = [output.name for output in session.get_outputs()]
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return dict(zip(names, session.run(names, arrays), strict=True))

    difference = _greatest_difference(policy, evaluate, observations)
    path.write_bytes(content)
    return difference


def _make_function(policy: TrainedPolicy) -> Any:
    """Return a function with one signature, from the inputs to outputs by name."""
    greedy, spec = policy.greedy, policy.spec.observations
    observed = [("observation", spec)]
    if isinstance(spec, MaskedObservationSpec):
        mask = tf.TensorSpec([policy.actions.num_values], tf.int8)
        observed = [("observation", spec.unmasked), ("action_mask", mask)]

    def evaluate(*inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        parts, rest = inputs[: len(observed)], inputs[len(observed) :]
        joined = parts[0]
        if len(parts) > 1:
            joined = tf.concat([snt.flatten(joined), tf.cast(parts[1], joined.dtype)], axis=1)
        output, next_state = greedy.evaluate(joined, *rest)
        outputs = {greedy.output_name: output, "action": _to_action(policy.actions, output)}
        return {**outputs, **_name_state(next_state, "next_state")}

    signature = [
        *(tf.TensorSpec([None, *part.shape], part.dtype, name) for name, part in observed),
        *([tf.TensorSpec([None], tf.float32, "reward")] if greedy.sees_reward else []),
        *(
            tf.TensorSpec([None, *part.shape[1:]], part.dtype, name)
            for name, part in _name_state(greedy.initial_state(1)).items()
        ),
    ]
    return tf.function(evaluate, signature, autograph=False)


def _name_state(state: Sequence[tf.Tensor], name: str = "state") -> dict[str, tf.Tensor]:
    return {f"{name}_{index}": part for index, part in enumerate(state)}


def _to_action(actions: Actions, output: tf.Tensor) -> tf.Tensor:
    """Return the environment's action for the output of a network; see `Actions.to_environment`."""
    spec = actions.environment_spec
    if isinstance(actions, CombinedActions):
        # ONNX has no operation that takes such numbers apart.
        rest, numbers = tf.argmax(output, axis=-1), list[tf.Tensor]()
        for size in reversed(actions.sizes):
            numbers.insert(0, rest % size)
            rest //= size
        action = tf.reshape(tf.stack(numbers, axis=-1), [-1, *spec.shape]) + spec.minimum
    elif isinstance(actions, DiscreteActions):
        action = tf.argmax(output, axis=-1) + int(spec.minimum)
    else:
        bounds = [tf.cast(bound, tf.float64) for bound in (actions.space.low, actions.space.high)]
        scaled = actions.middle + actions.radius * tf.cast(output, tf.float64)
        action = tf.clip_by_value(scaled, *bounds)
    return tf.cast(action, spec.dtype)


@contextlib.contextmanager
def _without_bitcasts(network: snt.Module) -> Iterator[None]:
    """Let convolutions over frames move them by operations that ONNX has."""
    layers = [module for module in network.submodules if isinstance(module, PixelConv2D)]
    functions = [layer.split_into_cells for layer in layers]
    for layer in layers:
        layer.split_into_cells = _split_by_transposition
    try:
        yield
    finally:
        for layer, function in zip(layers, functions, strict=True):
            layer.split_into_cells = function


def _split_by_transposition(frames: tf.Tensor) -> tf.Tensor:
    """Do the same as `PixelConv2D.split_into_cells`, moving single bytes."""
    _, stack, height, width = frames.shape
    cells = tf.reshape(frames, [-1, stack, height // 4, 4, width // 4, 4])
    cells = tf.transpose(cells, [0, 2, 4, 1, 3, 5])
    return tf.reshape(cells, [-1, height // 4, width // 4, stack * 16])


def _greatest_difference(
    policy: TrainedPolicy,
    evaluate: Callable[[Mapping[str, tf.Tensor]], Mapping[str, np.ndarray]],
    observations: np.ndarray,
) -> float:
    """Compare the outputs for all observations at once, and for a single one.

    A policy with memory is also compared at the second step of an episode.
    """
    greedy, name = policy.greedy, policy.greedy.output_name
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = collections.defaultdict(list)
    spec = policy.spec.observations
    for batch in (observations, observations[:1]):
        state = greedy.initial_state(len(batch))
        for _ in range(2 if state else 1):
            arrays = {"observation": batch}
            if isinstance(spec, MaskedObservationSpec):
                arrays = dict(zip(("observation", "action_mask"), spec.split(batch), strict=True))
            inputs = {part: tf.convert_to_tensor(array) for part, array in arrays.items()}
            rewards = {}
            if greedy.sees_reward:
                rewards["reward"] = tf.random.stateless_normal([len(batch)], seed=[0, 0])
            found = evaluate({**inputs, **rewards, **_name_state(state)})
            output, state = greedy.evaluate(tf.convert_to_tensor(batch), *rewards.values(), *state)
            expected = {name: output.numpy(), **_name_state(state, "next_state")}
            if name == "action":
                expected[name] = policy.actions.to_environment(expected[name])
            elif not np.array_equal(
                found["action"], policy.actions.to_environment(found[name].argmax(axis=-1))
            ):
                raise ExportError(f"action is not that of the greatest of {name}.")
            for each, values in expected.items():
                pairs[each].append((found[each], np.asarray(values)))
    return max(
        check_difference(each, found, _TOLERANCE, _RELATIVE_TOLERANCE)
        for each, found in pairs.items()
    )


def check_difference(
    name: str,
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    tolerance: float,
    relative_tolerance: float,
) -> float:
    """Return the greatest difference of outputs from those of the network, or raise an ExportError.

    Args:
      name: name of the outputs.
      pairs: outputs, and those of the network for the same observations, `[...]` each.
      tolerance: greatest difference that is allowed.
      relative_tolerance: the same as a part of the network's greatest output, if that is more.
    """
    # What stands for actions that are not legal would make every difference a small one.
    pairs = [(_without_illegal(found), _without_illegal(expected)) for found, expected in pairs]
    difference = float(np.max([np.abs(found - expected).max() for found, expected in pairs]))
    greatest = float(np.max([np.abs(expected).max() for _, expected in pairs]))
    allowed = max(tolerance, relative_tolerance * greatest)
    if not difference <= allowed:
        raise ExportError(
            f"{name} differ from those of the network by up to {difference:.1e}, more than "
            f"{allowed:.1e}."
        )
    return difference


def _without_illegal(output: np.ndarray) -> np.ndarray:
    return np.where(is_legal(output) | np.isnan(output), output, 0)
