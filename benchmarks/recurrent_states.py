"""The state at the start of a sequence (Kapturowski et al. 2019, figures 1 and 5), on a task.

`agent.measure_staleness` logs Delta Q, how far values are from those that acting had.

Example:
  apex-study benchmarks/recurrent_states.py --parallel=2 --workdir=runs/recurrent_states
"""

from apex_agents.metrics import columns
from apex_agents.studies.study import Setting, Study

_BURN_IN = 10


def get_study() -> Study:
    """Return zero and stored states, each with and without a burn-in."""
    return Study(
        title="The state at the start of a sequence",
        settings={
            f"{state}{' and burn-in' if burn_in else ''}": Setting(
                "r2d2_popgym",
                {
                    "agent.stored_state": state == "stored",
                    "agent.burn_in_length": burn_in,
                    # Shorter than the episodes, so that most sequences begin within them.
                    "agent.sequence_length": 20,
                    "agent.sequence_period": 10,
                    "agent.measure_staleness": True,
                    # The previous action would remember for the network.
                    "agent.previous_action_input": False,
                    "agent.replay.samples_per_insert": 16.0,
                },
            )
            for state in ("zero", "stored")
            for burn_in in (0, _BURN_IN)
        },
        tasks=("popgym-PositionOnlyCartPoleEasy-v0",),
        fields={"run.max_actor_steps": 100_000},
        x=columns.ACTOR_STEPS,
        num_seeds=5,
    )
