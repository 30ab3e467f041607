"""Parsers of the values that the flags of fields take."""

import ast
import contextlib
import json
from typing import Any

from absl import flags
from ml_collections import config_flags


def register_field_parsers() -> None:
    """Let flags of fields that are dicts, numbers and whole numbers have these parsers."""
    config_flags.register_flag_parser_for_type(dict, _DictParser())
    config_flags.register_flag_parser_for_type(float, _NumberParser())
    config_flags.register_flag_parser_for_type(int, _WholeNumberParser())


def parse_value(text: str) -> Any:
    """Return what a text is as JSON or Python writes it, or the text if it is neither."""
    try:
        return _parse_literal(text)
    except ValueError:
        return text


def parse_dict(text: str) -> dict[str, Any]:
    """Return a dict as JSON or Python writes it; a ValueError says that a text is none."""
    with contextlib.suppress(ValueError):
        value = _parse_literal(text)
        if isinstance(value, dict):
            return value
    raise ValueError(
        "it has to be a dict as JSON or Python writes it, with its quotes, such as "
        "'{\"size\": 7}', or single entries of it, such as kwargs.size=7"
    )


class _DictParser(flags.ArgumentParser):
    """Parser of a dict."""

    def parse(self, argument: Any) -> dict:
        return argument if isinstance(argument, dict) else parse_dict(argument)


def _parse_literal(text: str) -> Any:
    """Return a value of JSON or a literal of Python, in which names of JSON may be; or raise.

    Raises:
      ValueError: the text is neither.
    """
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text, parse_constant=int)  # It raises for NaN and infinity.
    try:
        return ast.literal_eval(_JSONNames().visit(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is no literal") from error


class _JSONNames(ast.NodeTransformer):
    """Replaces the names that JSON has for True, False and None."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        names = {"true": True, "false": False, "null": None}
        return ast.Constant(names[node.id]) if node.id in names else node


class _NumberParser(flags.FloatParser):
    """Parses numbers and None, for which a config checks whether it is allowed."""

    def convert(self, argument: Any) -> Any:
        if str(argument).lower() == "none":
            return None
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError("it has to be a number") from None


class _WholeNumberParser(flags.IntegerParser):
    """Parses whole numbers in any form, such as 1000000, 1_000_000 and 1e6, and None."""

    def convert(self, argument: Any) -> Any:
        if str(argument).lower() == "none":
            return None
        with contextlib.suppress(ValueError):
            return super().convert(argument)
        with contextlib.suppress(ValueError):
            if (number := float(argument)).is_integer():
                return int(number)
        raise ValueError("it has to be a whole number, such as 1000 or 1e3")
