"""The CSV files that nodes write into `logs/` and their columns: names, units and meanings.

The tables of `docs/logs.md` are these. Metrics of the learner come from lower layers, which know
their names only as the keys of what they return; tests compare them with this module.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Names of files, without `.csv`.
LEARNER = "learner"
LEARNER_HISTOGRAMS = "learner_histograms"
REPLAY = "replay"
EVALUATOR = "evaluator"

WALL_TIME_SECONDS = "wall_time_seconds"
LEARNER_STEPS = "learner_steps"
ACTOR_STEPS = "actor_steps"
REPLAY_SIZE = "replay_size"
SAMPLES_PER_INSERT = "samples_per_insert"

LEARNER_STEPS_PER_SECOND = "learner_steps_per_second"
DATA_WAIT_FRACTION = "data_wait_fraction"
LOSS = "loss"
TD_ERROR = "td_error"
Q_VALUE = "q_value"
GRADIENT_NORM = "gradient_norm"
POLICY_Q_VALUE = "policy_q_value"
ACTION_GRADIENT = "action_gradient"
POLICY_GRADIENT_NORM = "policy_gradient_norm"
SAMPLE_AGE_STEPS = "sample_age_steps"
STEPS_SKIPPED = "steps_skipped"
PRIORITIES_NOT_FINITE = "priorities_not_finite"
PRIORITY_BATCHES_DROPPED = "priority_batches_dropped"

QUANTITY = "quantity"
LOWER = "lower"
UPPER = "upper"
SAMPLED_SHARE = "sampled_share"
REPLAY_SHARE = "replay_share"

INSERTS_PER_SECOND = "inserts_per_second"
SAMPLES_PER_SECOND = "samples_per_second"

ACTOR_STEPS_PER_SECOND = "actor_steps_per_second"
EPISODES = "episodes"
EPISODE_RETURN = "episode_return"
CLIPPED_RETURN = "clipped_return"
EPISODE_LENGTH = "episode_length"
TRANSITIONS = "transitions"
TRANSITIONS_NOT_FINITE = "transitions_not_finite"
ENVIRONMENT_FAILURES = "environment_failures"
PARAMETERS_LEARNER_STEPS = "parameters_learner_steps"

ENV_INDEX = "env_index"
EPSILON = "epsilon"
NOISE_SCALE = "noise_scale"

MEAN_RETURN = "mean_return"
STANDARD_ERROR = "standard_error"
NUM_EPISODES = "num_episodes"


def actor_file(index: int | str) -> str:
    """Return the name of the file with an actor's rows."""
    return f"actor_{index}"


def actor_envs_file(index: int | str) -> str:
    """Return the name of the file with the rows of an actor's environments."""
    return f"{actor_file(index)}_envs"


def parse_actor_file(name: str) -> tuple[int, bool] | None:
    """Read the name of an actor's file.

    Returns:
      The actor's index and whether the rows are those of its environments; None if the file is none
      of an actor's.
    """
    match = re.fullmatch(r"actor_(\d+)(_envs)?", name)
    return None if match is None else (int(match[1]), match[2] is not None)


class Column(NamedTuple):
    """A column of a CSV file.

    Attributes:
      name: header of the column.
      unit: unit of its values, '-' for numbers without one.
      meaning: what the values are.
      agent: 'DQN' or 'DPG' if only runs of that agent have the column.
    """

    name: str
    unit: str
    meaning: str
    agent: str = ""


_WALL_TIME = Column(
    WALL_TIME_SECONDS, "s", "time since the run was started, without the time for which it was down"
)
_STATISTICS = (
    Column(ACTOR_STEPS, "actor steps", "steps of all actors so far"),
    Column(REPLAY_SIZE, "transitions", "size of the replay"),
    Column(
        SAMPLES_PER_INSERT,
        "-",
        "transitions sampled per transition added, since the replay's process was started",
    ),
)
_EPISODES = (
    Column(EPISODES, "-", "episodes finished since the row before"),
    Column(EPISODE_RETURN, "return", "mean over these episodes; NaN if there is none"),
    Column(CLIPPED_RETURN, "return", "mean of their returns with rewards as the agent gets them"),
    Column(EPISODE_LENGTH, "actor steps", "mean of their lengths"),
)

# By the name of the file, in which <i> is the index of an actor.
COLUMNS: Mapping[str, Sequence[Column]] = {
    LEARNER: (
        Column(
            LEARNER_STEPS,
            "learner steps",
            "updates so far; steps after the checkpoint from which a learner resumes appear twice",
        ),
        Column(LEARNER_STEPS_PER_SECOND, "1/s", "updates per second since the row before"),
        Column(
            DATA_WAIT_FRACTION,
            "share of the time",
            "time spent waiting for a batch since the row before",
        ),
        Column(
            LOSS, "-", "mean of weight * 0.5 * TD error^2 over the batch (DPG: loss of the critic)"
        ),
        Column(TD_ERROR, "return", "mean of the absolute TD errors, which become the priorities"),
        Column(
            Q_VALUE,
            "return",
            "DQN: mean of all action values of the batch; DPG: mean value of the actions taken",
        ),
        Column(
            GRADIENT_NORM, "-", "global norm of the gradients (DPG: of the critic) before clipping"
        ),
        Column(POLICY_Q_VALUE, "return", "mean value of the policy's own actions", "DPG"),
        Column(
            ACTION_GRADIENT,
            "-",
            "mean of the absolute elements of dq/da, before clipping",
            "DPG",
        ),
        Column(POLICY_GRADIENT_NORM, "-", "global norm of the policy's gradients", "DPG"),
        Column(
            SAMPLE_AGE_STEPS,
            "learner steps",
            "mean age of the transitions of the newest 16 batches: learner steps from the "
            "parameters that chose the action to the update",
        ),
        Column(
            STEPS_SKIPPED,
            "learner steps",
            "steps that changed nothing because a gradient was not finite, since the learner's "
            "process was started",
        ),
        Column(
            PRIORITIES_NOT_FINITE,
            "transitions",
            "transitions whose new priority was not finite and left out, since then",
        ),
        Column(
            PRIORITY_BATCHES_DROPPED,
            "batches",
            "batches whose priorities did not reach the replay, since then",
        ),
        *_STATISTICS,
        _WALL_TIME,
    ),
    LEARNER_HISTOGRAMS: (
        Column(LEARNER_STEPS, "learner steps", "updates so far"),
        Column(
            QUANTITY,
            "-",
            "`priority`: priority in the replay when the transition was sampled; `td_error`: its "
            "new priority; `age_steps`: its age, as `sample_age_steps`; `times_sampled`: number of "
            "times it has been sampled",
        ),
        Column(LOWER, "as the quantity", "smallest value of the bin"),
        Column(UPPER, "as the quantity", "end of the bin, whose values are below it"),
        Column(SAMPLED_SHARE, "share", "part of the sampled transitions that is in the bin"),
        Column(
            REPLAY_SHARE,
            "share",
            "part of the replay's transitions that is in the bin, estimated from the samples: one "
            "that was sampled with probability P stands for 1 / P",
        ),
        _WALL_TIME,
    ),
    REPLAY: (
        *_STATISTICS,
        Column(
            INSERTS_PER_SECOND,
            "1/s",
            "transitions added per second since the row before, replicas counted once",
        ),
        Column(SAMPLES_PER_SECOND, "1/s", "transitions sampled per second since the row before"),
        _WALL_TIME,
    ),
    actor_file("<i>"): (
        Column(
            ACTOR_STEPS_PER_SECOND,
            "1/s",
            "steps per second of all environments of the actor, since the row before",
        ),
        *_EPISODES,
        Column(
            TRANSITIONS,
            "transitions",
            "transitions sent to the replay, since the actor's process was started",
        ),
        Column(
            TRANSITIONS_NOT_FINITE,
            "transitions",
            "transitions left out because a number was not finite, since then",
        ),
        Column(
            ENVIRONMENT_FAILURES,
            "-",
            "episodes that were given up because the environment failed, since then",
        ),
        Column(
            PARAMETERS_LEARNER_STEPS,
            "learner steps",
            "learner steps of the parameters with which the actor acts",
        ),
        _WALL_TIME,
    ),
    actor_envs_file("<i>"): (
        Column(ENV_INDEX, "-", "index among all environments of all actors"),
        Column(EPSILON, "probability", "probability of a random action", "DQN"),
        Column(
            NOISE_SCALE,
            "of the action's range [-1, 1]",
            "standard deviation of the noise added to actions",
            "DPG",
        ),
        *_EPISODES,
        _WALL_TIME,
    ),
    EVALUATOR: (
        Column(MEAN_RETURN, "return", "mean over the episodes of the evaluation"),
        Column(STANDARD_ERROR, "return", "standard error of that mean"),
        Column(NUM_EPISODES, "-", "episodes of the evaluation"),
        Column(LEARNER_STEPS, "learner steps", "learner steps of the evaluated parameters"),
        Column(ACTOR_STEPS, "actor steps", "steps of all actors when the evaluation ended"),
        _WALL_TIME,
    ),
}
