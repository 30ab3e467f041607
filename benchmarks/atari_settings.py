"""Learning rate, samples per insert and width on one Atari game: a study in equal wall time.

Each run has one core for 12 minutes, a constant learning rate, and a target network that is copied
every 500 learner steps. Evaluations, of eight games, and training episodes are few: a seed
tells large differences only.

Example:
  apex-study benchmarks/atari_settings.py --parallel=2 --workdir=runs/atari
"""

from typing import Any

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def _settings(learning_rate: float, samples: float, **changes: Any) -> Setting:
    fields = {
        "agent.learning_rate": learning_rate,
        "agent.replay.samples_per_insert": samples,
        "agent.learning_rate_steps": None,
        "agent.target_update_period": 500,
        "agent.target": "double",
        "agent.replay.initial_priority": "td_error",
    }
    return Setting("apex_dqn_atari_single_host", fields | changes)


def get_study() -> Study:
    """Return the settings, compared on one of the two games that settings may be chosen on."""
    return Study(
        title="Breakout in 12 minutes on one core",
        settings={
            "0.0006, 8 samples per insert": _settings(0.0006, 8.0),
            "0.0003, 8 samples": _settings(0.0003, 8.0),
            "0.0001, 8 samples": _settings(0.0001, 8.0),
            "0.0003, 16 samples": _settings(0.0003, 16.0),
            "0.0003, 4 samples": _settings(0.0003, 4.0),
            "0.0001, 4 samples": _settings(0.0001, 4.0),
            "0.0001, 4 samples, episodes are games": _settings(
                0.0001, 4.0, **{"environment.atari.life_loss_ends_episode": False}
            ),
            "0.0001, 4 samples, DQN's width": _settings(
                0.0001, 4.0, **{"agent.torso": "atari", "agent.stream_hidden_size": 512}
            ),
        },
        tasks=("breakout",),
        fields={"run.max_seconds": 720.0, "run.evaluation.min_period_seconds": 120.0},
        x=columns.WALL_TIME_SECONDS,
        num_seeds=1,
    )
