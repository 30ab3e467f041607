"""The parts of Ape-X DPG that are its own."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from apex_agents.acting.policy import Policy
from apex_agents.builder import Builder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.learning import DPGUpdate
from apex_agents.dpg.networks import DPGNetworks, make_networks
from apex_agents.dpg.policy import GaussianNoisePolicy
from apex_agents.environments import EnvironmentSpec


class ApexDPGBuilder(Builder):
    """Builder of Ape-X DPG, for continuous actions; its config is an `ApexDPGConfig`."""

    config_class = ApexDPGConfig

    def check_environment(self, spec: EnvironmentSpec) -> None:
        actions, observations = spec.actions, spec.observations
        if not np.issubdtype(actions.dtype, np.floating) or len(actions.shape) != 1:
            raise ValueError(
                f"Ape-X DPG needs actions that are float vectors; the environment has {actions}."
            )
        bounds = getattr(actions, "minimum", -np.inf), getattr(actions, "maximum", np.inf)
        if np.any(bounds[0] != -1) or np.any(bounds[1] != 1):
            raise ValueError(
                f"Ape-X DPG needs actions in [-1, 1]; the environment's are in {bounds}."
            )
        if observations.dtype == np.uint8 and len(observations.shape) > 1:
            raise ValueError(f"Ape-X DPG learns from vectors, not from images: {observations}.")

    def make_policy(
        self, spec: EnvironmentSpec, env_indices: Sequence[int], num_envs: int, seed: int
    ) -> Policy:
        """Build the exploring policy of one actor: all environments have the same noise."""
        return GaussianNoisePolicy(self._make_networks(spec, seed), self.config.noise_scale, seed)

    def make_evaluation_policy(self, spec: EnvironmentSpec, num_envs: int, seed: int) -> Policy:
        return GaussianNoisePolicy(self._make_networks(spec, seed), noise_scale=0.0, seed=seed)

    def make_update(self, spec: EnvironmentSpec, seed: int) -> DPGUpdate:
        online, target = [self._make_networks(spec, seed) for _ in range(2)]
        return DPGUpdate(online, target, self.config)

    def _make_networks(self, spec: EnvironmentSpec, seed: int) -> DPGNetworks:
        tf.random.set_seed(seed)
        return make_networks(self.config, spec)
