"""Ids of gymnasium: those that are registered, and those that modules and packages register."""

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import logging
import re
import sys
import warnings
from collections.abc import Iterator

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
        _load_plugins()
    if name not in gymnasium.registry:
        _import_packages(name)
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


def _import_packages(name: str) -> None:
    """Import installed packages that may register an id, since they need gymnasium, until one does.

    Such a package has a name with which the id begins, or the id without its version in its source.
    """
    word = re.sub(r"-v\d+$", "", name.rpartition("/")[2])
    for package in importlib.metadata.distributions():
        if not any(map(_NEEDS_GYMNASIUM, package.requires or ())):
            continue
        files = [file for file in package.files or () if file.suffix == ".py"]
        modules = {f.parts[0] for f in files if len(f.parts) == 2 and f.name == "__init__.py"}
        begins = any(name.lower().startswith(each.split("_")[0].lower()) for each in modules)
        if not begins and not any(word.encode() in file.read_binary() for file in files):
            continue
        for module in sorted(modules - sys.modules.keys()):
            with (
                _logging_failure(f"package {module}"),
                contextlib.redirect_stdout(None),  # pygame greets whoever imports it.
                warnings.catch_warnings(),  # The nodes import it, too, and log them.
            ):
                warnings.simplefilter("ignore")
                importlib.import_module(module)
        if name in gymnasium.registry:
            return


# Matches a requirement that no extra adds.
_NEEDS_GYMNASIUM = re.compile(r"gymnasium\b(?![-_.])(?!.*\bextra\b)", re.IGNORECASE).match


@functools.cache  # Once is enough.
def _load_plugins() -> None:
    """Let installed packages register their environments, as gymnasium did before 1.0."""
    for plugin in importlib.metadata.entry_points(group="gymnasium.envs"):
        with _logging_failure(f"gymnasium plugin {plugin}"):
            register = plugin.load()
            registration.current_namespace = None if plugin.name == "__root__" else plugin.name
            register()
        registration.current_namespace = None


@contextlib.contextmanager
def _logging_failure(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # A package that is broken does not concern tasks of others.
        _logger.warning("%s: %s: %s", what, type(error).__name__, error)
