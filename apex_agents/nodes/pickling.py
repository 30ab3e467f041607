"""The way of an experiment, with the user's modules, to the processes of its nodes."""

import contextlib
import functools
import io
import logging
import os
import pathlib
import pickle
import sys
import types
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import cloudpickle

from apex_agents.user_code import (
    CONFIG_MODULE,
    extend_path,
    record,
    restore_functions,
    user_path,
)

_PACKAGE = __name__.partition(".")[0]
_MAX_DEPTH = 20
_CONTAINERS = list | tuple | set | frozenset


def check_pickles(experiment: Any) -> None:
    """Raise a ValueError that names the function and its variable if cloudpickle refuses one."""
    error = _pickling_error(experiment)
    if error is None:
        return
    path = _find_refused(experiment)
    if not path:
        raise ValueError(f"The experiment cannot be sent to other processes: {error}.")
    # The path to report begins with the first part that is defined outside of this package.
    own = next((i for i, part in enumerate(path) if not _is_ours(part.value)), len(path) - 1)
    first, rest = path[own], [part.name for part in path[own + 1 :]]
    cause = f" because of {'.'.join(rest)}, {_describe(path[-1].value)}" if rest else ""
    raise ValueError(
        f"{first.name.lstrip('_')}, {_describe(first.value)}, cannot be sent to other processes"
        f"{cause}: {error}. Make such an object when the function is called, or run the nodes as "
        "threads (local_mt)."
    )


class WithUserCode:
    """Unpickles as `value` in another process, where the modules of this one can be imported.

    They are imported from the same folders where these exist, and else from a copy of their source
    that travels along. The functions of the script that settings name travel along, too.
    """

    def __init__(self, value: Any):
        self._value = value

    def __reduce__(self) -> tuple:
        value = cloudpickle.dumps(self._value)
        recorded = record(value.decode(errors="ignore"))  # References are texts within it.
        return _unpickle, (user_path(), _zip_modules(), recorded, value)


class _Part(NamedTuple):
    """A part of a value, and the name by which that refers to it."""

    name: str
    value: Any


def _find_refused(value: Any, seen: frozenset[int] = frozenset()) -> list[_Part]:
    """Return the parts that lead to the innermost one that cannot be pickled; [] if none is it."""
    seen |= {id(value)}  # A method may refer to its class, and that to the method.
    for part in _parts(value) if len(seen) < _MAX_DEPTH else ():
        if id(part.value) not in seen and _pickling_error(part.value) is not None:
            return [part, *_find_refused(part.value, seen)]
    return []


def _parts(value: Any) -> Iterator[_Part]:
    """Yield what is pickled with a value."""
    if isinstance(value, functools.partial):
        yield _Part(_name(value.func), value.func)
        yield from (_Part(f"argument {i}", one) for i, one in enumerate(value.args, 1))
        yield from (_Part(*item) for item in value.keywords.items())
    elif isinstance(value, types.MethodType):
        yield _Part("self", value.__self__)
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # It is empty: a name without a value yet.
                yield _Part(name, cell.cell_contents)
        read = value.__globals__
        yield from (_Part(name, read[name]) for name in value.__code__.co_names if name in read)
        yield from (_Part("default", one) for one in value.__defaults__ or ())
    elif isinstance(value, dict):
        yield from (_Part(str(key), one) for key, one in value.items())
    elif isinstance(value, _CONTAINERS):
        yield from (_Part(f"item {i}", one) for i, one in enumerate(value))
    else:
        yield from (_Part(*item) for item in getattr(value, "__dict__", {}).items())
        yield _Part(_name(type(value)), type(value))


def _pickling_error(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # The code of an object may raise anything.
        return error
    return None


def _is_ours(value: Any) -> bool:
    kind = value if isinstance(value, type | types.FunctionType) else type(value)
    is_container = isinstance(value, functools.partial | _CONTAINERS | dict)
    return is_container or kind.__module__.partition(".")[0] == _PACKAGE


def _describe(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        code = value.__code__
        return f"the function {_name(value)} ({code.co_filename}, line {code.co_firstlineno})"
    kind = value if isinstance(value, type) else type(value)
    return f"{'the class' if kind is value else 'of type'} {kind.__module__}.{_name(kind)}"


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", type(value).__qualname__)


def _unpickle(folders: list[str], archive: bytes, recorded: Any, value: bytes) -> Any:
    """Extend Python's path, and then unpickle what needs it."""
    descriptor = os.memfd_create("user_code")  # Open until the process ends.
    path = f"/proc/self/fd/{descriptor}"
    pathlib.Path(path).write_bytes(archive)
    extend_path([*filter(os.path.isdir, folders), path])
    if changed := _find_changed(folders, archive):
        logging.warning(
            "%s changed after the command was started; this node imports it as it is now.",
            ", ".join(changed),
        )
    restore_functions(recorded)
    return pickle.loads(value)


def _find_changed(folders: list[str], archive: bytes) -> list[str]:
    """Return the paths of modules whose source differs from the archive's."""
    found = []
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        for name in content.namelist():
            paths = [os.path.join(folder, name) for folder in folders]
            with contextlib.suppress(OSError):  # Another user's folder may be closed to this one.
                here = next(filter(os.path.isfile, paths), None)
                if here and pathlib.Path(here).read_bytes() != content.read(name):
                    found.append(here)
    return found


def _zip_modules() -> bytes:
    """Return an archive with the source of all modules imported from the user's folders."""
    content, files = io.BytesIO(), _imported_files()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path, file in sorted(files.items()):
            archive.write(file, path)
        # Packages without an __init__.py are found by the entries of their folders only.
        folders = {str(folder) for path in files for folder in pathlib.PurePath(path).parents}
        for folder in sorted(folders - {"."}):
            archive.writestr(f"{folder}/", b"")
    return content.getvalue()


def _imported_files() -> dict[str, str]:
    """Return the source files of modules imported from the user's folders, by relative path.

    Those of config files are among them, by the names of their modules: settings may name functions
    in them.
    """
    files = {}
    folders = user_path()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.startswith(CONFIG_MODULE):
            files[f"{name}.py"] = str(file)
        for path in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
            is_own = name.partition(".")[0] == _PACKAGE
            if not is_own and file in [os.path.join(folder, path) for folder in folders]:
                files[path] = str(file)
    return files
