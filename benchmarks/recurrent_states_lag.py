"""The state at the start of a sequence, where what was seen four steps before is asked for.

Example:
  apex-study benchmarks/recurrent_states_lag.py --parallel=2 --workdir=runs/recurrent_states_lag
"""

import recurrent_states

from apex_agents.studies.study import Setting, Study


def get_study() -> Study:
    """Return the settings of `recurrent_states` on RepeatPrevious, with twice the updates."""
    study = recurrent_states.get_study()
    more = {"agent.replay.samples_per_insert": 32.0}
    return study._replace(
        settings={
            label: Setting(setting.config, {**setting.fields, **more})
            for label, setting in study.settings.items()
        },
        tasks=("popgym-RepeatPreviousEasy-v0",),
        fields={"run.max_actor_steps": 60_000},
    )
