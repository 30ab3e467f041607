"""Hyperparameters of RL Baselines3 Zoo for Atari; the games of MinAtar have them, too."""

from typing import Any

from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

AGENT_STEPS = 10_000_000  # More than there is time for.
NUM_A2C_ENVIRONMENTS = 16
A2C_SETTINGS: dict[str, Any] = {"ent_coef": 0.01, "vf_coef": 0.25}
A2C_POLICY: dict[str, Any] = {
    "optimizer_class": RMSpropTFLike,
    "optimizer_kwargs": {"eps": 1e-5},
}


def dqn_settings(learning_starts: int, exploration_steps: int) -> dict[str, Any]:
    """Return the Zoo's hyperparameters of DQN, with the two schedules of a shorter run.

    Args:
      learning_starts: agent steps before the first update.
      exploration_steps: agent steps in which epsilon falls to its last value.
    """
    return {
        "buffer_size": 100_000,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "learning_starts": learning_starts,
        "target_update_interval": 1_000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": exploration_steps / AGENT_STEPS,
        "exploration_final_eps": 0.01,
    }
