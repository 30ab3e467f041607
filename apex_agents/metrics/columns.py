"""Names of the CSV files in `logs/` and of their columns; docs/reference/logs.md explains them.

Metrics of the learner that are missing here are keys of dicts that lower layers return.
"""

import re

# Names of files, without `.csv`.
LEARNER = "learner"
REPLAY = "replay"
EVALUATOR = "evaluator"
_HISTOGRAMS = "_histograms"

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
DELTA_Q_FIRST = "delta_q_first"
DELTA_Q_LAST = "delta_q_last"
GRADIENT_NORM = "gradient_norm"
STEPS_SKIPPED = "steps_skipped"
SAMPLE_AGE_STEPS = "sample_age_steps"
PRIORITIES_AT_BOUND_FRACTION = "priorities_at_bound_fraction"
VALUE_LOSS = "value_loss"
ENTROPY = "entropy"
VALUE = "value"
STALENESS_STEPS = "staleness_steps"
GRADIENTS_DROPPED = "gradients_dropped"

GRADIENTS_PER_SECOND = "gradients_per_second"
PARAMETER_WAIT_FRACTION = "parameter_wait_fraction"
SEND_FRACTION = "send_fraction"

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

IS_SUCCESS = "is_success"
MEAN_RETURN = "mean_return"
STANDARD_ERROR = "standard_error"


def role_of(node: str) -> str:
    """Return the name of a node's role, which is its own without its number."""
    return re.sub(r"_\d+$", "", node)


def learner_file(index: int) -> str:
    """Return the name of the file with the rows of one of several learners."""
    return f"learner_{index}"


def histogram_file(node: str) -> str:
    """Return the name of the file with the histograms of a learner, from that of its rows."""
    return f"{node}{_HISTOGRAMS}"


def is_histogram_file(name: str) -> bool:
    """Return whether a file has the histograms of a learner."""
    return name.endswith(_HISTOGRAMS)


def actor_file(index: int) -> str:
    """Return the name of the file with an actor's rows."""
    return f"actor_{index}"


def actor_envs_file(index: int) -> str:
    """Return the name of the file with the rows of an actor's environments."""
    return f"actor_{index}_envs"


def parse_actor_file(name: str) -> int | None:
    """Return the index of the actor whose rows a file holds, None for any other file."""
    match = re.fullmatch(r"actor_(\d+)", name)
    return None if match is None else int(match[1])
