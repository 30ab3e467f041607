"""The fields that a command line means by other names."""

import difflib
import pathlib
import re
from collections.abc import Callable, Sequence

from apex_agents.command_line.dict_entries import dict_of
from apex_agents.command_line.errors import fail
from apex_agents.config import ExperimentConfig
from apex_agents.validation import closest_field, field_paths, is_short_for

_LIKENESS = 0.8  # From which on a name is taken for a misspelt one; 1 is equality.
# The names in Stable-Baselines3, CleanRL and RLlib.
_NAMES = {
    **dict.fromkeys(("env", "env_id", "env_name", "game"), "environment.task"),
    **dict.fromkeys(("env_kwargs", "env_config"), "environment.kwargs"),
    **dict.fromkeys(("total_timesteps", "timesteps"), "run.max_actor_steps"),
    **dict.fromkeys(("n_envs", "num_envs"), "run.num_envs_per_actor"),
    **dict.fromkeys(("num_workers", "num_env_runners"), "run.num_actors"),
    **dict.fromkeys(("buffer_size", "replay_size", "capacity"), "agent.replay.max_size"),
    "learning_starts": "agent.replay.min_size",
    "n_eval_episodes": "run.evaluation.num_episodes",
    "gamma": "agent.discount",
    "train_batch_size": "agent.batch_size",
    "max_grad_norm": "agent.max_gradient_norm",
    "net_arch": "agent.mlp_hidden_sizes",
    **dict.fromkeys(
        ("target_network_frequency", "target_update_interval"), "agent.target_update_period"
    ),
}
_DEVICE = (
    "the learner uses a GPU where TensorFlow finds one, and none with the environment variable "
    "CUDA_VISIBLE_DEVICES=-1"
)
_REMARKS = dict.fromkeys(("device", "cuda", "gpu", "num_gpus"), _DEVICE)


def check_fields(config: ExperimentConfig, path: pathlib.Path, argv: Sequence[str]) -> None:
    """Exit unless the config, which comes from a file, has all fields that are to be changed."""
    fields = field_paths(config)
    overrides = [re.match(r"--?(?:no)?config\.([^=]*)", argument) for argument in argv]
    for field in (match[1] for match in overrides if match):
        if field not in fields and dict_of(config, field) is None:
            meant = _translate(field.rpartition(".")[2], fields) or closest_field(field, fields)
            fail(f"--config.{field} is no field of {path}; the closest is --config.{meant}.")


def make_suggest(config: ExperimentConfig) -> Callable[[str], str | None]:
    """Return a function that says what is meant by the name of an unknown flag.

    It returns a clause such as 'the closest is --config.run.seed' for 'seed', None for no idea.
    """
    fields = field_paths(config)

    def suggest(flag: str) -> str | None:
        name = flag.replace("-", "_")
        if name in _REMARKS:
            return _REMARKS[name]
        short = [field for field in fields if is_short_for(name, field)]
        meant = _translate(name, fields) or (short and closest_field(name, short))
        return f"the closest is --config.{meant}" if meant else None

    return suggest


def _translate(name: str, fields: Sequence[str]) -> str | None:
    """Return the field that other libraries call by a name, or that is spelt almost like it."""
    if _NAMES.get(name) in fields:
        return _NAMES[name]
    last = {field.rpartition(".")[2]: field for field in reversed(fields)}
    found = difflib.get_close_matches(name, last, 1, _LIKENESS)
    return last[found[0]] if found else None
