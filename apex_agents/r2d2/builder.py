"""R2D2 among the agents with prioritized replay: which parts are its own."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from apex_agents.acting.policy import (
    GreedyPolicy,
    make_evaluation_policy,
    make_exploring_policy,
)
from apex_agents.acting.sequence_adder import ActedStep, SequenceAdder
from apex_agents.builder import Algorithm, ApexBuilder
from apex_agents.environments import EnvironmentSpec, require_discrete_actions
from apex_agents.networks.torso_choice import check_observations, require_no_normalized_images
from apex_agents.own_torso import TorsoFn, is_own_torso
from apex_agents.r2d2.config import CORES, R2D2Config
from apex_agents.r2d2.learning import R2D2Update, make_td_priority_fn
from apex_agents.r2d2.networks import RecurrentNetwork, make_core, make_network
from apex_agents.r2d2.policy import NO_ACTION, RecurrentPolicy
from apex_agents.replay.priorities import make_priority_fn
from apex_agents.replay.sequences import SequenceLayout, SequenceSizes
from apex_agents.replay.tables import DataFlow


class R2D2Builder(ApexBuilder):
    """Builder of R2D2."""

    def __init__(self, config: R2D2Config, torso_fn: TorsoFn | None = None):
        """Check the class of the config; `ApexBuilder` documents the arguments."""
        super().__init__(config, _R2D2, torso_fn)

    def data_flow(self, num_envs_per_actor: int) -> DataFlow:
        flow = super().data_flow(num_envs_per_actor)
        return flow._replace(usual_min_steps=flow.min_steps * self.config.sequence_period)


def _check_environment(config: R2D2Config, spec: EnvironmentSpec, torso_fn: TorsoFn | None) -> bool:
    require_discrete_actions(spec, "R2D2 needs")
    check_observations(config, spec, torso_fn)
    require_no_normalized_images(config.normalize_observations, spec)
    is_own = is_own_torso(config.torso, torso_fn) or config.core not in CORES
    return is_own or bool(config.part_torsos) or config.torso in ("conv", "auto")


def _make_layout(config: R2D2Config, spec: EnvironmentSpec) -> SequenceLayout:
    state = make_core(config, spec).initial_state(1)
    shapes = [part.shape[1:] for part in tf.nest.flatten(state)]
    sizes = SequenceSizes(
        config.burn_in_length, config.sequence_length, config.n_step, config.sequence_period
    )
    return SequenceLayout(
        spec, config.replay, sizes, shapes, config.frame_stack, config.measure_staleness
    )


def _make_adders(
    config: R2D2Config, layout: SequenceLayout, client: Any, num_adders: int, **calls: Any
) -> list[SequenceAdder]:
    td_priority_fn = make_td_priority_fn(config, layout.sizes)
    # Shared by the actor's adders: 'max' is their common highest priority.
    initial_priority = make_priority_fn(config.replay)

    def priority_fn(steps: Sequence[ActedStep], num_trained: int) -> float:
        td_priority = td_priority_fn(steps, num_trained)
        return initial_priority(td_priority) if math.isfinite(td_priority) else math.nan

    return [
        SequenceAdder(client, layout, config.replay, priority_fn, **calls)
        for _ in range(num_adders)
    ]


def _make_greedy_policy(network: RecurrentNetwork) -> GreedyPolicy:
    def evaluate(
        observation: tf.Tensor, reward: tf.Tensor, action: tf.Tensor, *state: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        q_values, next_state = network(observation, action, reward, *state)
        best = tf.argmax(q_values, axis=-1, output_type=tf.int32)
        return q_values, (best, *next_state)

    def evaluate_without_reward(
        observation: tf.Tensor, action: tf.Tensor, *state: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        return evaluate(observation, tf.zeros(tf.shape(action)), action, *state)

    def initial_state(num_rows: int) -> tuple[tf.Tensor, ...]:
        return (tf.fill([num_rows], NO_ACTION), *network.initial_state(num_rows))

    sees_reward = network.sees_reward
    return GreedyPolicy(
        {"network": network},
        "q_values",
        evaluate if sees_reward else evaluate_without_reward,
        initial_state,
        sees_reward=sees_reward,
    )


_R2D2 = Algorithm(
    config_class=R2D2Config,
    check_environment=_check_environment,
    make_networks=make_network,
    make_layout=_make_layout,
    make_policy=functools.partial(make_exploring_policy, RecurrentPolicy),
    make_evaluation_policy=functools.partial(make_evaluation_policy, RecurrentPolicy),
    make_greedy_policy=_make_greedy_policy,
    make_update=R2D2Update,
    make_adders=_make_adders,
)
