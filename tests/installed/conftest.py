"""An environment with the wheel alone, in which commands are run as a user runs them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
from whole_runs import ROOT

_TIMEOUT_SECONDS = 900


class Installation:
    """A virtual environment."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def run(self, command: str, *argv: object, cwd: pathlib.Path, **variables: object) -> str:
        """Run a program of the environment as from a shell of its own, and return its output."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        env |= {name: str(value) for name, value in variables.items()}
        return run(self.folder / "bin" / command, *argv, cwd=cwd, env=env)


def run(*argv: object, cwd: pathlib.Path, env: dict[str, str] | None = None) -> str:
    result = subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT_SECONDS,
    )
    assert result.returncode == 0, f"{argv}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def installation(wheel, tmp_path_factory) -> Installation:
    """The wheel is installed alone; what it depends on comes from the tests' environment."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    # A folder that is named in a .pth file is only searched: the editable install in it, which is
    # a .pth file as well, is not active.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(folder)
