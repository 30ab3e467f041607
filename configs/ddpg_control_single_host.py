"""Tasks of the control suite by DDPG, without what Ape-X adds to it.

One environment, noise of one scale and uniform samples (Lillicrap et al. 2016), which leave a full
replay in the order in which they came; the critic is a scalar. All else is as in
`apex_dpg_control_single_host`: one update per agent step, normalized layers, slow target networks.
"""

from apex_agents.config import ExperimentConfig
from apex_agents.dpg.config import NoiseConfig
from apex_agents.presets import load_config


def get_config() -> ExperimentConfig:
    """Return the settings of the run."""
    config = load_config("apex_dpg_control_single_host")
    config.run.num_envs_per_actor = 1
    config.agent.critic = "scalar"
    config.agent.exploration = NoiseConfig(noise_scale=0.3)
    config.agent.replay.priority_exponent = 0.0
    config.agent.replay.eviction_policy = "fifo"
    return config
