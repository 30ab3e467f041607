"""Tests of how the code hangs together: which module may import what, and how long it may be."""

import ast
import itertools
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "apex_agents"
FOLDERS = (PACKAGE, "launch", "configs")

# Imports run downwards: a unit imports itself and units of a lower layer only. Algorithms share a
# layer, so that none of them imports another. A unit is a folder or a single file of the package.
LAYERS = (
    ("launch",),
    ("configs",),
    ("command_line",),
    ("launcher",),
    ("program",),
    ("sweep", "cluster", "local"),
    ("evaluation",),
    ("nodes",),
    ("metrics", "plotting"),
    ("runs",),
    ("experiment",),
    ("registry",),
    ("builder", "dqn", "dpg"),
    ("acting", "learning"),
    ("replay",),
    ("config",),
    ("environments",),
    ("validation", "exit_codes"),
)
# The package's `__init__.py` names what users import, from any layer.
PUBLIC_NAMES = "apex_agents/__init__.py"

# Libraries that only some files may import: paths, or folders with a slash at the end.
ALLOWED_IMPORTERS = {
    "launchpad": (
        "apex_agents/program.py",
        "apex_agents/launcher.py",
        "apex_agents/nodes/",
        "apex_agents/cluster/",
        "apex_agents/evaluation/",
        "launch/",
    ),
    "reverb": (
        "apex_agents/acting/adder.py",
        "apex_agents/replay/",
        "apex_agents/learning/",
        "apex_agents/builder.py",
        "apex_agents/dqn/builder.py",
        "apex_agents/dpg/builder.py",
        "apex_agents/local.py",
        "apex_agents/program.py",
        "apex_agents/metrics/",
        "apex_agents/nodes/",
        "apex_agents/evaluation/",
    ),
    "absl.flags": ("launch/", "apex_agents/command_line/"),
    "ml_collections": ("launch/", "apex_agents/command_line/"),
    "ale_py": ("apex_agents/environments/",),
    "gymnasium": ("apex_agents/environments/",),
    "dm_control": ("apex_agents/environments/",),
    # An extra: nobody else may need it.
    "ray": ("apex_agents/cluster/",),
    "imageio_ffmpeg": ("apex_agents/evaluation/video.py",),
    "PIL": ("apex_agents/evaluation/filming.py",),
}

# What a person reads in the terminal.
PRINTERS = ("apex_agents/launcher.py", "apex_agents/command_line/")

MAX_MODULE_LINES = 260

# From the command to the loss: what someone reads who wants to know how Ape-X DQN works.
READING_PATH = (  # The README's reading order.
    "launch/apex_dqn.py",
    "apex_agents/program.py",
    "apex_agents/dqn/builder.py",
    "apex_agents/acting/loop.py",
    "apex_agents/acting/actor.py",
    "apex_agents/dqn/policy.py",
    "apex_agents/acting/adder.py",
    "apex_agents/replay/writers.py",
    "apex_agents/replay/transitions.py",
    "apex_agents/replay/tables.py",
    "apex_agents/replay/dataset.py",
    "apex_agents/learning/learner.py",
    "apex_agents/dqn/learning.py",
    "apex_agents/learning/losses.py",
)
MAX_READING_PATH_LINES = 1410


def list_modules() -> list[str]:
    files = itertools.chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS)
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


MODULES = list_modules()


def parse(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(), filename=module)


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names of all imports, those inside functions and relative ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield f"relative.{node.module}"
            else:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def unit_of_module(module: str) -> str:
    parts = pathlib.PurePosixPath(module).with_suffix("").parts
    return parts[1] if parts[0] == PACKAGE else parts[0]


def layer_of(unit: str) -> int:
    layers = [index for index, layer in enumerate(LAYERS) if unit in layer]
    assert layers, f"{unit} belongs to no layer of this test"
    return layers[0]


def import_violations(module: str, tree: ast.Module) -> list[str]:
    """Return the imports of our own code that do not run downwards."""
    unit = unit_of_module(module)
    violations = []
    for name in imported_names(tree):
        parts = name.split(".")
        is_ours = parts[0] == PACKAGE and parts[1] != unit
        if parts[0] in ("configs", "relative") or (
            is_ours and layer_of(parts[1]) <= layer_of(unit)
        ):
            violations.append(name)
    return violations


def library_violations(module: str, tree: ast.Module) -> list[str]:
    """Return the imports of libraries that the module is not allowed to import."""
    return [
        name
        for name in imported_names(tree)
        for library, importers in ALLOWED_IMPORTERS.items()
        if f"{name}.".startswith(f"{library}.") and not module.startswith(importers)
    ]


@pytest.mark.parametrize("module", [m for m in MODULES if m != PUBLIC_NAMES])
def test_imports_run_downwards(module):
    assert import_violations(module, parse(module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_libraries_are_imported_only_where_they_belong(module):
    assert library_violations(module, parse(module)) == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(PACKAGE)])
def test_only_the_launcher_prints(module):
    calls = [node.func for node in ast.walk(parse(module)) if isinstance(node, ast.Call)]
    prints = [f.lineno for f in calls if isinstance(f, ast.Name) and f.id == "print"]
    assert module.startswith(PRINTERS) or prints == []


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_short(module):
    assert count_lines(module) <= MAX_MODULE_LINES


def test_the_way_from_the_command_to_the_loss_is_short():
    lines = {module: count_lines(module) for module in READING_PATH}
    assert sum(lines.values()) <= MAX_READING_PATH_LINES, lines


def count_lines(module: str) -> int:
    return len((ROOT / module).read_text().splitlines())


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("apex_agents/dqn/policy.py", "from apex_agents.dpg.config import ApexDPGConfig"),
        ("apex_agents/dpg/policy.py", "from apex_agents.dqn.config import ApexDQNConfig"),
        ("apex_agents/replay/tables.py", "def f():\n  from apex_agents.acting import actor"),
        ("apex_agents/program.py", "from apex_agents.command_line import train"),
        ("apex_agents/environments/toy.py", "import apex_agents.replay.config"),
        ("apex_agents/validation.py", "import apex_agents.environments"),
        ("apex_agents/environments/toy.py", "from .. import validation"),
        ("apex_agents/learning/learner.py", "from apex_agents import experiment"),
        ("apex_agents/nodes/node.py", "from apex_agents import program"),
    ],
)
def test_upward_imports_are_found(module, source):
    assert import_violations(module, ast.parse(source)) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("apex_agents/acting/actor.py", "import reverb"),
        ("apex_agents/experiment.py", "import launchpad as lp"),
        ("apex_agents/program.py", "from absl import app, flags"),
        ("apex_agents/program.py", "import absl.flags"),
    ],
)
def test_libraries_out_of_place_are_found(module, source):
    assert library_violations(module, ast.parse(source)) != []
