"""What --help says about the fields of a config: their values and meanings."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

_WIDTH = 100


def describe_fields(config: Any, name: str) -> Iterator[str]:
    """Yield the lines that list all fields of the config of this name."""
    yield f"settings of {name}:\n"
    for path, value, meaning in _walk(config, "--config."):
        yield f"  {path}={value}"
        yield textwrap.fill(meaning, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def _walk(config: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, the value and the meaning of each field, also of configs within a config."""
    meanings = read_meanings(type(config))
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from _walk(value, f"{path}.")
        else:
            yield path, value, meanings.get(field.name, "")


def read_meanings(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of fields under `Attributes:`."""
    texts = [inspect.cleandoc(base.__doc__ or "") for base in reversed(kind.__mro__)]
    sections = "\n".join(text.partition("\nAttributes:\n")[2] for text in texts)
    entries = re.findall(r"^  ([\w, ]+): (.*(?:\n   .*)*)", sections, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
