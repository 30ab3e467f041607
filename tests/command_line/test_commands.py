"""Tests of what happens before a command is imported."""

import os
import subprocess
import sys

import pytest
from whole_runs import ROOT


def plot(folder, *, search_path: list) -> subprocess.CompletedProcess:
    """Run `launch/plot.py` in a folder, with others in front of PYTHONPATH."""
    own = os.environ.get("PYTHONPATH", "")
    paths = [*map(str, search_path), *filter(None, [own])]
    return subprocess.run(
        [sys.executable, str(ROOT / "launch" / "plot.py")],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [("pydantic.py", "raise ImportError('mine')"), ("gymnasium/__init__.py", "")],
)
def test_a_module_of_pythonpath_that_hides_a_library_is_named(file, content, tmp_path):
    hiding = tmp_path / "mine" / file
    hiding.parent.mkdir(parents=True)
    hiding.write_text(content)
    (tmp_path / "mine" / "my_module.py").touch()
    result = plot(tmp_path, search_path=[tmp_path / "mine"])
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    name = file.removesuffix(".py").removesuffix("/__init__")
    assert f"{tmp_path / 'mine' / name} in the place" in result.stderr


def test_modules_of_the_current_folder_hide_none(tmp_path):
    (tmp_path / "pydantic.py").write_text("raise ImportError")
    result = plot(tmp_path, search_path=[])
    assert result.returncode == 2 and "RUN is missing" in result.stderr
