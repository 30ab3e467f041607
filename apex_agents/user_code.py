"""Code of users: what a config names as module:name, and how a later command finds it.

A run remembers the folders of Python's path, the config file that its command has executed and the
functions of the script that started it (`record`), so that a later command can evaluate it. Nodes
get the path and the modules themselves (`nodes.user_modules`).
"""

import base64
import contextlib
import functools
import importlib.util
import os
import pathlib
import pickle
import re
import sys
import sysconfig
import types
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle

from apex_agents.process_state import keeping_variables, restoring_folder, restoring_output
from apex_agents.validation import closest, require

_PYTHON_PATH, _CONFIG_FILE, _FUNCTIONS = "python_path", "config_file", "functions"  # In a record.
_MAIN = "__main__"
_PATH_VARIABLE = "APEX_AGENTS_USER_PATH"
_MAX_FUNCTION_BYTES = 1_000_000  # Of a pickle: a function may refer to any amount of data.
_PACKAGE = __name__.partition(".")[0]
CONFIG_MODULE = f"{_PACKAGE}_config_"  # A config file is a module of this name and its own.

ID = "id:"  # Beginning of what is kept of an id of gymnasium.

_NO_NAME = re.compile(r"\W+")  # Such as in the name of a lambda.

_config_file: str | None = None
# What `record` keeps, by reference: functions of scripts, and ids of gymnasium that they register.
kept: dict[str, Any] = {}
_named_in_script = set[str]()  # Names in this process's script; a notebook may define them anew.


def find_function(reference: str, field: str) -> Callable[..., Any]:
    """Import what 'module:name' names.

    Args:
      reference: dotted name of a module, a colon, and the name of a callable in it.
      field: dotted path of the config's field, for messages.

    Raises:
      ValueError: there is no such module, its import fails, or it has no such callable.
    """
    module_name, _, name = reference.partition(":")
    require(bool(module_name and name), field, reference, "'module:function'")
    if reference in kept:
        return kept[reference]
    if module_name == _MAIN and not hasattr(sys.modules[module_name], name):
        raise ValueError(
            f"{field} is {reference!r}, a function of a script or notebook that the run could not "
            "keep, or that needs a module which is missing here; train with one in a module."
        )
    module = import_module(module_name, reference, field)
    found = getattr(module, name, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise ValueError(
            f"{field} is {reference!r}, but {module.__name__} has no callable {name!r}; the "
            f"closest: {closest(name, names)}."
        )
    if module_name == _MAIN:  # In other processes this is another module.
        _named_in_script.add(name)
    return found


def import_module(name: str, reference: str, field: str) -> types.ModuleType:
    """Import the module of a reference 'module:name'; a ValueError says why it is impossible."""
    try:
        with restoring_output(), keeping_variables():
            return importlib.import_module(name)
    except Exception as error:  # The module is code and may raise anything.
        raise ValueError(
            f"{field} is {reference!r}, but the module {name!r} cannot be imported: "
            f"{type(error).__name__}: {error}. It has to be in the folder in which the command is "
            "given, in that of the config file, in a folder of PYTHONPATH, or installed."
        ) from error


def name_function(function: Callable[..., Any], role: str = "") -> str:
    """Return the reference by which `find_function` finds a function.

    The reference of a function that no module has by its name begins with '__main__:'. Such a one
    is kept for `record`. What has no name of its own, such as a lambda or a partial, is told from
    others by its role in a run, and by the numbers, texts and functions that it was made with.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module_name = getattr(function, "__module__", None) or "__main__"
    is_found = getattr(sys.modules.get(module_name), name, None) is function
    if is_found and module_name != _MAIN:
        return f"{module_name}:{name}"
    reference = f"{_MAIN}:{name if is_found else role + _describe(function)}"
    kept[reference] = function
    return reference


def take_new_definitions() -> None:
    """Replace functions that runs have kept by those that the notebook now has by their names."""
    script = vars(sys.modules[_MAIN])
    for reference, function in kept.items():
        defined = script.get(reference.removeprefix(f"{_MAIN}:"))
        # Not an object that is called, which has the name of its class.
        if hasattr(function, "__qualname__") and getattr(defined, "__module__", None) == _MAIN:
            kept[reference] = defined


def _describe(function: Any) -> str:
    """Return a name made of a function's own and of a digest of what a partial or closure holds."""
    values: list[Any] = []
    if isinstance(function, functools.partial):  # Of no partial: Python joins them.
        values = [*function.args, *sorted(function.keywords.items())]
        function = function.func
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # It is empty: a name without a value yet.
            values.append(cell.cell_contents)
    name = re.sub(_NO_NAME, "_", getattr(function, "__qualname__", type(function).__qualname__))
    return f"{name}_{zlib.crc32(_to_text(values).encode()):08x}" if values else name


def _to_text(value: Any) -> str:
    """Return the same text in every process, which not every `repr` is."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_to_text, value))}]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def extend_path(folders: Iterable[str]) -> None:
    """Append folders to Python's path, behind all others, unless they are there."""
    sys.path += [folder for folder in dict.fromkeys(folders) if folder not in _absolute_path()]


def path_to_inherit() -> dict[str, str]:
    """Return the environment variable that tells a command this path, for `inherited_path`."""
    return {_PATH_VARIABLE: os.pathsep.join(user_path())}


def inherited_path() -> list[str]:
    """Return the folders of the path of the command that has started this one, if it told them."""
    return list(filter(None, os.environ.get(_PATH_VARIABLE, "").split(os.pathsep)))


def execute_config_file(
    path: pathlib.Path, is_recorded: bool = True, function: str = "get_config"
) -> Any:
    """Execute a Python file and return what one of its functions returns.

    Its classes and functions are pickled by value, as those of `__main__` are: nodes execute the
    file only where a setting names a function in it.

    Args:
      path: the file.
      is_recorded: whether other commands need the file, see `record`.
      function: name of the function.
    """
    global _config_file
    name = CONFIG_MODULE + re.sub(_NO_NAME, "_", path.stem)  # It hides no other module.
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    before = sys.modules.get(name)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)
    with restoring_folder(), restoring_output():  # Its environment variables are for the nodes.
        spec.loader.exec_module(module)
        if not hasattr(module, function):
            study = hasattr(module, "get_study") * " but get_study: give it to apex-paper --figure"
            raise AttributeError(f"it has no function {function}{study}")
        config = getattr(module, function)()
    if before is not None and not is_recorded:  # A user's file may have the name of one of ours.
        sys.modules[name] = before
    if is_recorded:
        _config_file = str(path.absolute())
    return config


def record() -> dict[str, Any]:
    """Return what a later command needs to find the same code, as JSON values."""
    pickles = {}
    script = vars(sys.modules[_MAIN])
    named = {f"{_MAIN}:{name}": script[name] for name in _named_in_script if name in script}
    for reference, function in {**named, **kept}.items():
        with contextlib.suppress(Exception):  # Nodes that are threads use what cannot be pickled.
            pickle_bytes = cloudpickle.dumps(function)
            if len(pickle_bytes) <= _MAX_FUNCTION_BYTES:
                pickles[reference] = base64.b64encode(pickle_bytes).decode()
    return {_PYTHON_PATH: user_path(), _CONFIG_FILE: _config_file, _FUNCTIONS: pickles}


def restore(recorded: Any, with_ids: bool = True) -> None:
    """Put the folders of a record, and the current one, on Python's path; find its functions.

    Args:
      recorded: what `record` returned, or anything else, which holds nothing.
      with_ids: whether ids of gymnasium are found that no module registers.
    """
    folders = _entry(recorded, _PYTHON_PATH, list) or []
    extend_path([*(f for f in folders if isinstance(f, str) and os.path.isdir(f)), os.getcwd()])
    restore_functions(recorded, with_ids)


def restore_functions(recorded: Any, with_ids: bool = True) -> None:
    """Let `find_function` find the functions of scripts in a record."""
    for reference, encoded in (_entry(recorded, _FUNCTIONS, dict) or {}).items():
        if reference.startswith(ID) and not with_ids:
            continue
        with contextlib.suppress(Exception):  # `find_function` says what is missing.
            kept[reference] = pickle.loads(base64.b64decode(encoded))


def execute_recorded_file(recorded: Any) -> bool:
    """Execute the config file of a record, for what it registers; return whether there is one.

    Raises:
      ValueError: the file cannot be executed any more.
    """
    path = _entry(recorded, _CONFIG_FILE, str)
    if path is None or path == _config_file:
        return False
    try:
        execute_config_file(pathlib.Path(path))
    except (Exception, SystemExit) as error:  # The file is code and may raise anything.
        raise ValueError(
            f"the run's config file {path} cannot be executed: {type(error).__name__}: {error}"
        ) from error
    return True


def user_path() -> list[str]:
    """Return the folders of Python's path that do not belong to the installation of Python."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    installed = tuple(os.path.join(sysconfig.get_path(name), "") for name in names)
    return [
        folder
        for folder in _absolute_path()
        if os.path.isdir(folder)
        and not os.path.join(folder, "").startswith(installed)
        and not {"site-packages", "dist-packages"}.intersection(pathlib.Path(folder).parts)
    ]


def _entry(recorded: Any, name: str, kind: type) -> Any:
    """Return an entry of a record; None if there is none of this kind."""
    value = recorded.get(name) if isinstance(recorded, dict) else None
    return value if isinstance(value, kind) else None


def _absolute_path() -> list[str]:
    return [os.path.abspath(folder) for folder in sys.path]
