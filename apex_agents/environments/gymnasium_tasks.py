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
from typing import Any, NamedTuple

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
    they are imported. First come those whose name begins the id, then those whose source has it
    without its version, then all others, which may compose it.
    """
    word = re.sub(r"-v\d+$", "", name.rpartition("/")[2]).encode()
    pending = list(_find_packages())
    for is_likely in (
        lambda package: package.begins(name),
        lambda package: package.mentions(word),
        lambda package: True,
    ):
        for package in filter(is_likely, list(pending)):
            pending.remove(package)
            package.load()
            if name in gymnasium.registry:
                return


class _Package(NamedTuple):
    """An installed package that may register ids."""

    plugins: list[Any]  # Its entry points for gymnasium.
    sources: list[importlib.metadata.PackagePath]  # Empty if it is developed in another folder.

    @property
    def modules(self) -> set[str]:
        return {f.parts[0] for f in self.sources if len(f.parts) == 2 and f.name == "__init__.py"}

    def begins(self, name: str) -> bool:
        return any(name.lower().startswith(each.split("_")[0].lower()) for each in self.modules)

    def mentions(self, word: bytes) -> bool:
        return not self.sources or any(word in file.read_binary() for file in self.sources)

    def load(self) -> None:
        for plugin in self.plugins:
            with _loading(f"gymnasium plugin {plugin.name}"):
                register = plugin.load()
                registration.current_namespace = None if plugin.name == "__root__" else plugin.name
                register()
            registration.current_namespace = None
        for module in sorted(self.modules - sys.modules.keys()):
            with _loading(f"package {module}"):
                importlib.import_module(module)


def _find_packages() -> Iterator[_Package]:
    for package in importlib.metadata.distributions():
        plugins = [*package.entry_points.select(group="gymnasium.envs")]
        if plugins or any(map(_NEEDS_GYMNASIUM, package.requires or ())):
            listed = [file for file in package.files or () if file.suffix == ".py"]
            # A list of files may name some that were removed.
            yield _Package(plugins, [f for f in listed if pathlib.Path(f.locate()).is_file()])


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
