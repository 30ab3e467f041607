"""What to change in the settings for one Atari game on a small machine: a study in equal wall time.

Each run has one core for 12 minutes. The first setting is the config as it is. Its evaluations, of
eight games, and its training episodes are few: a seed tells large differences only.

Example:
  apex-paper --figure=benchmarks/atari_settings.py --parallel=2 --workdir=runs/atari
"""

from typing import Any

from apex_agents.metrics import columns
from apex_agents.sweep.study import Setting, Study

_FOUR_SAMPLES = {"agent.replay.samples_per_insert": 4.0}
_SLOW, _SLOWER = {"agent.learning_rate": 0.0003}, {"agent.learning_rate": 0.0001}
_CHANGES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "learning rate 0.0003": _SLOW,
    "learning rate 0.0001": _SLOWER,
    "0.0003, 16 samples per insert": _SLOW | {"agent.replay.samples_per_insert": 16.0},
    "0.0003, 4 samples": _SLOW | _FOUR_SAMPLES,
    "0.0001, 4 samples": _SLOWER | _FOUR_SAMPLES,
    "0.0001, 4 samples, episodes are games": {
        **_SLOWER,
        **_FOUR_SAMPLES,
        "environment.atari.life_loss_ends_episode": False,
    },
    "0.0001, 4 samples, DQN's width": {
        **_SLOWER,
        **_FOUR_SAMPLES,
        "agent.torso": "atari",
        "agent.stream_hidden_size": 512,
    },
}


def get_study() -> Study:
    """Return the settings, compared on one of the two games that settings may be chosen on."""
    name = "apex_dqn_atari_single_host"
    return Study(
        title="Breakout in 12 minutes on one core",
        settings={label: Setting(name, change) for label, change in _CHANGES.items()},
        tasks=("breakout",),
        fields={"run.max_seconds": 720.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
