"""Loads what a run has learned, to act with it; no program and no replay server is started."""

from __future__ import annotations

import os
import pathlib
from typing import Any, cast

import dm_env
import numpy as np
import tensorflow as tf
from dm_env import specs

from apex_agents.acting.policy import CompiledFunction
from apex_agents.checks import check_environment
from apex_agents.config import ExperimentConfig
from apex_agents.environments import (
    EnvironmentSpec,
    EnvironmentUnits,
    MaskedObservationSpec,
    VectorEnvironment,
    own_observations,
    record_spec,
)
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.registry import CONFIG_CLASSES
from apex_agents.runs.checkpoints import BEST, find_parameters
from apex_agents.runs.config_file import check_same_spec, read_config
from apex_agents.runs.parameter_file import assign, read_parameters
from apex_agents.validation import require


class TrainedPolicy:
    """The policy of a run, without exploration; made by `load`.

    Actions are those of the environment: numbers of a discrete space from its start, vectors
    within the bounds of a box, in the dtype of the space. Observations are what the environment
    itself returns, or what agents see of it, as `spec.observations` describes and
    `make_environment` returns it: one, or a batch of them with one more axis in front, of each part
    of a Dict or a Tuple. What is returned has that axis, too, or has not.

    Attributes:
      config: settings of the run.
      spec: specification of one environment as agents see it.
      actions: its specification of actions, which converts those of agents and environments.
      path: file or folder of the parameters.
      learner_steps: learner steps that led to the parameters.
      greedy: the policy as functions of tensors.
      variables: variables of all networks, by the name of the network.
      network: the network that acts, a module.
    """

    def __init__(self, experiment: Experiment, spec: EnvironmentSpec, path: pathlib.Path):
        """Build the policy of an experiment with a config, and read its parameters."""
        self.config, self.spec, self.path = cast(ExperimentConfig, experiment.config), spec, path
        self.actions: Any = spec.actions
        self.greedy = experiment.builder.make_greedy_policy(spec)
        self.variables = {name: net.variables for name, net in self.greedy.networks.items()}
        self.network, *_ = self.greedy.networks.values()
        parameters = read_parameters(path)
        assign(self.variables, parameters)
        self.learner_steps = parameters.learner_steps
        self._experiment = experiment
        self._own_observations = own_observations(cast(Any, spec.observations))
        self._evaluate = CompiledFunction(self.greedy.evaluate)
        self._state: tuple[tf.Tensor, ...] = ()
        self._num_rows = 0

    def act(self, observation: Any, reward: Any = None, action_mask: Any = None) -> Any:
        """Return the best action, one of the space, or those of a batch; remember the observation.

        Only a policy with memory remembers it. The memory begins anew when the number of
        observations changes.

        Args:
          observation: one observation, or a batch.
          reward: `[]` or `[B]`, which came with it; 0 at the first step of an episode. Only agents
            that see rewards need it.
          action_mask: mask of legal actions, as `info` of the environment has it, or one for each
            observation. Only agents of environments with masks in `info` need it.

        Raises:
          ValueError: the observation has the wrong shape or dtype, the agent needs a reward or a
            mask, or no action is legal.
        """
        batch, is_batch = self._to_batch(observation, action_mask)
        state = self._remembered(len(batch))
        output, self._state = self._evaluate(batch, *self._rewards(len(batch), reward), *state)
        output = output.numpy()
        is_action = self.greedy.output_name == "action"
        best = output if is_action else output.argmax(axis=-1)
        return self.actions.to_environment(best if is_batch else best[0])

    action = act

    def act_at(self, timestep: dm_env.TimeStep) -> np.ndarray:
        """Return the actions `[B]` or `[B, D]` for a time step of `make_environment`.

        Rows that are FIRST begin an episode.
        """
        is_first = np.asarray(timestep.step_type) == dm_env.StepType.FIRST
        self.reset(is_first)
        return self.act(timestep.observation, np.where(is_first, 0.0, timestep.reward))

    def reset(self, rows: np.ndarray | None = None) -> None:
        """Begin an episode: a policy with memory forgets what it remembers.

        Args:
          rows: `[B]` bool, the environments of a batch that begin an episode; None for all.

        Raises:
          ValueError: there are other numbers of rows and of observations that it remembers.
        """
        if rows is None:
            self._num_rows = 0
            return
        rows, num_rows = np.asarray(rows), self._num_rows
        is_mask = rows.dtype == bool and rows.ndim == 1
        fits = is_mask and (len(rows) == num_rows or not num_rows or bool(rows.all()))
        given = rows.tolist() if rows.ndim == 1 else f"{rows.dtype} {list(rows.shape)}"
        of_batch = f"one bool for each of the {num_rows} observations of the last call"
        require(fits, "rows", given, of_batch if num_rows else "a bool for each observation")
        state, initial = self._remembered(len(rows)), self.greedy.initial_state(len(rows))
        self._state = tuple(
            tf.where(np.reshape(rows, [-1] + [1] * (new.shape.rank - 1)), new, old)
            for new, old in zip(initial, state, strict=True)
        )

    def q_values(self, observation: Any, reward: Any = None, action_mask: Any = None) -> np.ndarray:
        """Return the values of all actions, `[A]` or `[B, A]`; raises as `output` does.

        With memory they are those before `act` for the same observation, which remembers it.
        """
        return self.output("q_values", observation, reward, action_mask)

    def logits(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Return the logits of all actions, `[A]` or `[B, A]`; raises as `output` does."""
        return self.output("logits", observation, action_mask=action_mask)

    def output(
        self, name: str, observation: Any, reward: Any = None, action_mask: Any = None
    ) -> np.ndarray:
        """Return the output of the network for an observation, or a batch; nothing is remembered.

        That of an action which is not legal is -1e30.

        Raises:
          ValueError: the agent has no output of that name, the observation does not fit, or the
            agent needs a reward, as `act` does.
        """
        require(name == self.greedy.output_name, "output", name, repr(self.greedy.output_name))
        batch, is_batch = self._to_batch(observation, action_mask)
        is_same_batch = len(batch) == self._num_rows
        state = self._state if is_same_batch else self.greedy.initial_state(len(batch))
        output, _ = self._evaluate(batch, *self._rewards(len(batch), reward), *state)
        return output.numpy() if is_batch else output[0].numpy()

    def value(self, observation: Any, action: Any = None, action_mask: Any = None) -> np.ndarray:
        """Return v(s) of A2C and A3C, q(s, a) of Ape-X DPG, `[]` or `[B]`.

        Args:
          observation: one observation, or a batch.
          action: actions `[D]` or `[B, D]` of the environment, for Ape-X DPG only.
          action_mask: as `act` takes it.

        Raises:
          ValueError: observations or actions do not have the environment's shapes or dtypes, their
            numbers differ, an action is missing or too much, or the agent has values of actions
            instead, `q_values`.
        """
        if self.greedy.value is None:
            raise ValueError(f"The agent has no value; it has {self.greedy.output_name}.")
        needs_action = self.greedy.output_name == "action"
        if needs_action != (action is not None):
            given = "an action was" if action is not None else "no action was"
            needed = "an observation and an action" if needs_action else "an observation alone"
            raise ValueError(f"{given} given; the agent has values of {needed}.")
        observations, is_batch = self._to_batch(observation, action_mask)
        actions = None
        if action is not None:
            actions, _ = _to_batch("action", action, self.actions.environment_spec)
            if len(observations) != len(actions):
                counts = f"{len(actions)} actions do not fit {len(observations)}"
                raise ValueError(f"{counts} observations.")
            actions = tf.convert_to_tensor(self.actions.to_agent(actions))
        values = self.greedy.value(tf.convert_to_tensor(observations), actions).numpy()
        return values if is_batch else values[0]

    def make_environment(
        self, num_envs: int = 1, seed: int = 0, *, evaluation: bool = True, num_rendered: int = 0
    ) -> VectorEnvironment:
        """Make environments of the run; see `environments.make_vector_environment`.

        They are stepped with actions as `act` returns them.
        """
        environment = self._experiment.make_vector_environment(
            num_envs, seed, evaluation=evaluation, num_rendered=num_rendered
        )
        return cast(VectorEnvironment, EnvironmentUnits(environment))

    def _remembered(self, num_rows: int) -> tuple[tf.Tensor, ...]:
        if num_rows != self._num_rows:
            self._num_rows, self._state = num_rows, self.greedy.initial_state(num_rows)
        return self._state

    def _rewards(self, num_rows: int, reward: Any) -> tuple[np.ndarray, ...]:
        """Return the rewards `[B]` of a batch where the agent sees them; else nothing."""
        if not self.greedy.sees_reward:
            return ()
        is_finite = reward is not None and bool(np.isfinite(reward).all())
        require(is_finite, "reward", reward, "what came with the observation, or 0")
        return (np.array(np.broadcast_to(np.asarray(reward, np.float32), [num_rows])),)

    def _to_batch(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        """Return observations as agents see them, as a batch, and whether they were one."""
        spec: Any = self.spec.observations
        needs_mask = isinstance(spec, MaskedObservationSpec) and spec.in_info
        if needs_mask and _is_seen(observation, spec):
            needs_mask = action_mask is not None
        allowed = f"what info has as {spec.mask!r}" if needs_mask else "left out"
        require(needs_mask == (action_mask is not None), "action_mask", action_mask, allowed)
        plain = spec.unmasked if needs_mask else spec
        own = None
        if not _is_seen(observation, plain):
            own = self._own_observations.convert(observation)
        batch, is_batch = _to_batch("observation", observation, plain) if own is None else own
        if not np.isfinite(batch).all():
            raise ValueError("observation is not finite.")
        if needs_mask:
            masks: Any = action_mask if is_batch else [action_mask]
            number = len(masks) if hasattr(masks, "__len__") else 0
            each = f"one for each of the {len(batch)} observations"
            require(number == len(batch), "len(action_mask)", number, each)
            legal = np.stack([spec.actions.to_mask(mask) for mask in masks])
            require(bool(legal.any(axis=1).all()), "action_mask", action_mask, "1 for an action")
            batch = spec.join(batch, legal)
        return batch, is_batch


def _is_seen(observation: Any, spec: specs.Array) -> bool:
    """Return whether an array has the shape and the dtype of agents' observations, or a batch."""
    is_array = isinstance(observation, np.ndarray) and observation.dtype == spec.dtype
    return is_array and observation.shape[-len(spec.shape) :] == spec.shape


def load(
    run_folder: str | os.PathLike[str], checkpoint: str | os.PathLike[str] = BEST
) -> TrainedPolicy:
    """Load the policy of a run, which may still be running.

    Args:
      run_folder: folder of the run.
      checkpoint: 'best' for the parameters of the best evaluation, 'last' for the newest ones, the
        name of a learner checkpoint ('learner-1234' is enough), or the path of a learner checkpoint
        or an `.npz` file.

    Raises:
      ValueError: the folder holds no run that can be read, there are no such parameters, they are
        not those of the run's networks, its builder makes no trained policy, or its environment
        cannot be made or has a different spec than when the run started.
    """
    workdir = pathlib.Path(os.path.expanduser(run_folder)).absolute()
    config = read_config(workdir, list(CONFIG_CLASSES.values()))
    path = find_parameters(workdir, os.path.expanduser(checkpoint))
    experiment = make_experiment(config)
    if not hasattr(experiment.builder, "make_greedy_policy"):
        kind = type(experiment.builder).__name__
        raise ValueError(
            f"{kind} has no make_greedy_policy, which makes a trained policy: add this method, or "
            "derive the builder from one of apex_agents."
        )
    spec = check_environment(experiment)
    check_same_spec(workdir, record_spec(spec))
    return TrainedPolicy(experiment, spec, path)


def _to_batch(name: str, value: Any, spec: specs.Array) -> tuple[np.ndarray, bool]:
    """Return a value as a batch, and whether it was one."""
    try:
        array = np.asarray(value)
    except ValueError:  # A tuple of arrays of different shapes.
        array = np.asarray(None)
    is_batch = array.ndim > len(spec.shape)
    shape = array.shape[1:] if is_batch else array.shape
    # Numbers of any kind become floats, but no floats become the bytes of an image.
    if shape != spec.shape or not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        is_array = array.dtype != np.object_
        given = f"{array.dtype} {list(array.shape)}" if is_array else f"a {type(value).__name__}"
        space = " ".join(str(getattr(spec, "space", "")).split())
        own = f"one of the environment's {name} space, {space}, or " if space else ""
        raise ValueError(
            f"{name} is {given}; it has to be {own}{spec.dtype} {list(spec.shape)}, or a batch."
        )
    return array.astype(spec.dtype, copy=False).reshape([-1, *spec.shape]), is_batch
