"""One, two and four learners on two games of MinAtar at equal numbers of updates.

Synchronous learners apply the mean of their gradients, asynchronous ones each gradient (Nair et al.
2015, Gorila). All have the settings of `gorila_minatar`, with smaller streams, of which less has to
be sent, and an exploration and targets that fit so few updates.

Example:
  apex-study benchmarks/gorila.py --workdir=runs/gorila
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the numbers of learners, and how they work together."""
    settings = {"1 learner": Setting("gorila_minatar", {"run.num_learners": 1})}
    for mode in ("synchronous", "asynchronous"):
        for number in (2, 4):
            fields = {"run.num_learners": number, "run.learners.mode": mode}
            settings[f"{number} {mode} learners"] = Setting("gorila_minatar", fields)
    return Study(
        title="Several learners at equal updates",
        settings=settings,
        tasks=("MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"),
        fields={
            "run.max_actor_steps": None,
            "run.max_learner_steps": 4_000,
            "run.evaluation.min_period_seconds": 5.0,
            "agent.stream_hidden_size": 32,
            "agent.exploration.annealing_steps": 1_000,
            "agent.target_update_period": 250,
        },
        x=columns.LEARNER_STEPS,
    )
