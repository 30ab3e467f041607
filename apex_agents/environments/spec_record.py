"""The spec of an environment as a file records it: as much as networks depend on."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from apex_agents.environments.vector_environment import EnvironmentSpec

SpecRecord = Mapping[str, Mapping[str, Any]]


def record_spec(spec: EnvironmentSpec) -> SpecRecord:
    """Return what networks depend on in observations and actions, as JSON values."""
    return {"observations": _record(spec.observations), "actions": _record(spec.actions)}


def find_spec_difference(before: SpecRecord, now: SpecRecord) -> tuple[str, str, str] | None:
    """Return what differs, as 'observations', and a description of both; None if nothing does.

    Either may be {}: what is unknown does not differ.
    """
    for name in now:
        if name in before and before[name] != now[name]:
            return name, _describe(before[name]), _describe(now[name])
    return None


def _record(spec: Any) -> dict[str, Any]:
    if hasattr(spec, "num_values"):
        return {"num_values": int(spec.num_values)}
    record: dict[str, Any] = {"dtype": str(spec.dtype), "shape": list(spec.shape)}
    if spec.dtype == np.uint8:  # Networks divide bytes by their maximum.
        record["maximum"] = int(np.max(getattr(spec, "maximum", 255)))
    return record


def _describe(record: Mapping[str, Any]) -> str:
    if "num_values" in record:
        return f"discrete, {record['num_values']} of them"
    most = f" up to {record['maximum']}" if "maximum" in record else ""
    return f"{record['dtype']} {record['shape']}{most}"
