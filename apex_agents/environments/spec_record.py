"""Records of environment specs in files: the properties on which networks depend."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from apex_agents.environments.actions import BoxActions, CombinedActions, DiscreteActions
from apex_agents.environments.vector_environment import EnvironmentSpec

SpecRecord = Mapping[str, Mapping[str, Any]]


def record_spec(spec: EnvironmentSpec) -> SpecRecord:
    """Return the properties on which networks depend, as JSON values."""
    return {"observations": _record(spec.observations), "actions": _record(spec.actions)}


def find_spec_difference(before: SpecRecord, now: SpecRecord) -> tuple[str, str, str] | None:
    """Return the name of the entry that differs and both descriptions; None if none does.

    The name is 'observations' or 'actions'. What is unknown on one side, such as all of
    a `{}`, does not differ.
    """
    for name in (name for name in now if name in before):
        old, new = before[name], now[name]
        if old.keys() - _OWN != new.keys() - _OWN or any(
            _ordered(old[key]) != _ordered(new[key]) for key in old.keys() & new.keys()
        ):
            return name, describe_record(old), describe_record(new)
    return None


def _ordered(entry: Any) -> Any:
    """Return an entry that differs from one whose parts are in another order, as networks do."""
    return [*entry.items()] if isinstance(entry, Mapping) else entry


# Entries from the environment's own space, which records of earlier versions lack.
_OWN = {"start", "low", "high", "parts"}


def _record(spec: Any) -> dict[str, Any]:
    if hasattr(spec, "num_values"):
        own: dict[str, Any] = (
            {"start": int(spec.space.start)} if isinstance(spec, DiscreteActions) else {}
        )
        if isinstance(spec, CombinedActions):
            own = {"sizes": list(spec.sizes)}
        return {"num_values": int(spec.num_values), **own}
    if unmasked := getattr(spec, "unmasked", None):
        return {**_record(unmasked), "mask": spec.mask}
    record: dict[str, Any] = {"dtype": str(spec.dtype), "shape": list(spec.shape)}
    if spec.dtype == np.uint8:  # Networks divide bytes by their maximum.
        record["maximum"] = int(np.max(getattr(spec, "maximum", 255)))
    if isinstance(spec, BoxActions):  # Actions are scaled to these bounds.
        low, high = spec.space.low, spec.space.high
        record |= {"low": low.tolist(), "high": high.tolist()}
    elif parts := getattr(spec, "parts", ()):
        described = {part.name: describe_record(_record(part)) for part in parts}
        record["parts"] = {name.removeprefix("observation"): d for name, d in described.items()}
    return record


def describe_record(record: Mapping[str, Any]) -> str:
    """Describe observations or actions, of which `record_spec` has made a record, for people."""
    if "num_values" in record:
        start = f", from {record['start']}" if record.get("start") else ""
        sizes = f", combinations of {record['sizes']}" if "sizes" in record else ""
        return f"discrete, {record['num_values']} of them{start}{sizes}"
    most = f" up to {record['maximum']}" if "maximum" in record else ""
    bounds = f" between {record['low']} and {record['high']}" if "low" in record else ""
    parts = [f"{path}: {part}" for path, part in record.get("parts", {}).items()]
    listed = f" ({', '.join(parts)})" if parts else ""
    masked = f" with the mask {record['mask']!r}" if "mask" in record else ""
    return f"{record['dtype']} {record['shape']}{most}{bounds}{listed}{masked}"
