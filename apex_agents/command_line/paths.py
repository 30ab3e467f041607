"""Paths of a command line: they begin in the folder in which the command was given.

Code of the user's, such as the module of an environment, may change the folder later.
"""

import os
import pathlib

try:
    STARTED_IN = pathlib.Path.cwd()
except FileNotFoundError:  # The folder has been removed.
    STARTED_IN = pathlib.Path()


def locate(path: str) -> pathlib.Path:
    """Return the absolute path that is meant; one with the ~ of an unknown user stays as it is."""
    expanded = os.path.expanduser(path)
    return pathlib.Path(expanded) if expanded.startswith("~") else STARTED_IN / expanded
