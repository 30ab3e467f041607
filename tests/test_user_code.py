"""Tests of how code of users is found: here, in other processes, and by later commands."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import sysconfig
import textwrap
import threading
import types
import zlib
from collections.abc import Callable

import cloudpickle
import pytest
from whole_runs import TIMEOUT_SECONDS

from apex_agents import user_code
from apex_agents.nodes.pickling import WithUserCode
from apex_agents.user_code import (
    execute_config_file,
    find_function,
    name_function,
    naming_errors,
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """Gives a folder at the end of Python's path; what is imported from there is forgotten."""
    for name in [name for name in sys.modules if name.startswith(user_code.CONFIG_MODULE)]:
        monkeypatch.delitem(sys.modules, name)  # The config file of another test.
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    user_code.kept.clear()
    user_code.extend_path([str(tmp_path)])
    yield tmp_path
    for name in set(sys.modules) - modules:
        # No library's: what is imported again may break others. Packages of folders have no file.
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or str(file).startswith(f"{tmp_path}/"):
            del sys.modules[name]


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_functions_are_found_by_name_and_named_as_they_are_found(folder):
    write(folder / "rooms" / "small.py", "def make(): return 'small'\n")
    make = find_function("rooms.small:make", "environment.task")
    assert make() == "small"
    assert name_function(make) == "rooms.small:make"
    assert name_function(json.dumps) == "json:dumps"


@pytest.mark.parametrize("function", [lambda: 1, json.JSONEncoder().encode, cloudpickle.dumps])
def test_functions_that_no_module_has_are_found_by_the_same_program(folder, function, monkeypatch):
    if function is cloudpickle.dumps:  # Its module has another function of this name by now.
        monkeypatch.setattr(sys.modules[function.__module__], "dumps", None)
    name = name_function(function)
    assert name.startswith("__main__:")
    assert find_function(name, "environment.task") is function


BASE_7 = b"[['base', 7]]"


def make_adding(number: int) -> Callable[[int], int]:
    return lambda other: number + other


def test_functions_without_a_name_are_told_apart_by_their_values_and_roles(folder):
    functions = [functools.partial(int, base=7), functools.partial(int, base=8)]
    functions += [functools.partial(int, ("7", None)), functools.partial(int, ("7", 1.5))]
    functions += [functools.partial(int, make_adding), functools.partial(int, "make_adding")]
    functions += [make_adding(1), make_adding(2)]
    names = [*map(name_function, functions)]
    assert len(set(names)) == 8
    assert names[0] == f"__main__:int_{zlib.crc32(BASE_7):08x}"
    assert re.fullmatch(r"__main__:make_adding_locals_lambda__[0-9a-f]{8}", names[-1])
    assert name_function(functions[0], "torso_") == f"__main__:torso_{names[0].partition(':')[2]}"
    assert [find_function(name, "environment.task") for name in names] == functions
    assert name_function(functools.partial(int, base=7)) == names[0]


def test_a_later_command_finds_the_functions_of_a_script(folder):
    size = 7
    name = name_function(lambda: size)
    name_function(make_adding(1))  # A different run has this one.
    recorded = json.loads(json.dumps(user_code.record(f'{{"torso": "{name}"}}')))
    assert [*recorded["functions"]] == [name]
    user_code.kept.clear()
    user_code.restore(recorded)
    assert find_function(name, "environment.task")() == 7


@pytest.mark.parametrize("data", [threading.Lock(), bytes(1_000_001)])
def test_functions_that_cannot_be_kept_are_named(folder, data):
    name = name_function(lambda: data)
    assert find_function(name, "environment.task")() is data
    recorded = user_code.record(name)
    user_code.kept.clear()
    user_code.restore(recorded)
    with pytest.raises(ValueError, match=r"environment.task is '__main__:"):
        find_function(name, "environment.task")


def test_functions_of_a_script_are_found_by_the_same_script(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "make", lambda: "made", raising=False)
    assert find_function("__main__:make", "environment.task")() == "made"


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("no_colon", "'module:function'"),
        (":make", "'module:function'"),
        ("no_such_module:make", "ModuleNotFoundError"),
        ("broken_module:make", "ZeroDivisionError"),
        ("script:make", "SystemExit: no licence"),
        ("json:dmups", "dumps"),
        ("json:__doc__", "no callable '__doc__'"),
    ],
)
def test_mistakes_name_the_field_and_the_reference(folder, reference, named):
    write(folder / "broken_module.py", "1 / 0\n")
    write(folder / "script.py", "raise SystemExit('no licence')\n")
    with pytest.raises(ValueError) as caught:
        find_function(reference, "agent.torso")
    assert str(caught.value).startswith(f"agent.torso is {reference!r}")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_are_appended_once_and_shadow_nothing(folder):
    before = list(sys.path)
    user_code.extend_path([str(folder), "/new", "/new", before[0]])
    assert sys.path == [*before, "/new"]


def test_the_installation_is_no_folder_of_the_user(folder):
    user_path = user_code.user_path()
    assert str(folder) in user_path
    assert not [path for path in user_path if "site-packages" in path]
    assert not [path for path in user_path if path.startswith(sys.base_prefix)]


def test_a_folder_below_that_of_python_may_be_the_users(folder, monkeypatch):
    """An example is /usr/src/app, where Python is in /usr."""
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, str(folder.parent))
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setattr(sys, "path", [scripts, *sys.path])  # An installed command has this path.
    assert str(folder) in user_code.user_path()
    assert scripts not in user_code.user_path()


CONFIG = """
    from __future__ import annotations
    import dataclasses
    import sizes

    @dataclasses.dataclass  # It looks for its module.
    class Room:
        size: int = sizes.SMALL

    class Hall(Room):
        def __init__(self):
            super().__init__(sizes.LARGE)

    def get_config():
        return Room
"""


def load_elsewhere(pickled: bytes, code: str, cwd: pathlib.Path) -> str:
    """Unpickles in a process of its own; returns what the code prints of `value`."""
    code = f"import pickle, sys\nvalue = pickle.load(sys.stdin.buffer)\n{code}"
    argv = [sys.executable, "-c", code]
    return subprocess.run(
        argv, input=pickled, cwd=cwd, capture_output=True, check=True, timeout=TIMEOUT_SECONDS
    ).stdout.decode()


@pytest.mark.parametrize("has_folder", [True, False], ids=["same_host", "other_host"])
def test_other_processes_import_what_was_imported_here(folder, tmp_path_factory, has_folder):
    write(folder / "sizes.py", "import lengths.metre\nSMALL, LARGE = 3, lengths.metre.LONG\n")
    write(folder / "lengths" / "metre.py", "LONG = 9\n")
    write(folder / "rooms" / "__init__.py", "from rooms.one import make\n")
    write(folder / "rooms" / "one.py", "import sizes\ndef make(): return sizes.LARGE\n")
    os.utime(folder / "sizes.py", (0, 0))  # Images that are built anew to the same bytes do so.
    make = find_function("rooms:make", "x")
    pickled = cloudpickle.dumps(WithUserCode([make]))
    if not has_folder:
        folder.rename(tmp_path_factory.mktemp("moved") / "elsewhere")
    code = "print(value[0](), value[0].__globals__['__file__'])"
    size, file = load_elsewhere(pickled, code, tmp_path_factory.mktemp("cwd")).split()
    assert size == "9"
    assert file.startswith(str(folder) if has_folder else "/proc/self/fd/")
    assert file.endswith("/rooms/one.py")


def test_a_process_that_finds_other_code_than_the_run_was_started_with_says_so(folder, caplog):
    for name in ("rooms", "walls"):
        write(folder / f"{name}.py", "def make(): return 7\n")
    functions = [find_function(f"{name}:make", "x") for name in ("rooms", "walls")]
    pickled = cloudpickle.dumps(WithUserCode(functions))
    pickle.loads(pickled)
    assert caplog.messages == []
    write(folder / "rooms.py", "def make(): return 8\n")
    pickle.loads(pickled)
    (message,) = caplog.messages
    assert message.startswith(f"{folder / 'rooms.py'} changed after the command was started")


def test_files_that_are_no_modules_of_the_run_are_not_compared(
    folder, tmp_path_factory, caplog, monkeypatch
):
    other = tmp_path_factory.mktemp("scripts")
    write(other / "rooms", "a script in a folder of the path, named as a package elsewhere")
    write(folder / "rooms" / "one.py", "def make(): return 7\n")
    monkeypatch.syspath_prepend(other)
    pickle.loads(cloudpickle.dumps(WithUserCode([find_function("rooms.one:make", "x")])))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ValueError('no room\\nof 3 walls')", "ValueError: no room of 3 walls"),
        ("assert False", "AssertionError"),
        ("x = = 1", "SyntaxError: invalid syntax"),
        (
            "import statistics; statistics.mean([])",
            "StatisticsError: mean requires at least one data point",
        ),
    ],
)
def test_an_error_in_one_line_ends_with_its_place(folder, code, message):
    file = folder / "broken.py"
    write(file, f"\n{code}\n")
    with pytest.raises(ValueError, match="a problem: ") as error, naming_errors("a problem"):
        user_code.execute_config_file(file)
    assert str(error.value) == f"a problem: {message} ({file}, line 2)"


def test_an_error_that_is_raised_unchanged_elsewhere_is_named_in_user_defined_code(folder):
    file = folder / "rooms.py"
    write(file, "def make(number): return int(number)\ndef get_config(): return make\n")
    make = user_code.execute_config_file(file)
    expected = rf"^it fails: ValueError: invalid literal .* \({re.escape(str(file))}, line 1\)$"
    with pytest.raises(ValueError, match=expected), naming_errors("it fails", ValueError):
        make("one")


def test_other_processes_find_what_a_setting_names_in_a_config_file(folder, tmp_path_factory):
    config_file = folder / "my-settings.1.py"
    write(config_file, "def make(): return 7\ndef get_config(): return f'{__name__}:make'\n")
    pickled = cloudpickle.dumps(WithUserCode(user_code.execute_config_file(config_file)))
    config_file.unlink()  # Another host has none.
    code = "from apex_agents.user_code import find_function\nprint(find_function(value, 'x')())"
    assert load_elsewhere(pickled, code, tmp_path_factory.mktemp("cwd")) == "7\n"


@pytest.mark.parametrize("name", ["make", 40 * "m"])  # In pickles its length, 49, is a '1'.
def test_other_processes_find_what_a_setting_names_in_a_script(
    folder, tmp_path_factory, monkeypatch, name
):
    monkeypatch.setattr(sys.modules["__main__"], name, lambda: 7, raising=False)
    reference = f"__main__:{name}"
    assert find_function(reference, "agent.torso")() == 7
    code = "from apex_agents.user_code import find_function\nprint(find_function(value, 'x')())"
    pickled = cloudpickle.dumps(WithUserCode(reference))
    assert load_elsewhere(pickled, code, tmp_path_factory.mktemp("cwd")) == "7\n"


def test_a_function_of_a_notebook_may_be_defined_anew(folder, monkeypatch):
    for value in ("first", "second"):
        monkeypatch.setattr(sys.modules["__main__"], "make", lambda v=value: v, raising=False)
        assert find_function("__main__:make", "agent.torso")() == value
        recorded = user_code.record("__main__:make")
    monkeypatch.delattr(sys.modules["__main__"], "make")
    user_code.restore_functions(recorded)
    assert find_function("__main__:make", "agent.torso")() == "second"


def make_number() -> int:
    return 7


def test_a_run_takes_what_a_notebook_has_defined_anew(folder, monkeypatch):
    script = sys.modules["__main__"]

    def define(value: int) -> None:
        # The code of a notebook is of this module.
        function = types.FunctionType(make_number.__code__.replace(co_consts=(None, value)), {})
        function.__module__ = "__main__"
        monkeypatch.setattr(script, "make_number", function, raising=False)

    def find() -> int:
        return find_function("__main__:make_number", "agent.torso")()

    define(1)
    reference = name_function(script.make_number)
    recorded = user_code.record(reference)
    define(2)
    user_code.restore_functions(recorded)
    assert find() == 1  # The older run, which is loaded, has this one.
    user_code.take_new_definitions()  # A run that is trained does so.
    assert find() == 2
    user_code.restore_functions(user_code.record(reference))
    assert find() == 2
    # A command's own function of this name is of another module.
    user_code.restore_functions(recorded)
    monkeypatch.setattr(script, "make_number", make_number, raising=False)
    user_code.take_new_definitions()
    assert find() == 1


class Maker:
    """Makes a number; it is called itself."""

    def __init__(self, number: int):
        self._number = number

    def __call__(self) -> int:
        return self._number


def test_an_object_that_is_called_is_not_its_class(folder, monkeypatch):
    monkeypatch.setattr(Maker, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Maker", Maker, raising=False)
    reference = name_function(Maker(3))
    user_code.take_new_definitions()
    assert find_function(reference, "environment.task")() == 3
    user_code.restore_functions(user_code.record(reference))
    assert find_function(reference, "environment.task")() == 3


def test_other_processes_get_the_classes_of_a_config_file(folder, tmp_path_factory):
    write(folder / "sizes.py", "SMALL, LARGE = 3, 9\n")
    write(folder / "my_config.py", CONFIG)
    room = user_code.execute_config_file(folder / "my_config.py")
    hall = sys.modules[room.__module__].Hall
    pickled = cloudpickle.dumps(WithUserCode((room, hall)))
    (folder / "my_config.py").unlink()
    code = "print(value[0]().size, value[1]().size)"
    assert load_elsewhere(pickled, code, tmp_path_factory.mktemp("cwd")).split() == ["3", "9"]


def test_a_later_command_finds_the_same_code(folder):
    write(folder / "sizes.py", "SMALL, LARGE = 3, 9\n")
    write(folder / "my_config.py", CONFIG)
    user_code.execute_config_file(folder / "my_config.py")
    recorded = json.loads(json.dumps(user_code.record("")))
    assert recorded["config_file"] == str(folder / "my_config.py")

    for name in ("sizes", "apex_agents_config_my_config"):
        del sys.modules[name]
    sys.path.remove(str(folder))
    user_code.restore(recorded)
    assert user_code.execute_recorded_file(recorded)
    assert sys.modules["apex_agents_config_my_config"].Room().size == 3
    assert not user_code.execute_recorded_file(recorded)  # Once is enough.


def test_a_config_file_of_ours_is_not_recorded(folder):
    write(folder / "our_config.py", "def get_config(): return 7\n")
    assert user_code.execute_config_file(folder / "our_config.py", is_recorded=False) == 7
    assert user_code.record("")["config_file"] is None


def test_a_config_file_may_have_the_name_of_the_settings_that_it_starts_from(folder):
    write(folder / "ours" / "same.py", "def get_config(): return 7\n")
    text = """
    from pathlib import Path
    from apex_agents.user_code import execute_config_file

    def make(): return 8

    def get_config():
        path = Path(__file__).parent / "ours" / "same.py"
        return f"{__name__}:make", execute_config_file(path, is_recorded=False)
    """
    write(folder / "same.py", text)
    reference, number = user_code.execute_config_file(folder / "same.py")
    assert (find_function(reference, "agent.torso")(), number) == (8, 7)


def test_a_recorded_file_that_fails_is_named_each_time(folder):
    write(folder / "bad.py", "raise SystemExit(3)\n")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"bad.py cannot be executed: SystemExit: 3"):
            user_code.execute_recorded_file({"config_file": str(folder / "bad.py")})
    assert user_code.record("")["config_file"] is None


def test_the_newest_config_file_is_recorded(folder):
    for name in ("first", "second", "first"):
        write(folder / f"{name}.py", "def get_config(): return 7\n")
        user_code.execute_config_file(folder / f"{name}.py")
    assert user_code.record("")["config_file"] == str(folder / "first.py")


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        [],
        {"python_path": 3, "config_file": [1], "functions": [2]},
        {"python_path": [3, "/nowhere"], "functions": {"__main__:make": "?"}},
    ],
)
def test_other_records_hold_nothing(folder, recorded):
    before = [*sys.path]
    user_code.restore(recorded)
    assert set(sys.path) - set(before) <= {str(pathlib.Path.cwd())}
    assert not user_code.execute_recorded_file(recorded)


def test_values_unpickle_as_they_are():
    assert pickle.loads(pickle.dumps(WithUserCode({"a": 1}))) == {"a": 1}


def test_the_file_of_a_study_is_told_which_command_trains_it(tmp_path):
    path = tmp_path / "my_study.py"
    path.write_text("def get_study(): return 1\n")
    with pytest.raises(AttributeError, match=r"get_study.*apex-study"):
        execute_config_file(path)
    assert execute_config_file(path, False, "get_study") == 1
