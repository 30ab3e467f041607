"""Tests of an environment of a user, as a user runs it: with files outside of the checkout."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys

from whole_runs import ROOT, TIMEOUT_SECONDS

EXAMPLE = ROOT / "examples" / "own_environment.py"

MODULE = """
import gymnasium
from own_environment import Corridor

def make_env(length, seed):
    assert length == 4 and seed >= 0
    return Corridor(length)
"""


def run(folder: pathlib.Path, command: str, *flags: str) -> None:
    folder.mkdir(exist_ok=True)
    argv = [sys.executable, str(ROOT / "launch" / f"{command}.py"), *flags]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_function_of_a_module_in_the_current_folder(tmp_path):
    project, workdir = tmp_path / "project", tmp_path / "run"
    project.mkdir()
    shutil.copy(EXAMPLE, project / "own_environment.py")
    (project / "my_envs.py").write_text(MODULE)
    run(
        *(project, "apex_dqn", "--config=own_environment.py", f"--workdir={workdir}"),
        *("--config.environment.suite=function", "--config.environment.task=my_envs:make_env"),
        *("--config.environment.kwargs={'length': 4}", "--config.run.max_actor_steps=1000"),
    )
    run(
        *(tmp_path / "elsewhere", "evaluate", f"--workdir={workdir}", "--checkpoint=last"),
        *("--episodes=2", f"--output={tmp_path / 'results'}"),
    )
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert (summary["suite"], summary["episodes"]) == ("function", 2)
