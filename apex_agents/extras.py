"""Extras: libraries that only some commands need and that are installed when they are wanted."""

import importlib.machinery
import shlex
import sys


def missing_extra(name: str, user: str) -> ValueError:
    """Make the error for an extra that is not installed, such as 'wandb'; `user` needs it."""
    package, python = f"'apex_agents[{name}]'", shlex.quote(sys.executable)
    command = f"{python} -m pip install {package}"
    # An environment that uv has made may have no pip.
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        command = f"uv pip install --python {python} {package}"
    return ValueError(f"{user} needs the extra {name!r}, which this command installs: {command}")
