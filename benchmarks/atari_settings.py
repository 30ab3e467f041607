"""What to change in the settings for one Atari game on two cores: a study in equal wall time.

Each run has one core. The first setting is the config as it is; in all others a lost life ends a
training episode, and one thing more is changed.

Example:
  apex-paper --figure=benchmarks/atari_settings.py --parallel=2 --seeds=1 --workdir=runs/atari
"""

from typing import Any

from apex_agents.metrics import columns
from apex_agents.sweep.study import Setting, Study

_CHANGES: dict[str, dict[str, Any]] = {
    "lives": {},
    "batches of 32": {"agent.batch_size": 32},
    "2 samples per insert": {"agent.replay.samples_per_insert": 2.0},
    "8 samples per insert": {"agent.replay.samples_per_insert": 8.0},
    "learning rate 0.00025": {"agent.learning_rate": 0.00025},
    "n = 5": {"agent.n_step": 5},
    "64 environments": {"run.num_envs_per_actor": 64},
    "target period 2,000": {"agent.target_update_period": 2_000},
}


def get_study() -> Study:
    """Return the settings, compared on the two games that settings may be chosen on."""
    name = "apex_dqn_atari_single_host"
    lives = {"environment.atari.life_loss_ends_episode": True}
    return Study(
        title="Settings for one Atari game on two cores",
        settings={
            "as it is": Setting(name, {}),
            **{label: Setting(name, {**lives, **change}) for label, change in _CHANGES.items()},
        },
        tasks=("breakout", "pong"),
        fields={"run.max_seconds": 900.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
    )
