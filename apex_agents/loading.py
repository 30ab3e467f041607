"""Loads what a run has learned, to act with it; no program and no replay server is started."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.acting.policy import CompiledFunction
from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.networks import ActorCriticNetwork, PolicyLogits
from apex_agents.checks import check_environment
from apex_agents.config import ExperimentConfig
from apex_agents.dpg.networks import DPGNetworks
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import (
    EnvironmentSpec,
    EnvironmentUnits,
    OwnObservations,
    VectorEnvironment,
    record_spec,
)
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.registry import CONFIG_CLASSES
from apex_agents.runs.checkpoints import BEST, find_parameters
from apex_agents.runs.config_file import check_same_spec, read_config
from apex_agents.runs.parameter_file import load_into


class _Policy:
    """What the policies of all agents have in common.

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
      variables: variables of all networks, by the name of the network.
      network: module from observations `[B, ...]` to what `output_name` says.
      output_name: 'q_values', `[B, A]`, for Ape-X DQN; 'action', `[B, D]`, for Ape-X DPG;
        'logits', `[B, A]`, for A2C and A3C. Actions of Ape-X DPG are in [-1, 1] there.
    """

    output_name: str

    def __init__(self, run: _Run, networks: Mapping[str, snt.Module], path: pathlib.Path):
        """Load parameters into networks, the one that acts first; use `load`."""
        self.config, self._experiment, self.spec = run
        self.actions: Any = self.spec.actions
        observations: Any = self.spec.observations
        self._own_observations = OwnObservations(observations)
        self.path = path
        self.variables = {name: net.variables for name, net in networks.items()}
        self.learner_steps = load_into(self.variables, path)
        self.network, *_ = networks.values()
        self._evaluate = CompiledFunction(self.network)

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

    def _output(self, observation: Any) -> np.ndarray:
        batch, is_batch = self._to_batch(observation)
        output = self._evaluate(batch).numpy()
        return output if is_batch else output[0]

    def _to_batch(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Return observations as agents see them, as a batch, and whether they were one."""
        spec = self.spec.observations
        is_seen = isinstance(observation, np.ndarray) and observation.dtype == spec.dtype
        own = None
        if not (is_seen and observation.shape[-len(spec.shape) :] == spec.shape):
            own = self._own_observations.convert(observation)
        batch, is_batch = _to_batch("observation", observation, spec) if own is None else own
        if not np.isfinite(batch).all():
            raise ValueError("observation is not finite.")
        return batch, is_batch


class TrainedDQN(_Policy):
    """The greedy policy of a run of Ape-X DQN."""

    output_name = "q_values"

    def act(self, observation: Any) -> np.ndarray:
        """Return the action with the highest value, `[]` or `[B]`.

        Raises:
          ValueError: the observation has the wrong shape or dtype.
        """
        return self.actions.to_environment(self.q_values(observation).argmax(axis=-1))

    def q_values(self, observation: Any) -> np.ndarray:
        """Return the values of all actions, `[A]` or `[B, A]`; raises as `act` does."""
        return self._output(observation)


class TrainedDPG(_Policy):
    """The policy of a run of Ape-X DPG, without noise."""

    output_name = "action"

    def __init__(self, run: _Run, networks: DPGNetworks, path: pathlib.Path):
        """Load parameters into the networks; use `load`."""
        super().__init__(run, networks._asdict(), path)
        self._critic = networks.critic

    def act(self, observation: Any) -> np.ndarray:
        """Return the action, `[D]` or `[B, D]`, within the environment's bounds.

        Raises:
          ValueError: the observation has the wrong shape or dtype.
        """
        return self.actions.to_environment(self._output(observation))

    action = act

    def value(self, observation: Any, action: Any) -> np.ndarray:
        """Return q(s, a), `[]` or `[B]`, for actions `[D]` or `[B, D]` of the environment.

        Raises:
          ValueError: observations or actions have other shapes or dtypes than the environment's, or
            their numbers differ.
        """
        observations, is_batch = self._to_batch(observation)
        actions, _ = _to_batch("action", action, self.actions.environment_spec)
        actions = self.actions.to_agent(actions)
        if len(observations) != len(actions):
            raise ValueError(f"{len(actions)} actions do not fit {len(observations)} observations.")
        values = self._critic(*map(tf.convert_to_tensor, (observations, actions))).numpy()
        return values if is_batch else values[0]


class TrainedActorCritic(_Policy):
    """The policy of a run of A2C or A3C."""

    output_name = "logits"

    def __init__(self, run: _Run, network: ActorCriticNetwork, path: pathlib.Path):
        """Load parameters into the network; use `load`."""
        super().__init__(run, {"network": network}, path)
        self._policy_and_value = network
        self.network = PolicyLogits(network)
        self._evaluate = CompiledFunction(self.network)

    def act(self, observation: Any) -> np.ndarray:
        """Return the most likely action, `[]` or `[B]`.

        Raises:
          ValueError: the observation has the wrong shape or dtype.
        """
        return self.actions.to_environment(self.logits(observation).argmax(axis=-1))

    def logits(self, observation: Any) -> np.ndarray:
        """Return the policy's logits, `[A]` or `[B, A]`; raises as `act` does."""
        return self._output(observation)

    def value(self, observation: Any) -> np.ndarray:
        """Return v(s), `[]` or `[B]`; raises as `act` does."""
        batch, is_batch = self._to_batch(observation)
        values = self._policy_and_value(tf.convert_to_tensor(batch)).value.numpy()
        return values if is_batch else values[0]


TrainedPolicy = TrainedDQN | TrainedDPG | TrainedActorCritic


class _Run(NamedTuple):
    config: ExperimentConfig
    experiment: Experiment
    spec: EnvironmentSpec


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
        not those of the run's networks, or the run's environment cannot be made or has a
        different spec than when the run started.
    """
    workdir = pathlib.Path(os.path.expanduser(run_folder)).absolute()
    config = read_config(workdir, list(CONFIG_CLASSES.values()))
    path = find_parameters(workdir, os.path.expanduser(checkpoint))
    experiment = make_experiment(config)
    run = _Run(config, experiment, check_environment(experiment))
    check_same_spec(workdir, record_spec(run.spec))
    networks: Any = experiment.builder.make_networks(run.spec)
    if isinstance(config.agent, ApexDQNConfig):
        return TrainedDQN(run, {"network": networks}, path)
    if isinstance(config.agent, ActorCriticConfig):
        return TrainedActorCritic(run, networks, path)
    return TrainedDPG(run, networks, path)


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
