"""The config of a run as `config.json` holds it, and the way back."""

import dataclasses
import pathlib
import types
import typing
from collections.abc import Collection
from typing import Any

from apex_agents.config import ExperimentConfig
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import AGENT_TYPE, CONFIG_FILE


def read_config(workdir: pathlib.Path, agent_types: Collection[type]) -> ExperimentConfig:
    """Rebuild the config of a run.

    Fields that a run of an earlier version does not have get their defaults.

    Args:
      workdir: the run's folder.
      agent_types: the config classes that its agent may have.

    Raises:
      ValueError: there is no such run, its file cannot be read, or it holds fields or values that
        this version does not know.
    """
    values = RunFolder(workdir).config
    sections = {name: value for name, value in values.items() if name != AGENT_TYPE}
    try:
        agent_type = _find_agent_type(values, agent_types)
        config = _build(ExperimentConfig, {**sections, "agent": {}}, "")
        config.agent = _build(agent_type, sections.get("agent"), "agent.")
        config.validate()
    except ValueError as error:
        raise ValueError(f"{workdir / CONFIG_FILE}: {error}") from error
    return config


def _find_agent_type(values: dict[str, Any], agent_types: Collection[type]) -> type:
    """Return the agent's class: by its name or, where that is not written, by the fields."""
    known = ", ".join(kind.__name__ for kind in agent_types)
    if AGENT_TYPE in values:
        for kind in agent_types:
            if kind.__name__ == values[AGENT_TYPE]:
                return kind
        raise ValueError(f"{AGENT_TYPE} is {values[AGENT_TYPE]!r}; known are {known}.")
    fields = set(values["agent"]) if isinstance(values.get("agent"), dict) else set()
    fitting = [kind for kind in agent_types if fields and fields <= _field_names(kind)]
    if len(fitting) != 1:
        raise ValueError(
            f"there is no {AGENT_TYPE}, and the fields of agent do not tell which of {known} it is."
        )
    return fitting[0]


def _field_names(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _build(kind: Any, values: Any, path: str) -> Any:
    """Make a value of a declared type from what JSON made of it.

    Args:
      kind: a dataclass, a type, or a union of types.
      values: from JSON.
      path: where it is, with a dot behind it if it is a group of fields.
    """
    if isinstance(kind, types.UnionType):  # Such as `int | None`.
        return values
    if typing.get_origin(kind) is tuple and isinstance(values, list):
        return tuple(values)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return values
    if not isinstance(values, dict):
        raise ValueError(f"{path.rstrip('.')} is {values!r}; it has to be a group of fields.")
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise ValueError(f"{path}{name} is no field of this version.")
    for field in dataclasses.fields(kind):
        has_default = {field.default, field.default_factory} != {dataclasses.MISSING}
        if field.name not in values and not has_default:
            raise ValueError(f"{path}{field.name} is missing.")
    return kind(
        **{name: _build(hints[name], value, f"{path}{name}.") for name, value in values.items()}
    )
