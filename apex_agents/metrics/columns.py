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
      meaning: what the values are; (*) marks counts since the process that counts was started.
      agent: 'DQN' or 'DPG' if only runs of that agent have the column.
    """

    name: str
    unit: str
    meaning: str
    agent: str = ""


_WALL_TIME = Column(WALL_TIME_SECONDS, "s", "wall time of the run, see above")
_REPLAY_COUNTS = (
    Column(ACTOR_STEPS, "actor steps", "steps of all actors so far"),
    Column(REPLAY_SIZE, "transitions", "transitions in the replay"),
    Column(SAMPLES_PER_INSERT, "-", "transitions sampled per transition added (*)"),
)
_EPISODES = (
    Column(EPISODES, "-", "episodes finished since the row before"),
    Column(EPISODE_RETURN, "return", "mean over these episodes, NaN without one"),
    Column(CLIPPED_RETURN, "return", "mean of their returns with rewards as the agent gets them"),
    Column(EPISODE_LENGTH, "actor steps", "mean of their lengths"),
)
_LEARNER = (
    Column(LEARNER_STEPS, "learner steps", "updates so far"),
    Column(LEARNER_STEPS_PER_SECOND, "1/s", "updates per second since the row before"),
    Column(DATA_WAIT_FRACTION, "share of the time", "time spent waiting for batches"),
    Column(LOSS, "-", "mean of weight * 0.5 * TD error^2 over the batch (DPG: of the critic)"),
    Column(TD_ERROR, "return", "mean of the absolute TD errors, which become the priorities"),
    Column(Q_VALUE, "return", "DQN: mean of all action values; DPG: mean value of actions taken"),
    Column(GRADIENT_NORM, "-", "global norm of the gradients (DPG: of the critic) before clipping"),
    Column(POLICY_Q_VALUE, "return", "mean value of the policy's own actions", "DPG"),
    Column(ACTION_GRADIENT, "-", "mean absolute element of dq/da before clipping", "DPG"),
    Column(POLICY_GRADIENT_NORM, "-", "global norm of the policy's gradients", "DPG"),
    Column(SAMPLE_AGE_STEPS, "learner steps", "mean age of the transitions of 16 batches"),
    Column(STEPS_SKIPPED, "learner steps", "steps without effect: a gradient was not finite (*)"),
    Column(PRIORITIES_NOT_FINITE, "transitions", "new priorities that were not finite (*)"),
    Column(PRIORITY_BATCHES_DROPPED, "batches", "priorities that did not reach the replay (*)"),
    *_REPLAY_COUNTS,
    _WALL_TIME,
)
_QUANTITIES = (
    "`priority`: priority when the transition was sampled; `td_error`: its new priority; "
    "`age_steps`: its age; `times_sampled`: how often it has been sampled"
)
_LEARNER_HISTOGRAMS = (
    Column(LEARNER_STEPS, "learner steps", "updates so far"),
    Column(QUANTITY, "-", _QUANTITIES),
    Column(LOWER, "as the quantity", "smallest value of the bin"),
    Column(UPPER, "as the quantity", "end of the bin: its values are below"),
    Column(SAMPLED_SHARE, "share", "part of the sampled transitions that is in the bin"),
    Column(REPLAY_SHARE, "share", "part of the replay's transitions that is in the bin, estimated"),
    _WALL_TIME,
)
_REPLAY = (
    *_REPLAY_COUNTS,
    Column(INSERTS_PER_SECOND, "1/s", "transitions added per second since the row before"),
    Column(SAMPLES_PER_SECOND, "1/s", "transitions sampled per second since the row before"),
    _WALL_TIME,
)
_ACTOR = (
    Column(ACTOR_STEPS_PER_SECOND, "1/s", "steps per second since the row before"),
    *_EPISODES,
    Column(TRANSITIONS, "transitions", "transitions sent to the replay (*)"),
    Column(TRANSITIONS_NOT_FINITE, "transitions", "left out: a number was not finite (*)"),
    Column(ENVIRONMENT_FAILURES, "episodes", "given up because the environment failed (*)"),
    Column(PARAMETERS_LEARNER_STEPS, "learner steps", "updates that led to the actor's parameters"),
    _WALL_TIME,
)
_ACTOR_ENVS = (
    Column(ENV_INDEX, "-", "index among all environments of all actors"),
    Column(EPSILON, "probability", "probability of a random action", "DQN"),
    Column(NOISE_SCALE, "of the action's range [-1, 1]", "standard deviation of the noise", "DPG"),
    *_EPISODES,
    _WALL_TIME,
)
_EVALUATOR = (
    Column(MEAN_RETURN, "return", "mean over the episodes of the evaluation"),
    Column(STANDARD_ERROR, "return", "standard error of that mean"),
    Column(NUM_EPISODES, "-", "episodes of the evaluation"),
    Column(LEARNER_STEPS, "learner steps", "updates that led to the evaluated parameters"),
    Column(ACTOR_STEPS, "actor steps", "steps of all actors when the evaluation ended"),
    _WALL_TIME,
)

# By the name of the file, in which <i> is the index of an actor.
COLUMNS: Mapping[str, Sequence[Column]] = {
    LEARNER: _LEARNER,
    LEARNER_HISTOGRAMS: _LEARNER_HISTOGRAMS,
    REPLAY: _REPLAY,
    actor_file("<i>"): _ACTOR,
    actor_envs_file("<i>"): _ACTOR_ENVS,
    EVALUATOR: _EVALUATOR,
}
