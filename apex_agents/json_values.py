"""Values of configs as JSON holds them: its own kinds, and tuples, which it has not."""

import json
from typing import Any

_TUPLE = "__tuple__"


def encode(value: Any) -> Any:
    """Return a value with `{"__tuple__": [...]}` in place of every tuple in it."""
    if isinstance(value, dict):
        return {key: encode(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [encode(part) for part in value]
        return {_TUPLE: parts} if isinstance(value, tuple) else parts
    return value


def decode(value: Any) -> Any:
    """Invert `encode`."""
    if isinstance(value, dict):
        if value.keys() == {_TUPLE} and isinstance(value[_TUPLE], list):
            return tuple(map(decode, value[_TUPLE]))
        return {key: decode(part) for key, part in value.items()}
    return [decode(part) for part in value] if isinstance(value, list) else value


def can_be_kept(value: Any) -> bool:
    """Return whether a value is the same after it was encoded, written as JSON and read."""
    try:
        text = json.dumps(encode(value), allow_nan=False, ensure_ascii=False)
        return decode(json.loads(text.encode())) == value  # Not all strings have UTF-8.
    except (TypeError, ValueError, RecursionError):
        return False
