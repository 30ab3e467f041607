"""Ids of gymnasium: those that are registered, and those that modules and packages register."""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import logging
import pathlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
from gymnasium.envs import registration

from apex_agents import user_code
from apex_agents.validation import unknown_name

_logger = logging.getLogger(__name__)


def find_task(task: str, field: str) -> registration.EnvSpec:
    """Return the spec that is registered under an id.

    Args:
      task: an id, or 'module:id' of a module whose import registers it. An id that is not
        registered yet may be one of an installed package: of its entry points of gymnasium, or
        registered by its import.
      field: dotted path of the config's field, for messages.

    Raises:
      ValueError: there is no such module, or no such id.
    """
    module_name, _, name = task.rpartition(":")
    if module_name:
        user_code.import_module(module_name, task, field)
    if name not in gymnasium.registry:
        _load_packages(name)
    if name not in gymnasium.registry and (spec := user_code.kept.get(user_code.ID + task)):
        gymnasium.registry[name] = spec  # The program that trained the run has registered it.
    if name not in gymnasium.registry:
        error = unknown_name("gymnasium task", name, gymnasium.registry)
        raise ValueError(
            f"{error}. For an environment of your own, {field} is 'module:id' of a Python module "
            "whose import registers the id, or environment.suite is 'function'."
        )
    spec = gymnasium.registry[name]
    module_name, _, name = str(spec.entry_point).partition(":")
    if name and module_name.partition(".")[0] not in ("__main__", gymnasium.__name__):
        user_code.import_module(module_name, task, field)  # `gymnasium.make` would do so.
    if module_name == "__main__" and hasattr(sys.modules[module_name], name):
        # Nodes get the class itself: their `__main__` is another module.
        spec = dataclasses.replace(spec, entry_point=getattr(sys.modules[module_name], name))
    if module_name.partition(".")[0] != gymnasium.__name__:
        user_code.kept[user_code.ID + task] = spec
    return spec


def _load_packages(name: str) -> None:
    """Load installed packages that may register an id, until one does.

    They have entry points for it, as before gymnasium 1.0, or need gymnasium and register ids when
    they are imported. Likely ones come first: their name begins the id, or their source has it
    without its version. Others may compose it.
    """
    word = re.sub(r"-v\d+$", "", name.rpartition("/")[2]).encode()
    found: list[tuple[bool, list[Any], set[str]]] = []  # Whether it is likely, plugins, modules.
    for package in importlib.metadata.distributions():
        plugins = [*package.entry_points.select(group="gymnasium.envs")]
        if not plugins and not any(map(_NEEDS_GYMNASIUM, package.requires or ())):
            continue
        listed = [file for file in package.files or () if file.suffix == ".py"]
        files = [file for file in listed if pathlib.Path(file.locate()).is_file()]
        modules = {f.parts[0] for f in files if len(f.parts) == 2 and f.name == "__init__.py"}
        begins = any(name.lower().startswith(each.split("_")[0].lower()) for each in modules)
        # One that is developed elsewhere has no files here.
        is_likely = begins or not files or any(word in file.read_binary() for file in files)
        found.append((is_likely, plugins, modules))
    for _, plugins, modules in sorted(found, key=lambda package: not package[0]):
        for plugin in plugins:
            with _loading(f"gymnasium plugin {plugin.name}"):
                register = plugin.load()
                registration.current_namespace = None if plugin.name == "__root__" else plugin.name
                register()
            registration.current_namespace = None
        for module in sorted(modules - sys.modules.keys()):
            with _loading(f"package {module}"):
                importlib.import_module(module)
        if name in gymnasium.registry:
            return


# Matches a requirement that no extra adds.
_NEEDS_GYMNASIUM = re.compile(r"gymnasium\b(?![-_.])(?!.*\bextra\b)", re.IGNORECASE).match


@contextlib.contextmanager
def _loading(what: str) -> Iterator[None]:
    """Log an error in place of raising it: a package that is broken concerns no other tasks."""
    try:
        # pygame prints a greeting. The nodes log the warnings, since they load it, too.
        with contextlib.redirect_stdout(None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        _logger.warning("%s: %s: %s", what, type(error).__name__, error)
