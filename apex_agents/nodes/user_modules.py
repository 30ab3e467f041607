"""The modules of the user in the processes of a run, which may be on other machines."""

import io
import os
import pathlib
import pickle
import sys
import zipfile
from typing import Any

import cloudpickle

from apex_agents.user_code import (
    CONFIG_MODULE,
    extend_path,
    record,
    restore_functions,
    user_path,
)

_PACKAGE = __name__.partition(".")[0]


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


def _unpickle(folders: list[str], archive: bytes, recorded: Any, value: bytes) -> Any:
    """Extend Python's path, and then unpickle what needs it."""
    descriptor = os.memfd_create("user_code")  # Open until the process ends.
    path = f"/proc/self/fd/{descriptor}"
    pathlib.Path(path).write_bytes(archive)
    extend_path([*filter(os.path.isdir, folders), path])
    restore_functions(recorded)
    return pickle.loads(value)


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
