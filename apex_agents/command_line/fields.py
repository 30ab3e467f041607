"""The fields of settings on a command line: their other names, their help, and idle ones."""

import dataclasses
import difflib
import inspect
import re
import textwrap
import typing
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from apex_agents.fields import (
    closest_field,
    field_paths,
    get_field,
    is_short_for,
    is_union,
    read_conditions,
)

_WIDTH = 100
_LIKENESS = 0.8  # Least similarity at which a name counts as a misspelling; 1 is equality.
# Names of the fields in Stable-Baselines3, CleanRL and RLlib.
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


def closest_flag(config: Any, path: str) -> str:
    """Return the flag of the field that is meant by the path of an unknown one."""
    fields = field_paths(config)
    name = path.rpartition(".")[2]
    return f"--config.{_translate(name, fields) or closest_field(path, fields)}"


def suggest_flag(config: Any, flag: str) -> str | None:
    """Say in a clause which field is meant by the name of an unknown flag; None for no idea."""
    fields, name = field_paths(config), flag.replace("-", "_")
    if name in _REMARKS:
        return _REMARKS[name]
    short = [field for field in fields if is_short_for(name, field)]
    meant = _translate(name, fields) or (short and closest_field(name, short))
    return f"the closest is --config.{meant}" if meant else None


def _translate(name: str, fields: Sequence[str]) -> str | None:
    """Return the field that other libraries call by a name, or that is spelt almost like it."""
    if _NAMES.get(name) in fields:
        return _NAMES[name]
    last = {field.rpartition(".")[2]: field for field in reversed(fields)}
    found = difflib.get_close_matches(name, last, 1, _LIKENESS)
    return last[found[0]] if found else None


def find_idle_fields(
    config: Any, given: Collection[str], varied: Collection[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each given field that has no effect with these settings.

    Args:
      config: settings of the experiment.
      given: dotted paths of the fields that were given.
      varied: dotted paths of fields that get several values, one in each run.

    Yields:
      Sentences that name the field, and the value of the other field for which it is not read.
    """
    if ":" in str(getattr(config.agent, "builder", "")):  # It may read anything.
        return
    conditions = read_conditions(config)
    for path in given:
        other, values = conditions.get(path, ("", ()))
        if not other or other in varied:
            continue
        value = get_field(config, other)
        # A user-defined 'module:function' may read any field.
        if value not in values and ":" not in str(value):
            readers = " or ".join(repr(value) for value in values)
            yield f"--config.{path} has no effect: {other} is {value!r}, not {readers}."


def describe_fields(config: Any, prefix: str = "--config.") -> Iterator[str]:
    """Yield the lines of --help on all fields of a config, also on those of nested configs."""
    meanings, declared = read_meanings(type(config)), describe_types(type(config))
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from describe_fields(value, f"{path}.")
        else:
            yield f"  {path}={value}  ({declared[field.name]})"
            meaning = meanings.get(field.name, "")
            yield textwrap.fill(meaning, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def describe_types(kind: type) -> dict[str, str]:
    """Return the types and the bounds of a dataclass's fields, such as 'int >= 1 or None'."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: _describe_type(hints[field.name]) for field in dataclasses.fields(kind)}


def _describe_type(declared: Any) -> str:
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if is_union(declared):
        return " or ".join(map(_describe_type, arguments))
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin is typing.Annotated:
        signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
        limits = [limit for one in arguments[1:] for limit in getattr(one, "metadata", [one])]
        bounds = [
            f"{sign} {getattr(limit, name)}"
            for name, sign in signs.items()
            for limit in limits
            if hasattr(limit, name)
        ]
        return " ".join([_describe_type(arguments[0]), ", ".join(bounds)]).strip()
    if origin is tuple:
        return f"tuple of {_describe_type(arguments[0])}"
    return "None" if declared is type(None) else getattr(origin or declared, "__name__", "any")


def read_meanings(kind: type) -> dict[str, str]:
    """Return the `Attributes:` of the docstrings of a dataclass and its bases, by field."""
    texts = [inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__)]
    sections = "\n".join(text.partition("\nAttributes:\n")[2] for text in texts)
    entries = re.findall(r"^  ([\w, ]+): (.*(?:\n   .*)*)", sections, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
