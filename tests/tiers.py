"""Tiers of the tests: what a test starts decides when it runs.

A `unit` test starts nothing, a `reverb` test starts replay servers within its own process, and a
`process` test starts programs. The tier follows from the code of the test and of its fixtures, so
that no test is marked by hand. `conftest.py` adds the markers and makes a test fail that starts
more than its tier allows.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import multiprocessing.process
import os
import pathlib
import subprocess
import types
from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib.font_manager  # noqa: F401  # Asks a program for fonts when it is imported.
import mujoco  # noqa: F401  # Starts a program when it is imported.
import numpy.testing  # noqa: F401  # Asks a program for the processor's features when it is imported.
import pytest
import reverb

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIERS = ("unit", "reverb", "process")  # From the cheapest to the most expensive.

# Programs that a user needs, in `make test` too: files, or single tests of a file.
ESSENTIAL = (
    "tests/test_program.py",  # Trains both agents to the end of their runs.
    "tests/test_docs.py::test_example_learns",
    "tests/test_docs.py::test_the_pages_are_what_the_code_says",
    "tests/faults/test_stops.py::test_ctrl_c",
    "tests/faults/test_stops.py::test_a_run_resumes_where_it_was_stopped",
    "tests/faults/test_deaths.py::test_killed_actor",
    "tests/faults/test_deaths.py::test_killed_evaluator",
    "tests/faults/test_deaths.py::test_killed_learner",
    "tests/faults/test_deaths.py::test_killed_replay",
)
# In no target but `make test-faults`: a hundred short trainings, three runs of half an hour, four
# stops of half a minute.
SLOW = (
    "tests/command_line/test_fuzz.py::test_config_is_refused_or_learns",
    "tests/faults/test_soak.py",
    "tests/faults/test_deaths.py::test_stopped_node",
)
# A hang in C++ does not let Python handle a signal, so the other tiers keep the thread that
# pyproject.toml names, which ends the whole process. Programs are waited for in Python: there a
# signal leaves the fixtures the time to end them.
PROCESS_TIMEOUT_SECONDS = 1200
SLOW_TIMEOUT_SECONDS = 3 * 3600

# What raises the tier of a test that names it: modules and functions of other libraries ...
_STARTERS = {
    "subprocess": "process",
    "multiprocessing": "process",
    "fork": "process",
    "ray": "process",
    "AsyncVectorEnv": "process",
    "wandb": "process",
    "executable": "process",
    "Server": "reverb",
    # ... and of ours what uses these.
    "ForkServer": "process",
    "LocalNodeProcess": "process",
    "LocalNodes": "process",
    "VideoWriter": "process",
    "EvaluationVideos": "process",
    "FilmedActor": "process",
    "start_process": "process",
    "Runner": "process",
    "WandbExport": "process",
    "evaluate": "process",
    "open_server": "process",
    "launch_program": "process",
    "check_own_update": "reverb",  # Only it, of what `check_experiment` does, starts a server.
    "run_local": "reverb",
    "_start_server": "reverb",
}
# Files and fixtures whose tests are `process` whatever their code says: a fuzz test takes minutes,
# and what looks for OpenGL starts a program once in a while.
_PROCESS = ("tests/command_line/test_fuzz.py", "opengl")


def markers_of(item: pytest.Function) -> Iterator[pytest.MarkDecorator]:
    """Yield the markers of a test: its tier, `essential`, `slow` and how long it may take."""
    tier = tier_of(item)
    yield getattr(pytest.mark, tier)
    file = _file_of(item)
    names = {file, f"{file}::{item.originalname}"}
    if names & set(ESSENTIAL):
        yield pytest.mark.essential
    if names & set(SLOW):
        yield pytest.mark.slow
        yield pytest.mark.timeout(SLOW_TIMEOUT_SECONDS, method="signal")
    elif tier == "process":
        yield pytest.mark.timeout(PROCESS_TIMEOUT_SECONDS, method="signal")


def tier_of(item: pytest.Function) -> str:
    """Return the highest tier that a test needs, with its fixtures and parameters."""
    if {_file_of(item), *item.fixturenames} & set(_PROCESS):
        return "process"
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    roots = [item.function, *(definitions[-1].func for definitions in fixtures)]
    if hasattr(item, "callspec"):
        roots.extend(item.callspec.params.values())
    return max(needed_tiers(roots), key=TIERS.index, default="unit")


def needed_tiers(roots: Iterable[Any]) -> set[str]:
    """Return the tiers of all code of the tests that functions and classes reach by name."""
    tiers, seen = set(), set()
    pending = [root for root in roots if _is_ours(root)]
    while pending:
        code = pending.pop()
        if code not in seen:
            seen.add(code)
            own_tiers, references = _read(code)
            tiers.update(own_tiers)
            pending.extend(references)
    return tiers


def _file_of(item: pytest.Function) -> str:
    return item.path.relative_to(ROOT).as_posix()


@contextlib.contextmanager
def forbid_more_than(tier: str) -> Iterator[None]:
    """Make everything fail that a test of the tier does not start."""
    forbidden: list[tuple[Any, str]] = []
    if tier != "process":
        forbidden += [
            (subprocess.Popen, "__init__"),
            (multiprocessing.process.BaseProcess, "start"),
            (os, "fork"),
        ]
    if tier == "unit":
        forbidden += [(reverb.Server, "__init__")]

    def refuse(*args: Any, **kwargs: Any) -> None:
        pytest.fail(f"starts more than a test of the tier `{tier}` may: see tests/tiers.py")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in forbidden:
            patch.setattr(owner, name, refuse)
        yield


@functools.cache
def _read(code: Any) -> tuple[list[str], list[Any]]:
    """Return the tiers that a function or class needs itself, and the code that it refers to."""
    if isinstance(code, type):
        members = (getattr(member, "fget", member) for member in vars(code).values())
        members = (getattr(member, "__func__", member) for member in members)
        return [], [found for found in (*members, *code.__bases__) if _is_ours(found)]
    function = inspect.unwrap(code)
    names = set(_names(function.__code__))
    values = [function.__globals__[name] for name in names & function.__globals__.keys()]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for module in filter(inspect.ismodule, list(values)):
        values += [vars(module)[name] for name in names & vars(module).keys()]
    return [_STARTERS[name] for name in names & _STARTERS.keys()], list(filter(_is_ours, values))


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals, modules and attributes in a function and those within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_ours(value: Any) -> bool:
    """Return whether a value is code of the tests, this module excluded."""
    if not isinstance(value, (types.FunctionType, type)) or value.__module__ == __name__:
        return False
    file = getattr(inspect.getmodule(value), "__file__", None)
    return file is not None and pathlib.Path(file).is_relative_to(ROOT / "tests")
