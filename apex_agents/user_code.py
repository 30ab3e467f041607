"""User-defined code: what a config names as module:name, and how a later command finds it.

A reference of a script or notebook begins with '__main__:', which is a different module in every
process: what it stands for is in `kept`, or else in the script of this process. A run records the
folders of Python's path, the config file that its command has executed and what its references to
the script stand for (`record`), so that a later command can evaluate it. Nodes get the path and the
modules themselves (`nodes.pickling`).
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
import textwrap
import traceback
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle

from apex_agents.process_state import restoring_import
from apex_agents.validation import closest, require

_MAX_ERROR_LENGTH = 400  # Of a message that is quoted; compilers print pages.
_PYTHON_PATH, _CONFIG_FILE, _FUNCTIONS = "python_path", "config_file", "functions"  # In a record.
_MAIN = "__main__"
_PATH_VARIABLE = "APEX_AGENTS_USER_PATH"
_MAX_FUNCTION_BYTES = 1_000_000  # Pickled: a function may refer to any amount of data.
_PACKAGE = __name__.partition(".")[0]
CONFIG_MODULE = f"{_PACKAGE}_config_"  # A user's config file is a module with this prefix.
_PRESET_MODULE = f"{_PACKAGE}_preset_"  # A file of which a run keeps no record is one with this.

ID = "id:"  # Begins the reference of an id of gymnasium.

_NO_NAME = re.compile(r"\W+")  # A lambda's name has such characters.

# Objects by the references that stand for them in this process: functions of scripts, which the
# program has given or a run has recorded, and ids of gymnasium that scripts register.
kept: dict[str, Any] = {}


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
    return found


@contextlib.contextmanager
def naming_errors(problem: str, *but: type[Exception]) -> Iterator[None]:
    """Raise a ValueError that begins with a problem for whatever user-defined code raises.

    Args:
      problem: beginning of the message, as in 'the environment cannot be made'.
      *but: types of errors that are raised unchanged, unless user-defined code led to them.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, but) and not _find_places(error):
            raise
        raise ValueError(f"{problem}: {in_one_line(error)}") from error


def in_one_line(error: BaseException) -> str:
    """Return type and text of an error, and the place in user-defined code that led to it."""
    text, places = str(error), _find_places(error)
    if isinstance(error, SyntaxError) and error.filename:  # The code itself was not run.
        text, places = error.msg, [(error.filename, error.lineno)]
    words = textwrap.shorten(text, _MAX_ERROR_LENGTH, placeholder=" ...")
    place = " ({}, line {})".format(*places[-1]) if places else ""
    return ": ".join(filter(None, [type(error).__name__, words])) + place


def _find_places(error: BaseException) -> list[tuple[str, int | None]]:
    """Return the files and lines of user-defined code through which an error came."""
    package = os.path.join(pathlib.Path(__file__).parent, "")
    others = (*_installed_folders(), package, "<frozen ")
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames]
    return [place for place in places if not place[0].startswith(others)]


def import_module(name: str, reference: str, field: str) -> types.ModuleType:
    """Import the module of a reference 'module:name'; a ValueError says why it is impossible."""
    try:
        with restoring_import():
            return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # The module is code and may raise anything.
        raise ValueError(
            f"{field} is {reference!r}, but the module {name!r} cannot be imported: "
            f"{in_one_line(error)}. It has to be in the folder in which the command is "
            "given, in that of the config file, in a folder of PYTHONPATH, or installed."
        ) from error


def name_function(function: Callable[..., Any], role: str = "") -> str:
    """Return the reference by which `find_function` finds a function.

    A function that no module has by its name is kept. One without a usable name, such as a lambda
    or a partial, is told from others by its role in a run, and by the numbers, texts and functions
    that it was made with.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module_name = getattr(function, "__module__", None) or _MAIN
    is_found = getattr(sys.modules.get(module_name), name, None) is function
    if is_found and module_name != _MAIN:
        return f"{module_name}:{name}"
    reference = f"{_MAIN}:{name if is_found else role + _describe(function)}"
    kept[reference] = function
    return reference


def take_new_definitions() -> None:
    """Replace kept functions by those that the notebook now has by their names."""
    script = vars(sys.modules[_MAIN])
    for reference, function in kept.items():
        defined = script.get(reference.removeprefix(f"{_MAIN}:"))
        # An object that is called has the name of its class, which must not replace it.
        if hasattr(function, "__qualname__") and getattr(defined, "__module__", None) == _MAIN:
            kept[reference] = defined


def _describe(function: Any) -> str:
    """Return the name of a function, with a digest of the values in its partial or closure."""
    values: list[Any] = []
    if isinstance(function, functools.partial):  # Never nested: functools flattens partials.
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

    Its classes and functions are pickled by value, like everything in `__main__`: nodes execute the
    file only where a setting names a function in it.

    Args:
      path: the file.
      is_recorded: whether other commands need the file, see `record`.
      function: name of the function.
    """
    # With a prefix it hides no other module.
    prefix = CONFIG_MODULE if is_recorded else _PRESET_MODULE
    name = prefix + re.sub(_NO_NAME, "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)
    try:
        with restoring_import():
            spec.loader.exec_module(module)
            if not hasattr(module, function):
                study = "but get_study: give it to apex-study"
                but = f" {study}" if hasattr(module, "get_study") else ""
                raise AttributeError(f"it has no function {function}{but}")
            config = getattr(module, function)()
    finally:
        sys.modules.pop(name)
    sys.modules[name] = module  # The newest one is the last.
    return config


def _executed_file() -> str | None:
    """Return the path of the newest config file of this process, None if there is none."""
    modules = [module for name, module in sys.modules.items() if name.startswith(CONFIG_MODULE)]
    return modules[-1].__file__ if modules else None


def record(text: str) -> dict[str, Any]:
    """Return what a later command needs to find the code that a text refers to, as JSON values."""
    script = {f"{_MAIN}:{name}": value for name, value in vars(sys.modules[_MAIN]).items()}
    known = {**{key: value for key, value in script.items() if callable(value)}, **kept}
    # The text may be that of a pickle, where letters around a reference do not belong to it.
    named = {key: value for key, value in known.items() if key.removeprefix(ID) in text}
    pickles = {}
    for reference, function in named.items():
        with contextlib.suppress(Exception):  # Nodes that are threads use what cannot be pickled.
            pickle_bytes = cloudpickle.dumps(function)
            if len(pickle_bytes) <= _MAX_FUNCTION_BYTES:
                pickles[reference] = base64.b64encode(pickle_bytes).decode()
    return {_PYTHON_PATH: user_path(), _CONFIG_FILE: _executed_file(), _FUNCTIONS: pickles}


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
    if path is None or path == _executed_file():
        return False
    with naming_errors(f"the run's config file {path} cannot be executed"):
        execute_config_file(pathlib.Path(path))
    return True


def user_path() -> list[str]:
    """Return the folders of Python's path that do not belong to the installation of Python."""
    installed = _installed_folders()
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


def _installed_folders() -> tuple[str, ...]:
    """Return the folders of the installation of Python, with a slash at the end."""
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    return tuple(os.path.join(sysconfig.get_path(name), "") for name in names)


def _absolute_path() -> list[str]:
    return [os.path.abspath(folder) for folder in sys.path]
