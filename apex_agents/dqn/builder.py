"""Ape-X DQN among the agents with prioritized replay: which parts are its own."""

import functools
from typing import Any

from apex_agents.acting.policy import (
    GreedyPolicy,
    make_evaluation_policy,
    make_exploring_policy,
)
from apex_agents.builder import Algorithm, ApexBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.dqn.networks import ActionValueNetwork, make_network
from apex_agents.dqn.policy import EpsilonGreedyPolicy, MunchausenPolicy
from apex_agents.environments import EnvironmentSpec, require_discrete_actions
from apex_agents.networks.torso_choice import check_observations, require_no_normalized_images
from apex_agents.own_torso import TorsoFn, is_own_torso


class ApexDQNBuilder(ApexBuilder):
    """Builder of Ape-X DQN."""

    def __init__(self, config: ApexDQNConfig, torso_fn: TorsoFn | None = None):
        """Check the class of the config; `ApexBuilder` documents the arguments."""
        super().__init__(config, _APEX_DQN, torso_fn)


def _check_environment(
    config: ApexDQNConfig, spec: EnvironmentSpec, torso_fn: TorsoFn | None
) -> bool:
    require_discrete_actions(spec, "Ape-X DQN needs")
    check_observations(config, spec, torso_fn)
    require_no_normalized_images(config.normalize_observations, spec)
    is_own = is_own_torso(config.torso, torso_fn) or bool(config.part_torsos)
    return is_own or config.torso in ("conv", "auto")


def _make_policy(config: ApexDQNConfig, *arguments: Any) -> EpsilonGreedyPolicy:
    kind = MunchausenPolicy if config.target == "munchausen" else EpsilonGreedyPolicy
    return make_exploring_policy(kind, config, *arguments)


def _make_greedy_policy(network: ActionValueNetwork) -> GreedyPolicy:
    return GreedyPolicy(
        {"network": network}, "q_values", lambda observation: (network(observation), ())
    )


_APEX_DQN = Algorithm(
    config_class=ApexDQNConfig,
    check_environment=_check_environment,
    make_networks=make_network,
    make_policy=_make_policy,
    make_evaluation_policy=functools.partial(make_evaluation_policy, EpsilonGreedyPolicy),
    make_update=DQNUpdate,
    make_greedy_policy=_make_greedy_policy,
)
