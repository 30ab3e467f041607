"""Restores what belongs to the process and not to user-defined code that runs in it.

Such code, of an environment for instance, may call `os.chdir`, seed the global random numbers or
switch logging off. In the process of a node it may; commands, and programs that train, get back
what they had.
"""

import contextlib
import logging
import os
import random
import warnings
from collections.abc import Iterator

import numpy as np

_variables_of_modules = set[str]()  # Environment variables that imports have set.


@contextlib.contextmanager
def restoring_process() -> Iterator[None]:
    """Restore on exit folder, umask, logging, warnings, random numbers and environment variables.

    Variables that `restoring_import` has left are exempt.
    """
    before = dict(os.environ)
    with _restoring_state():
        try:
            yield
        finally:
            for name in os.environ.keys() - before.keys() - _variables_of_modules:
                del os.environ[name]
            os.environ.update(before)


@contextlib.contextmanager
def restoring_import() -> Iterator[None]:
    """Restore the same on exit, without the environment variables that are set inside.

    Modules need those that they set when they are imported, which happens once.
    """
    before = {*os.environ}
    with _restoring_state():
        try:
            yield
        finally:
            _variables_of_modules.update(os.environ.keys() - before)


@contextlib.contextmanager
def _restoring_state() -> Iterator[None]:
    folder = None
    with contextlib.suppress(FileNotFoundError):  # It has been removed.
        folder = os.getcwd()
    umask, root = os.umask(0o077), logging.getLogger()
    os.umask(umask)
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    with warnings.catch_warnings():
        try:
            yield
        finally:
            if folder is not None and os.path.isdir(folder):
                os.chdir(folder)
            os.umask(umask)
            root.setLevel(level)
            root.handlers[:] = handlers
            logging.disable(disabled)
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
