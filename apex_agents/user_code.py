"""Code of users that a config names: 'module:name', found in the folders of Python's path."""

import importlib
from collections.abc import Callable
from typing import Any

from apex_agents.validation import closest


def find_function(reference: str, field: str) -> Callable[..., Any]:
    """Import what 'module:name' names.

    Args:
      reference: dotted name of a module, a colon, and the name of a callable in it.
      field: dotted path of the config's field, for messages.

    Raises:
      ValueError: there is no such module, its import fails, or it has no such callable.
    """
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # The module is code and may raise anything.
        raise ValueError(
            f"{field} is {reference!r}, but the module {module_name!r} cannot be imported: "
            f"{type(error).__name__}: {error}. It has to be in the folder in which the command is "
            "given, in a folder of PYTHONPATH, or installed."
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise ValueError(
            f"{field} is {reference!r}, but {module.__file__} has no callable {name!r}; the "
            f"closest: {closest(name, names)}."
        )
    return found
