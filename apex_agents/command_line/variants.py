"""Fields that a command line gives several values: --config.agent.learning_rate=0.001,0.004.

A comma separates values, unless it is within brackets or quotes: `(64,64),(128,)` are two tuples
and `'a=1,b=2'` is one text. Quotes around a value do not belong to it.
"""

import re
from collections.abc import Sequence

_FIELD = re.compile(r"--?config\.([^=]+)=(.*)", re.DOTALL)
_NUMBER = r"[-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?"
# The least and the greatest value that a search may try; `log:` if magnitudes matter.
RANGE = re.compile(rf"(log:)?({_NUMBER}):({_NUMBER})")


def take_variants(argv: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Take the fields with several values, or with a range of values, from a command line.

    Returns:
      The other arguments, and the texts of the values by the dotted path of their field; a range is
      one text.
    """
    rest: list[str] = []
    variants: dict[str, list[str]] = {}
    for argument in argv:
        match = _FIELD.fullmatch(argument)
        if match is None:
            rest.append(argument)
            continue
        field, values = match[1], split_values(match[2])
        variants.pop(field, None)  # The last one counts.
        if len(values) > 1 or RANGE.fullmatch(values[0]):
            variants[field] = values
        else:
            rest.append(f"--config.{field}={values[0]}")
    return rest, variants


def split_values(text: str) -> list[str]:
    """Split a text at its commas, but for those within brackets or quotes."""
    values, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth = max(depth + (char in "([{") - (char in ")]}"), 0)
        if char == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += char
    return [re.sub(r"^(['\"])(.*)\1$", r"\2", value.strip(), flags=re.DOTALL) for value in values]
