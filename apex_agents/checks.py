"""Checks a run before it starts a node: limits, environment, user-defined networks and updates."""

import contextlib
import functools
import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

import dm_env
import numpy as np
import tensorflow as tf

from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.builder import ApexBuilder, Builder
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.environments import (
    EnvironmentSpec,
    MaskedObservationSpec,
    VectorEnvironment,
    draw_observations,
    find_spec_difference,
    has_mask,
    knows_evaluations,
    record_spec,
    restart_batch,
    without_mask,
)
from apex_agents.environments.conversion import describe_rounding
from apex_agents.environments.vector_environment import MAX_FAILURES_IN_A_ROW
from apex_agents.experiment import Experiment
from apex_agents.fields import with_fields
from apex_agents.networks import RunningNormalization
from apex_agents.networks.observations import is_image, part_name, part_specs
from apex_agents.networks.torso_choice import fit_torso
from apex_agents.process_state import restoring_process
from apex_agents.registry import STANDARD, make_builder
from apex_agents.replay.tables import DataFlow
from apex_agents.user_code import naming_errors
from apex_agents.waits import Wait, reporting_thread


@restoring_process()
def check_experiment(experiment: Experiment) -> EnvironmentSpec:
    """Return the environment's spec.

    Raises:
      ValueError: the run would end before it learns, the agent cannot learn in the environment, or
        user-defined networks or updates do not work.
    """
    check_limits(experiment.run, experiment.data_flow())
    spec = check_environment(experiment)
    settings = vars(experiment.config.agent) if experiment.config else {}
    if experiment.config:
        for warning in _find_warnings(experiment.config, spec):
            logging.warning("%s: %s", experiment.task, warning)
    named = [*settings.values(), *settings.get("part_torsos", {}).values()]
    if any(isinstance(value, str) and ":" in value for value in named):
        check_own_networks(experiment.builder, spec)
        if has_mask(spec):
            check_legal_actions(experiment.builder, spec)
    _check_update_of_workers(type(experiment.builder))
    if experiment.run.num_learners > 1:
        _check_statistics(experiment.builder, spec)
    if ":" in settings.get("builder", "") and isinstance(experiment.builder, ApexBuilder):
        check_own_update(experiment.builder, spec)
    return spec


def report_wait(name: str, wait: Wait) -> None:
    """Log a long wait."""
    logging.error("%s %s", name, wait)  # Warnings are off while an environment is tried.


@restoring_process()
@reporting_thread("The check before the run", report_wait)
def check_environment(experiment: Experiment) -> EnvironmentSpec:
    """Return the environment's spec; warn of numbers that agents cannot tell apart.

    A copy of the environment begins an episode, takes one step and is closed, and so does one for
    evaluations where they may have another one. While one of them hangs, this is logged.

    Raises:
      ValueError: the agent cannot learn in it, it fails, or evaluations have different specs.
    """
    check = experiment.builder.check_environment
    spec, observation = _try_environment(experiment, False, check)
    if rounding := describe_rounding(spec.observations, observation):
        logging.warning("%s: %s", experiment.task, rounding)
    config = experiment.config and experiment.config.environment
    if config and knows_evaluations(config):
        _try_environment(experiment, True, functools.partial(_require_same, spec))
    return spec


def _find_warnings(config: ExperimentConfig, spec: EnvironmentSpec) -> Iterator[str]:
    """Yield sentences on what makes learning hard with these settings."""
    if warning := torso_warning(config.agent, spec):
        yield warning
    agent: Any = config.agent
    is_fitted = getattr(agent, "torso", None) in ("auto", "mlp") and agent.builder == STANDARD
    if is_fitted and (warning := describe_unread_images(without_mask(spec), agent.part_torsos)):
        yield warning
    if warning := lives_warning(config):
        yield warning
    if config.environment.suite == "function" and "seed" in config.environment.kwargs:
        yield (
            "environment.kwargs.seed is the seed of all environments, so that they may repeat the "
            "same episodes; without it the run gives each a seed of its own."
        )


def torso_warning(config: Any, spec: EnvironmentSpec) -> str | None:
    """Return a warning if fully connected layers get images that convolutions would fit."""
    automatic = with_fields(config, torso="auto")
    if getattr(config, "torso", None) != "mlp" or fit_torso(automatic, spec).torso == "mlp":
        return None
    return (
        f"agent.torso is 'mlp', but observations are images {list(spec.observations.shape)}: with "
        "agent.torso='auto' they pass convolutions."
    )


def describe_unread_images(spec: EnvironmentSpec, own_parts: Collection[str] = ()) -> str:
    """Return a warning of observations that may be images, but are not uint8; '' without any.

    Args:
      spec: specification of one environment, without a mask.
      own_parts: names of the parts of observations that have torsos of the user.
    """
    for part in part_specs(spec):
        # Parts that are no images are flat.
        shape = getattr(part.observations, "space", part.observations).shape or ()
        if len(shape) > 2 and not is_image(part) and part_name(part) not in own_parts:
            return (
                f"observations {list(shape)} {part.observations.dtype} pass fully connected "
                "layers. If they are images, let their space be uint8: then they pass "
                "convolutions, and are stored once per step."
            )
    return ""


def lives_warning(config: ExperimentConfig) -> str | None:
    """Return a warning if a memory ends with each life in training, but not in evaluations."""
    environment = config.environment
    ends = environment.suite == "atari" and environment.atari.life_loss_ends_episode
    if not (ends and hasattr(config.agent, "core")):
        return None
    return (
        "with environment.atari.life_loss_ends_episode the memory of R2D2 ends with each life in "
        "training, but goes on in evaluations, whose returns say less: set it to False."
    )


def check_own_networks(builder: Builder, spec: EnvironmentSpec) -> None:
    """Let networks act once.

    Raises:
      ValueError: they cannot, or the value of an observation depends on the others of its batch.
    """
    observations = draw_observations(spec)
    with naming_errors("The agent's networks cannot act"):
        policy = builder.make_policy(spec, range(2), 2, 0)
        batches = [restart_batch(observations[rows]) for rows in ([0, 1], [0, 1], [0, 2])]
        values = [float(policy(batch).value[0]) for batch in batches]
    # Values of noisy networks differ in any case.
    if values[0] == values[1] and not np.isclose(values[0], values[2], rtol=1e-4, atol=0):
        raise ValueError(
            "The agent's networks give an observation a different value when the others of its "
            "batch change, as normalization over a batch does. Learner, actors and evaluations "
            "have batches of different sizes; use layer normalization."
        )


def check_legal_actions(builder: Builder, spec: EnvironmentSpec) -> None:
    """Let policies act where a single action is legal.

    Raises:
      ValueError: they take another one.
    """
    num_envs, num_actions = 32, spec.actions.num_values
    observations, legal = draw_observations(spec, num_envs), np.arange(num_envs) % num_actions
    observations[:, -num_actions:] = np.eye(num_actions)[legal]
    policies = (
        builder.make_policy(spec, range(num_envs), num_envs, 0),
        builder.make_evaluation_policy(spec, num_envs, 0),
    )
    for policy in policies:
        actions = policy(restart_batch(observations)).action
        if np.any(wrong := actions != legal):
            raise ValueError(
                f"The agent takes action {actions[wrong][0]} where only {legal[wrong][0]} is "
                "legal. Networks without the standard head put apex_agents.legal_actions."
                "LegalActions around their layers; policies draw among the actions whose values "
                "is_legal finds."
            )


def _check_update_of_workers(own: Any) -> None:
    """Raise a ValueError for a builder whose update the workers of A2C and A3C would not use."""
    ours = ActorCriticBuilder
    is_one = issubclass(own, ours) and own.make_network_update is ours.make_network_update
    if is_one and own.make_update is not ours.make_update:
        raise ValueError(
            f"{own.__name__} overrides make_update, which workers do not use; override "
            "make_network_update, with which workers and learners make their updates."
        )


def _check_statistics(builder: Builder, spec: EnvironmentSpec) -> None:
    """Raise a ValueError for networks with statistics that several learners would not keep."""
    networks = tf.nest.flatten(builder.make_networks(spec))
    if any(isinstance(m, RunningNormalization) for net in networks for m in net.submodules):
        raise ValueError(
            "The agent's networks have a RunningNormalization. Several learners cannot normalize "
            "observations: the parameter server, which publishes the statistics, sees none. Set "
            "run.num_learners=1, or let a wrapper of the environment scale them."
        )


def acts_as_standard(config: Any, spec: EnvironmentSpec) -> bool:
    """Return whether the builder that a config names evaluates the policy of the agent's own one.

    Both are asked: from one seed they have to make equal variables, to explore as much and to act
    equally.
    """
    if config.builder == STANDARD:
        return True
    standard = with_fields(config, builder=STANDARD)
    timestep = restart_batch(draw_observations(spec))
    num_envs, outcomes = len(timestep.observation), []
    for each in (config, standard):
        try:
            policy = make_builder(each).make_evaluation_policy(spec, num_envs, 0)
            explored, variables = policy.exploration, policy.variables
            arrays = [*policy(timestep)[:3], *tf.nest.flatten([{**explored}, {**variables}])]
        except Exception:  # The user's code may raise anything, and is then no standard one.
            return False
        outcomes.append([np.asarray(array) for array in arrays])
    own, expected = outcomes
    return len(own) == len(expected) and all(map(np.array_equal, own, expected))


def check_own_update(builder: ApexBuilder, spec: EnvironmentSpec) -> None:
    """Let a builder compile its update.

    Raises:
      ValueError: it cannot be compiled, or returns priorities of the wrong shape.
    """
    with naming_errors("The agent's update cannot be compiled"), _without_remarks():
        builder.compile_update(spec)


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Drop what is written to standard error: dm-tree's C++ remarks on sets in Sonnet's modules."""
    standard_error = os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


def _try_environment(
    experiment: Experiment, evaluation: bool, check: Callable[[EnvironmentSpec], None]
) -> tuple[EnvironmentSpec, np.ndarray]:
    """Return the spec of an environment, which `check` gets first, and its first observation."""
    with warnings.catch_warnings():  # The nodes make it too, and their warnings are logged.
        warnings.simplefilter("ignore")
        environment = experiment.make_vector_environment(1, 0, evaluation=evaluation)
    level = logging.root.manager.disable
    try:
        check(environment.spec)
        logging.disable(logging.WARNING)  # The error of the last attempt says it all.
        with naming_errors(f"{experiment.task} fails when it is reset"):
            observation = environment.reset().observation
        with naming_errors(f"{experiment.task} fails when it is stepped"):
            _step(environment, observation)
    finally:
        logging.disable(level)
        with naming_errors(f"{experiment.task} fails when it is closed"):
            environment.close()
    return environment.spec, observation


def _step(environment: VectorEnvironment, observation: np.ndarray) -> None:
    """Take the first step of an episode, with the legal action that is closest to 0."""
    actions, observed = cast(Any, environment.spec.actions), environment.spec.observations
    action = np.clip(np.zeros([1, *actions.shape]), actions.minimum, actions.maximum)
    for _ in range(MAX_FAILURES_IN_A_ROW):  # A failure begins another episode; the last one raises.
        if isinstance(observed, MaskedObservationSpec):
            action = observed.split(observation)[1].argmax(axis=1)
        timestep = environment.step(action.astype(actions.dtype))
        if timestep.step_type[0] != dm_env.StepType.FIRST:
            return
        observation = timestep.observation


def _require_same(trained: EnvironmentSpec, evaluated: EnvironmentSpec) -> None:
    difference = find_spec_difference(record_spec(trained), record_spec(evaluated))
    if difference is not None:
        name, training, evaluation = difference
        raise ValueError(
            f"In evaluations {name} are {evaluation}, in training they are {training}; the agent "
            "needs the same in both."
        )


def check_limits(run: RunConfig, flow: DataFlow) -> None:
    """Raise a ValueError if the run ends before the learner has taken a step."""
    limit = run.max_actor_steps
    if limit is not None and limit < flow.min_steps:
        raise ValueError(
            f"run.max_actor_steps is {limit}, but the learner starts at {flow.min_steps} "
            f"actor steps, by {flow.min_size_field}; raise the one or lower the other."
        )
    period = flow.items_per_step * flow.min_steps / flow.min_size
    if limit is not None and limit < period and flow.items_per_step_field:
        raise ValueError(
            f"run.max_actor_steps is {limit}, but a learner step is due every {period:,.0f} "
            f"actor steps, by {flow.items_per_step_field}; raise either."
        )
