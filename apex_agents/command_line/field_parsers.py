"""Parsers of the values that the flags of fields take."""

import ast
import contextlib
from typing import Any

from absl import flags
from ml_collections import config_flags


def register_field_parsers() -> None:
    """Let flags of fields that are dicts, numbers and whole numbers have these parsers."""
    config_flags.register_flag_parser_for_type(dict, _DictParser())
    config_flags.register_flag_parser_for_type(float, _NumberParser())
    config_flags.register_flag_parser_for_type(int, _WholeNumberParser())


class _DictParser(flags.ArgumentParser):
    """Parser of a dict as Python writes it: "{'size': 7}"."""

    def parse(self, argument: Any) -> dict:
        value = argument if isinstance(argument, dict) else ast.literal_eval(argument)
        if not isinstance(value, dict):
            raise ValueError(f"it has to be a dict such as {{'size': 7}}, not {argument!r}")
        return value


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
