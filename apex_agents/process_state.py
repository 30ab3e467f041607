"""What is the process's and not the code's that runs in it, such as a user's environment.

Such code may call `os.chdir`, seed the global random numbers or switch logging off. In the process
of a node it may; commands, and programs that train, get back what they had.
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
def restoring_output() -> Iterator[None]:
    """Restore on exit what writing depends on: the umask, the logging of the root, warnings."""
    umask, root = os.umask(0o077), logging.getLogger()
    os.umask(umask)
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    with warnings.catch_warnings():
        try:
            yield
        finally:
            os.umask(umask)
            root.setLevel(level)
            root.handlers[:] = handlers
            logging.disable(disabled)


@contextlib.contextmanager
def keeping_variables() -> Iterator[None]:
    """Exempt from `restoring_process` the environment variables that are set inside.

    Modules need those that they set when they are imported, which happens once.
    """
    before = {*os.environ}
    try:
        yield
    finally:
        _variables_of_modules.update(os.environ.keys() - before)


@contextlib.contextmanager
def restoring_folder() -> Iterator[None]:
    """Restore on exit the folder in which the process works."""
    folder = None
    with contextlib.suppress(FileNotFoundError):  # It has been removed.
        folder = os.getcwd()
    try:
        yield
    finally:
        if folder is not None and os.path.isdir(folder):
            os.chdir(folder)


@contextlib.contextmanager
def restoring_process() -> Iterator[None]:
    """Restore on exit folder, output, environment variables and the global random numbers."""
    variables, python_state = dict(os.environ), random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    with restoring_folder(), restoring_output():
        try:
            yield
        finally:
            for name in os.environ.keys() - variables.keys() - _variables_of_modules:
                del os.environ[name]
            os.environ.update(variables)
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
