"""Ape-X DPG among the agents with prioritized replay: which parts are its own."""

from collections.abc import Callable, Sequence

import numpy as np

from apex_agents.acting.policy import GreedyPolicy
from apex_agents.builder import Algorithm, ApexBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.learning import DPGUpdate
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.dpg.policy import GaussianNoisePolicy, noise_ladder
from apex_agents.environments import EnvironmentSpec, require_unit_vectors
from apex_agents.networks.torso_choice import require_no_normalized_images
from apex_agents.own_torso import TorsoFn, is_own_torso


class ApexDPGBuilder(ApexBuilder):
    """Builder of Ape-X DPG."""

    def __init__(self, config: ApexDPGConfig, torso_fn: TorsoFn | None = None):
        """Check the class of the config; `ApexBuilder` documents the arguments."""
        super().__init__(config, _APEX_DPG, torso_fn)


def _check_environment(
    config: ApexDPGConfig, spec: EnvironmentSpec, torso_fn: TorsoFn | None
) -> bool:
    require_unit_vectors(spec)
    require_no_normalized_images(config.normalize_observations, spec)
    return any(is_own_torso(name, torso_fn) for name in (config.policy_torso, config.critic_torso))


def _make_policy(
    config: ApexDPGConfig,
    make_networks: Callable[[], DPGNetworks],
    env_indices: Sequence[int],
    num_envs: int,
    seed: int,
) -> GaussianNoisePolicy:
    """Give each environment its own noise scale."""
    noise_scales = noise_ladder(config.exploration, num_envs)[list(env_indices)]
    return GaussianNoisePolicy(make_networks(), noise_scales, seed)


def _make_evaluation_policy(
    config: ApexDPGConfig, networks: DPGNetworks, num_envs: int, seed: int
) -> GaussianNoisePolicy:
    return GaussianNoisePolicy(networks, np.zeros(num_envs), seed)


def _make_greedy_policy(networks: DPGNetworks) -> GreedyPolicy:
    return GreedyPolicy(
        networks._asdict(),
        "action",
        lambda observation: (networks.policy(observation), ()),
        value=networks.critic,
    )


_APEX_DPG = Algorithm(
    config_class=ApexDPGConfig,
    check_environment=_check_environment,
    make_networks=make_networks,
    make_policy=_make_policy,
    make_evaluation_policy=_make_evaluation_policy,
    make_update=DPGUpdate,
    make_greedy_policy=_make_greedy_policy,
)
