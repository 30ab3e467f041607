"""Exports a trained policy as a SavedModel and as ONNX, and compares both with its network.

Both have one input, `observation` `[B, ...]`, and one output, `q_values` `[B, A]` (Ape-X DQN) or
`action` `[B, D]` in [-1, 1] (Ape-X DPG) or `logits` `[B, A]` (A2C, A3C). B is free.
"""

import contextlib
import dataclasses
import logging
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.environments import EnvironmentConfig
from apex_agents.environments.atari import emulator_settings
from apex_agents.environments.atari_config import rom_name
from apex_agents.loading import TrainedPolicy
from apex_agents.networks.pixel_convolution import PixelConv2D
from apex_agents.registry import find_agent

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
        observations = [environment.reset().observation]
        for _ in range(num_steps):
            actions = policy.act(observations[-1])
            is_random = random.random(num_envs) < 0.5
            actions[is_random] = _random_actions(policy.spec.actions, num_envs, random)[is_random]
            observations.append(environment.step(actions).observation)
    return np.concatenate(observations)


def _random_actions(
    spec: specs.BoundedArray, num_envs: int, random: np.random.Generator
) -> np.ndarray:
    if isinstance(spec, specs.DiscreteArray):
        return random.integers(spec.num_values, size=num_envs)
    return random.uniform(spec.minimum, spec.maximum, [num_envs, *spec.shape])


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
    shutil.rmtree(partial, ignore_errors=True)  # Of an export that was killed.
    try:
        tf.saved_model.save(module, str(partial), signatures=module.evaluate)
    except tf.errors.OpError as error:
        raise OSError(f"{path} cannot be written: {error.message}") from error
    except (TypeError, ValueError) as error:  # Of the code of a network.
        raise ExportError(f"the network needs a known number of observations: {error}") from error
    signature = tf.saved_model.load(str(partial)).signatures["serving_default"]

    def evaluate(batch: np.ndarray) -> np.ndarray:
        return signature(observation=tf.constant(batch))[policy.output_name].numpy()

    try:
        difference = _greatest_difference(policy, evaluate, observations)
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
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
    except Exception as error:  # Of tf2onnx, of onnxruntime, or of the code of a network.
        raise ExportError(f"the network cannot be written as ONNX: {error}") from error

    def evaluate(batch: np.ndarray) -> np.ndarray:
        return session.run([policy.output_name], {"observation": batch})[0]

    difference = _greatest_difference(policy, evaluate, observations)
    path.write_bytes(content)
    return difference


def _make_function(policy: TrainedPolicy) -> Any:
    """Return a function with one signature, from `observation` to the policy's output by name."""
    spec = policy.spec.observations

    def evaluate(observation: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return {policy.output_name: policy.network(observation)}

    signature = [tf.TensorSpec([None, *spec.shape], spec.dtype, name="observation")]
    return tf.function(evaluate, signature, autograph=False)


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
    """Return what `PixelConv2D.split_into_cells` does, moving single bytes."""
    _, stack, height, width = frames.shape
    cells = tf.reshape(frames, [-1, stack, height // 4, 4, width // 4, 4])
    cells = tf.transpose(cells, [0, 2, 4, 1, 3, 5])
    return tf.reshape(cells, [-1, height // 4, width // 4, stack * 16])


def _greatest_difference(
    policy: TrainedPolicy, evaluate: Callable[[np.ndarray], np.ndarray], observations: np.ndarray
) -> float:
    """Compare the outputs for all observations at once, and for a single one."""
    batches = [observations, observations[:1]]
    outputs = [policy.network(tf.convert_to_tensor(batch)).numpy() for batch in batches]
    pairs = zip(batches, outputs, strict=True)
    difference = float(np.max([np.abs(evaluate(batch) - output).max() for batch, output in pairs]))
    tolerance = max(_TOLERANCE, _RELATIVE_TOLERANCE * float(np.abs(outputs[0]).max()))
    if not difference <= tolerance:
        raise ExportError(
            f"{policy.output_name} differ from those of the network by up to {difference:.1e}, "
            f"more than {tolerance:.1e}."
        )
    return difference


def describe(policy: TrainedPolicy) -> dict[str, Any]:
    """Return what a program needs to act with an export, as JSON values."""
    config, (observations, actions, *_) = policy.config, policy.spec
    is_discrete = isinstance(actions, specs.DiscreteArray)
    return {
        "agent": find_agent(config.agent),
        "parameters": policy.path.stem,
        "learner_steps": policy.learner_steps,
        "environment": dataclasses.asdict(config.environment),
        "gymnasium": _gymnasium_environment(config.environment),
        "action_repeat": config.environment.action_repeat,  # Beside what that does itself.
        "observation": {
            "shape": list(observations.shape),
            "dtype": str(observations.dtype),
            "meaning": _meaning_of_observations(config.environment),
        },
        policy.output_name: {
            "shape": [actions.num_values] if is_discrete else list(actions.shape),
            "dtype": "float32",
            "meaning": _MEANINGS[policy.output_name] + _held(config.environment),
        },
    }


def _gymnasium_environment(config: EnvironmentConfig) -> dict[str, Any] | None:
    """Return the arguments of `gymnasium.make_vec` for the environment; None if it has no id."""
    if config.suite == "atari":
        game = rom_name(config.task).title().replace("_", "")
        return {"id": f"ALE/{game}-v5", **emulator_settings(config.atari, evaluation=True)}
    if config.suite != "gymnasium":
        return None
    limit = config.max_episode_steps
    limits = {} if limit is None else {"max_episode_steps": limit}
    return {"id": config.task, **config.kwargs, **config.evaluation_kwargs, **limits}


def _held(config: EnvironmentConfig) -> str:
    repeat = config.action_repeat
    return f"; an action is held for {repeat} environment steps" if repeat > 1 else ""


def _meaning_of_observations(config: EnvironmentConfig) -> str:
    if config.suite != "atari":
        return (
            "what the environment returns, converted to this shape and dtype; one of a Dict, a "
            "Tuple or a discrete space is flattened as gymnasium.spaces.flatten does"
        )
    atari = config.atari
    lives = (
        "; after the loss of a life action 0 is taken once, and frames from before that are black"
        if atari.life_loss_ends_episode
        else ""
    )
    return (
        f"the last {atari.frame_stack} grey images, oldest first, black before an episode's first; "
        f"each is the maximum of the last two of {atari.action_repeat} frames, scaled to "
        f"{atari.frame_size} x {atari.frame_size} pixels{lives}"
    )


_ACT = (
    "act with the index of the greatest, plus the first value (`start`) of the environment's "
    "action space"
)
_MEANINGS = {
    "q_values": f"value of each action; {_ACT}",
    "logits": f"logarithm of each action's probability, up to a constant; {_ACT}",
    "action": "action in [-1, 1], to be scaled linearly to the bounds of the environment's action "
    "space",
}
