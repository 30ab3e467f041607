"""Tests that code which changes the process's state leaves it as it was."""

import contextlib
import logging
import os
import random
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from apex_agents.process_state import restoring_import, restoring_process


def read_state() -> dict[str, Any]:
    """Return all that is restored."""
    umask, root = os.umask(0), logging.getLogger()
    os.umask(umask)
    _, words, *_ = np.random.get_state()  # noqa: NPY002
    return {
        "folder": os.getcwd(),
        "umask": umask,
        "variables": dict(os.environ),
        "python": random.getstate(),
        "numpy": words.tolist(),
        "level": root.level,
        "handlers": root.handlers[:],
        "disabled": root.manager.disable,
        "filters": warnings.filters[:],
        "showwarning": warnings.showwarning,
    }


OUTPUT = ("umask", "level", "handlers", "disabled", "filters", "showwarning")
STATE = (*OUTPUT, "folder", "python", "numpy")


def change_everything(folder) -> None:
    os.chdir(folder)
    os.umask(0o123)
    os.environ["ADDED"] = "1"
    os.environ["CHANGED"] = "after"
    del os.environ["REMOVED"]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    logging.disable(logging.CRITICAL)
    logging.basicConfig(level=logging.CRITICAL, handlers=[logging.NullHandler()], force=True)
    warnings.simplefilter("ignore")
    warnings.showwarning = print


@pytest.fixture
def unchanged(monkeypatch, tmp_path):
    """Prepare a state in which every change is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHANGED", "before")
    monkeypatch.setenv("REMOVED", "1")
    (tmp_path / "elsewhere").mkdir()
    with restoring_process():  # Whatever a test leaves behind.
        yield


@pytest.mark.parametrize(
    ("restoring", "restored"),
    [(restoring_process, (*STATE, "variables")), (restoring_import, STATE)],
)
@pytest.mark.parametrize("raises", [True, False])
def test_what_code_changes_is_restored(restoring, restored, raises, unchanged, tmp_path):
    before = read_state()
    with contextlib.suppress(SystemExit), restoring():
        change_everything(tmp_path / "elsewhere")
        changed = read_state()
        if raises:
            sys.exit()
    after = read_state()
    assert [name for name in before if changed[name] == before[name]] == []
    assert sorted(name for name in before if after[name] == before[name]) == sorted(restored)


@pytest.mark.parametrize("is_gone_before", [True, False])
def test_a_folder_that_is_gone_is_left(is_gone_before, unchanged, tmp_path):
    os.chdir(tmp_path / "elsewhere")
    if is_gone_before:
        (tmp_path / "elsewhere").rmdir()
    with restoring_process():
        os.chdir(tmp_path)
        if not is_gone_before:
            (tmp_path / "elsewhere").rmdir()
    assert os.getcwd() == str(tmp_path)


def test_variables_that_a_module_needs_remain(monkeypatch):
    for name in ("NEEDED_BY_A_MODULE", "NEEDED_BY_NOTHING"):
        monkeypatch.setenv(name, "")  # Removed in the end.
        del os.environ[name]
    with restoring_process():
        with restoring_import():
            os.environ["NEEDED_BY_A_MODULE"] = "1"
        os.environ["NEEDED_BY_NOTHING"] = "1"
    assert os.environ.get("NEEDED_BY_A_MODULE") == "1"
    assert "NEEDED_BY_NOTHING" not in os.environ
