"""Tests of the structure: which module may import what, and how long the reading path may be."""

import ast
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "apex_agents"
FOLDERS = (PACKAGE, "launch", "configs")

# Imports run downwards: a unit imports itself and units of a lower layer only. Algorithms share a
# layer, so that none of them imports another. A unit is a folder or a single file of the package.
# Names of modules in strings count as imports: they may be given to importlib.
LAYERS = (
    ("launch",),
    ("command_line",),
    ("configs",),
    ("command_line",),
    ("training",),
    ("launcher",),
    ("ending", "program", "callbacks"),
    ("learners",),
    ("agent_folder",),
    ("export",),
    ("studies", "cluster", "local", "loading", "initial_run"),
    ("evaluation",),
    ("nodes",),
    ("run_end",),
    ("plotting",),
    ("metrics",),
    ("runs",),
    ("environment_report",),
    ("checks",),
    ("experiment",),
    ("registry",),
    ("dqn", "dpg", "r2d2", "actor_critic"),
    ("builder",),
    ("acting", "learning"),
    ("replay",),
    ("presets",),
    ("config",),
    ("networks",),
    ("legal_actions", "own_torso"),
    ("environments",),
    ("user_code", "torso_config"),
    (
        "validation",
        "exit_codes",
        "extras",
        "precision",
        "process_state",
        "stopwatch",
        "waits",
    ),
    ("fields", "json_values", "repeating"),
)
# The package's `__init__.py` names what users import, from any layer.
PUBLIC_NAMES = "apex_agents/__init__.py"

# Libraries that only some files may import: paths, or folders with a slash at the end.
ALLOWED_IMPORTERS = {
    "launchpad": (
        "apex_agents/program.py",
        "apex_agents/learners.py",
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
        "apex_agents/learners.py",
        "apex_agents/actor_critic/builder.py",
        "apex_agents/local.py",
        "apex_agents/run_end.py",
        "apex_agents/program.py",
        "apex_agents/metrics/",
        "apex_agents/nodes/",
        "apex_agents/evaluation/",
    ),
    "absl.flags": ("launch/", "apex_agents/command_line/"),
    "ale_py": ("apex_agents/environments/",),
    "gymnasium": ("apex_agents/environments/",),
    "dm_control": ("apex_agents/environments/",),
    # An extra, which the rest has to work without.
    "ray": ("apex_agents/cluster/",),
    "onnxruntime": ("apex_agents/export.py",),
    "tf2onnx": ("apex_agents/export.py",),
    "imageio_ffmpeg": ("apex_agents/evaluation/videos.py",),
    "PIL": ("apex_agents/evaluation/videos.py",),
}

# What a person reads in the terminal.
PRINTERS = ("apex_agents/launcher.py", "apex_agents/command_line/")

# No folder of the package may hold more than this share of its lines.
MAX_FOLDER_SHARE = 0.25

# The reading path: from the command to the loss and back to the priorities. It holds every module
# of these rooms that the program and the builder of Ape-X DQN import, directly or through others.
READING_PATH_STARTS = ("launch/apex_dqn.py", "apex_agents/program.py", "apex_agents/dqn/builder.py")
READING_PATH_ROOMS = ("program", "builder", "dqn", "acting", "replay", "learning", "networks")
MAX_READING_PATH_LINES = 4800


def list_modules() -> list[str]:
    files = itertools.chain.from_iterable((ROOT / folder).rglob("*.py") for folder in FOLDERS)
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


MODULES = list_modules()
TREES = {module: ast.parse((ROOT / module).read_text(), filename=module) for module in MODULES}

MODULE_NAME = re.compile(rf"{PACKAGE}(\.\w+)+\.?")  # With a dot: the beginning of an f-string.


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names of all imports: also in functions, in strings, and relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield f"relative.{node.module}"
            else:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and MODULE_NAME.fullmatch(str(node.value)):
            yield node.value.rstrip(".")


def unit_of_module(module: str) -> str:
    parts = pathlib.PurePosixPath(module).with_suffix("").parts
    return parts[1] if parts[0] == PACKAGE else parts[0]


def layer_of(unit: str) -> int:
    layers = [index for index, layer in enumerate(LAYERS) if unit in layer]
    assert layers, f"{unit} belongs to no layer of this test"
    return layers[0]


def import_violations(module: str, tree: ast.Module) -> list[str]:
    """Return the imports of our own code that do not run downwards."""
    if module == PUBLIC_NAMES:
        return []
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


def find_offenders(find: Callable[[str, ast.Module], list[str]]) -> dict[str, list[str]]:
    """Return the violations of a rule by module, for modules that have some."""
    found = {module: find(module, tree) for module, tree in TREES.items()}
    return {module: violations for module, violations in found.items() if violations}


def prints(module: str, tree: ast.Module) -> list[str]:
    """Return the lines in which a module prints that may not."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    lines = [f"line {f.lineno}" for f in calls if isinstance(f, ast.Name) and f.id == "print"]
    return lines if module.startswith(f"{PACKAGE}/") and not module.startswith(PRINTERS) else []


def test_imports_run_downwards():
    assert find_offenders(import_violations) == {}


def test_libraries_are_imported_only_where_they_belong():
    assert find_offenders(library_violations) == {}


def test_only_the_launcher_and_commands_print():
    assert find_offenders(prints) == {}


def reading_path() -> dict[str, int]:
    """Return the modules of the reading path and their lines, in the order of their discovery."""
    lines: dict[str, int] = {}
    pending = list(READING_PATH_STARTS)
    while pending:
        module = pending.pop(0)
        if module not in lines:
            lines[module] = count_lines(module)
            found = map(module_of_name, imported_names(TREES[module]))
            pending += [m for m in found if m and unit_of_module(m) in READING_PATH_ROOMS]
    return lines


def module_of_name(name: str) -> str | None:
    """Return the module that an imported name is, or that holds it; None if it is not ours."""
    path = name.replace(".", "/")
    return next((m for m in (f"{path}.py", f"{path.rpartition('/')[0]}.py") if m in MODULES), None)


def test_the_reading_path_is_short():
    path = reading_path()
    assert {"apex_agents/learning/losses.py", "apex_agents/replay/priorities.py"} <= path.keys()
    listing = "\n".join(f"{lines:5} {module}" for module, lines in path.items())
    print(f"{listing}\n{sum(path.values()):5} lines in {len(path)} modules")
    assert sum(path.values()) <= MAX_READING_PATH_LINES


def test_no_folder_is_larger_than_a_quarter_of_the_package():
    lines = {module: count_lines(module) for module in MODULES if module.startswith(PACKAGE)}
    sizes: dict[str, int] = {}
    for module, count in lines.items():
        folder = pathlib.PurePosixPath(module).parent.name
        sizes[folder] = sizes.get(folder, 0) + count
    assert max(sizes.values()) <= MAX_FOLDER_SHARE * sum(lines.values()), sizes


def count_lines(module: str) -> int:
    return len((ROOT / module).read_text().splitlines())


UPWARD_IMPORTS = (
    ("apex_agents/dqn/policy.py", "from apex_agents.dpg.config import ApexDPGConfig"),
    ("apex_agents/dpg/policy.py", "from apex_agents.dqn.config import ApexDQNConfig"),
    ("apex_agents/replay/tables.py", "def f():\n  from apex_agents.acting import actor"),
    ("apex_agents/program.py", "from apex_agents.command_line import train"),
    ("apex_agents/environments/toy.py", "import apex_agents.replay.config"),
    ("apex_agents/validation.py", "import apex_agents.environments"),
    ("apex_agents/environments/toy.py", "from .. import validation"),
    ("apex_agents/learning/learner.py", "from apex_agents import experiment"),
    ("apex_agents/nodes/node.py", "from apex_agents import program"),
    ("apex_agents/nodes/node.py", "import_module('apex_agents.program')"),
    ("apex_agents/nodes/node.py", "MODULES = ['json', 'apex_agents.launcher']"),
    ("apex_agents/nodes/node.py", "import_module(f'apex_agents.command_line.{name}')"),
)
LIBRARIES_OUT_OF_PLACE = (
    ("apex_agents/acting/actor.py", "import reverb"),
    ("apex_agents/experiment.py", "import launchpad as lp"),
    ("apex_agents/program.py", "from absl import app, flags"),
    ("apex_agents/program.py", "import absl.flags"),
)


def test_violations_are_found():
    cases = [(import_violations, *case) for case in UPWARD_IMPORTS]
    cases += [(library_violations, *case) for case in LIBRARIES_OUT_OF_PLACE]
    cases += [(prints, "apex_agents/dqn/policy.py", "print(1)")]
    unseen = [source for find, module, source in cases if not find(module, ast.parse(source))]
    assert unseen == []


def test_names_in_prose_are_no_imports():
    tree = ast.parse("'See apex_agents.program.'; 'apex_agents'; 'apex_agents/program.py'")
    assert list(imported_names(tree)) == []
