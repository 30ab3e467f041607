"""Finds the file of a study, and the part of it that a command line asks for."""

import os
import pathlib
import re
from collections.abc import Iterable

from apex_agents.command_line.config_files import is_file
from apex_agents.command_line.errors import fail
from apex_agents.presets import CONFIGS
from apex_agents.validation import closest


def find_study(value: str) -> pathlib.Path:
    """Return the file that --figure names, or exit."""
    path = pathlib.Path(os.path.expanduser(value))
    known = sorted(file.stem for file in (CONFIGS / "paper").glob("[!_]*.py"))
    for file in (path, CONFIGS / "paper" / f"figure_{value}.py", CONFIGS / "paper" / f"{value}.py"):
        if value and is_file(file):
            return file
    names = ", ".join(name.removeprefix("figure_") for name in known)
    fail(
        f"--figure={value} is neither a Python file, as a study of yours is, nor one of {names}; "
        f"the closest: {closest(value, known, names.split(', '))}."
    )


def choose(flag: str, pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names in which a regular expression is found, or exit if there are none."""
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        fail(f"--{flag}={pattern} is no regular expression: {error}")
    if not chosen:
        fail(f"--{flag}={pattern} is found in none of: {'; '.join(names)}.")
    return chosen
