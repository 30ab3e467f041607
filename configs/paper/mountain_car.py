"""Figure 7 on MountainCar, whose only reward is to get up the hill: without exploring, none does.

A return of -200 is that of an episode that never got there.
"""

import pathlib

from apex_agents.presets import execute_file
from apex_agents.studies.study import Setting, Study

_FIGURE_7 = pathlib.Path(__file__).with_name("figure_7.py")


def get_study() -> Study:
    """Return the ways of exploring of figure_7.py, with 16 environments."""
    explorations = execute_file(_FIGURE_7, Study, "get_study").settings
    ladder = {"agent.exploration.epsilon": 0.4, "agent.exploration.alpha": 7.0}
    return Study(
        title="Exploration on MountainCar at equal learner steps (Figure 7)",
        settings={
            label: Setting("apex_dqn_cartpole", {**ladder, **setting.fields})
            for label, setting in explorations.items()
        },
        tasks=("MountainCar-v0",),
        fields={
            "agent.head": "dueling",
            "agent.learning_rate": 0.001,
            "run.num_envs_per_actor": 16,
            "run.target_return": None,
            "run.max_learner_steps": 20_000,
            "run.evaluation.min_period_seconds": 5.0,
        },
        num_seeds=5,
    )
