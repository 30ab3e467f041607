"""The config of a run in its file `config.json`: encoded, compared with a new one, read back."""

import dataclasses
import importlib
import json
import os
import pathlib
import re
from collections.abc import Collection, Iterable
from typing import Any

from apex_agents import user_code
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.environments import EnvironmentConfig, SpecRecord, find_spec_difference
from apex_agents.json_values import decode, encode
from apex_agents.torso_config import CONV_FIELDS
from apex_agents.validation import make_config

_PACKAGE = importlib.import_module(__name__.partition(".")[0])

CONFIG_FILE = "config.json"
# In the file, beside the fields of the config: the class of its agent's config, and the format of
# the whole folder, which changes with the names of files, of config fields and of CSV columns.
AGENT_TYPE = "agent_type"
FORMAT_VERSION = "format_version"
# Key of the record of user-defined code, see `user_code.record`; no field of a config.
_USER_CODE = "user_code"
# Key of the environment's spec at the start of the run, see `record_spec`; no field of a config.
ENVIRONMENT_SPEC = "environment_spec"

_FORMAT = 2
# Entries that must not change when a run is resumed, except `_FREE_FIELDS`.
_FIXED_SECTIONS = (FORMAT_VERSION, AGENT_TYPE, "agent", "environment")
# Whether the mask is another one is seen by the environment's spec.
_FREE_FIELDS = (
    "environment.action_mask",
    "environment.max_episode_steps",
    "environment.step_timeout_seconds",
)
# Fields of an agent that its environment decides on where its torso is 'auto'.
_TORSO, _AUTO = "torso", "auto"
_CHOSEN_FIELDS = (_TORSO, *CONV_FIELDS)


def to_file(config: Any, spec: SpecRecord | None = None) -> dict[str, Any]:
    """Return the content of a run's file: the config, the user's code, and `record_spec`."""
    values = to_values(config)
    recorded = user_code.record(json.dumps(values, ensure_ascii=False))
    return {**values, _USER_CODE: recorded, ENVIRONMENT_SPEC: spec or {}}


def to_values(config: Any) -> dict[str, Any]:
    """Return a config as the file holds it, with the values that JSON reads."""
    kind = type(getattr(config, "agent", None))
    return {FORMAT_VERSION: _FORMAT, AGENT_TYPE: _name_type(kind), **_encode(config)}


def _encode(config: Any) -> dict[str, Any]:
    """Return the fields of a config as JSON reads them."""
    return json.loads(json.dumps(dataclasses.asdict(config, dict_factory=_Section.of_fields)))


class _Section(dict):
    """The fields of a config by their names, unlike a field that is a dict."""

    @classmethod
    def of_fields(cls, fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Encode fields that are dicts: the types of their values are not declared."""
        return cls(
            (name, encode(value) if type(value) is dict else value) for name, value in fields
        )


def _name_type(kind: type) -> str:
    """Return the name of one of our classes, 'module:name' for a user-defined subclass."""
    is_ours = kind.__module__.partition(".")[0] in (__name__.partition(".")[0], "builtins")
    return kind.__name__ if is_ours else user_code.name_function(kind)


def read_values(workdir: pathlib.Path) -> dict[str, Any]:
    """Read the fields of the config that the file of a run holds, as nested dicts.

    Raises:
      ValueError: there is no such folder, or it holds no such file or one of a different version.
    """
    values = _read_file(workdir)
    return {
        name: value for name, value in values.items() if name not in (_USER_CODE, ENVIRONMENT_SPEC)
    }


def read_spec(workdir: pathlib.Path) -> SpecRecord:
    """Return the environment's spec at the start of a run, {} if it was not recorded."""
    return _read_file(workdir).get(ENVIRONMENT_SPEC, {})


def agent_name(config_type: str | None) -> str:
    """Return 'Ape-X DQN' for 'ApexDQNConfig', 'Mine' for 'module:MineConfig', '?' for None."""
    name = str(config_type or "?").rpartition(":")[2].removesuffix("Config")
    return re.sub(r"^Apex(?=\w+$)", "Ape-X ", name)


def read_config(
    workdir: pathlib.Path, agent_types: Collection[type], with_file: bool = True
) -> ExperimentConfig:
    """Rebuild the config of a run, and make the user code that it names importable.

    Args:
      workdir: folder of the run.
      agent_types: config classes that its agent may have, or a subclass of which.
      with_file: whether to execute the config file of the run if the config is not valid without
        what it registers, and to register ids that the run's program did.

    Raises:
      ValueError: there is no such run, or its file holds unknown fields or wrong values.
    """
    values = _read_file(workdir)
    recorded = values.pop(_USER_CODE, None)
    user_code.restore(recorded, with_ids=with_file)
    types = {kind.__name__: kind for kind in agent_types}
    name = str(values.pop(AGENT_TYPE, None))
    values.pop(FORMAT_VERSION, None)
    values.pop(ENVIRONMENT_SPEC, None)
    if isinstance(environment := values.get("environment"), dict):
        environment.setdefault("action_mask", None)  # Earlier versions masked nothing.
    try:
        if with_file and user_code.CONFIG_MODULE in json.dumps([name, values]):
            user_code.execute_recorded_file(recorded)  # It defines what they name.
        kind: Any = types.get(name)
        if ":" in name:
            kind = user_code.find_function(name, AGENT_TYPE)
        if not (isinstance(kind, type) and issubclass(kind, tuple(agent_types))):
            raise ValueError(f"{AGENT_TYPE} is {name!r}; it has to be one of {', '.join(types)}.")
        # Like `ExperimentConfig`, but without defaults, and with the config class of this agent.
        sections = {"agent": kind, "environment": EnvironmentConfig, "run": RunConfig}
        read = make_config(dataclasses.make_dataclass("Config", sections.items()), decode(values))
        config = ExperimentConfig(read.agent, read.environment, read.run)
        try:
            config.validate()
        except ValueError:  # The user's config file may register what the config names.
            if not (with_file and user_code.execute_recorded_file(recorded)):
                raise
            config.validate()
    except ValueError as error:
        raise ValueError(f"{workdir / CONFIG_FILE}: {error}") from error
    return config


def check_same_run(workdir: pathlib.Path, config: Any) -> None:
    """Raise a ValueError unless the run in a folder can be resumed with a config."""
    difference = find_difference(read_values(workdir), config)
    if difference is not None:
        field, old, new = difference
        raise ValueError(
            f"The folder {workdir} holds a run with {field} {decode(old)!r}, not "
            f"{decode(new)!r}; only fields of run, {', '.join(_FREE_FIELDS)} can change when it "
            "is resumed."
        )


def check_same_spec(workdir: pathlib.Path, spec: SpecRecord) -> None:
    """Raise a ValueError if a run was started in an environment with a different spec."""
    difference = find_spec_difference(read_spec(workdir), spec)
    if difference is not None:
        name, old, new = difference
        raise ValueError(
            f"The run in {workdir} was started in an environment whose {name} are {old}; now they "
            f"are {new}, for which its networks are not made. Change the environment back, or "
            "begin another run."
        )


def find_difference(before: dict[str, Any], config: Any) -> tuple[str, Any, Any] | None:
    """Find the first difference that keeps a run from being resumed with a config.

    Args:
      before: `to_values` of the config that the run has had.
      config: the new one.

    Returns:
      The path of the first field that differs, and its two values; None if none does.
    """
    now = to_values(config)
    now["environment"]["action_repeat"] = config.environment.num_repeats
    # Older versions did not record which builder it was.
    builder = {"builder": now["agent"].get("builder")}
    before = with_defaults(before, {**_defaults(type(config.agent), config.agent), **builder})
    for section in _FIXED_SECTIONS:
        old = before.get(section)
        if isinstance(old, dict) and _AUTO in (old.get(_TORSO), now[section].get(_TORSO)):
            old |= {name: now[section][name] for name in old if name in _CHOSEN_FIELDS}
        difference = _first_difference(old, now[section], section)
        if difference is not None:
            return difference
    return None


def with_defaults(values: dict[str, Any], agent: dict[str, Any] | None = None) -> dict[str, Any]:
    """Add the defaults of fields that the version of the package which wrote a config did not have.

    Args:
      values: `to_values` of the config.
      agent: defaults of its agent's fields; by default of the public class that it names.
    """
    if agent is None:
        name = str(values.get(AGENT_TYPE))
        agent = _defaults(getattr(_PACKAGE, name)) if name in _PACKAGE.__all__ else {}
    defaults = {
        "agent": agent,
        "environment": _defaults(EnvironmentConfig),
        "run": _defaults(RunConfig),
    }
    return {
        name: _complete(section, defaults[name])
        if name in defaults and isinstance(section, dict)
        else section
        for name, section in values.items()
    }


def _defaults(kind: type, section: Any = None) -> dict[str, Any]:
    """Return the values of a section whose fields have their defaults.

    Args:
      kind: class of the section.
      section: gives the values of fields without a default, which a user-defined class may have.
    """
    fields = dataclasses.fields(section) if section is not None else ()
    required = [field.name for field in fields if field.init and not _has_default(field)]
    try:
        return _encode(kind(**{name: getattr(section, name) for name in required}))
    except TypeError:  # It is no class of a config, or one that is made in an unusual way.
        return {}


def _has_default(field: dataclasses.Field) -> bool:
    return not (field.default is field.default_factory is dataclasses.MISSING)


def _complete(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    completed = {**defaults, **values}
    for name, default in defaults.items():
        if isinstance(default, dict) and isinstance(completed[name], dict):
            completed[name] = _complete(completed[name], default)
    return completed


def _read_file(workdir: pathlib.Path) -> dict[str, Any]:
    if not os.path.isdir(workdir):  # It may be in a folder that cannot be entered.
        raise ValueError(f"{workdir} is no folder; name the work directory of a run.")
    try:
        values = json.loads((workdir / CONFIG_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{workdir} holds no run: it has no {CONFIG_FILE} that can be read.")
    version = values.get(FORMAT_VERSION, _FORMAT)
    if version != _FORMAT:
        raise ValueError(
            f"{workdir} was written by a different version of apex_agents: {FORMAT_VERSION} is "
            f"{version!r}, not {_FORMAT}."
        )
    return values


def _first_difference(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the path of the first field that differs and its two values, None if none does."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return (path, old, new) if old != new and path not in _FREE_FIELDS else None
    for name in {**old, **new}:
        difference = _first_difference(old.get(name), new.get(name), f"{path}.{name}")
        if difference is not None:
            return difference
    return None
