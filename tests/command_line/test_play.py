"""Tests of the command that shows an agent: real folders, real episodes, a window on no display."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import imageio
import pytest
from refusals import assert_refused
from tiny_runs import make_run

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MLP = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)


@pytest.fixture
def folder(tmp_path):
    make_run(tmp_path / "run", MLP, EnvironmentConfig("toy", "catch"))
    make_run(tmp_path / "cart", MLP, EnvironmentConfig("gymnasium", "CartPole-v1"))
    return tmp_path


def test_without_a_display_there_is_a_video(folder, run_command_line):
    exit_code, stdout, stderr = run_command_line(["run"], folder, "play.py")
    assert exit_code == 0, stderr
    assert stdout.splitlines()[1] == f"video: {folder / 'run.mp4'}"
    reader = imageio.get_reader(folder / "run.mp4")
    assert reader.count_frames() == 10  # The first frame, and those of nine steps.
    before = (folder / "run.mp4").read_bytes()
    refused = run_command_line(["run"], folder, "play.py")
    assert_refused(refused, ["run.mp4 exists already", "--video"])
    assert (folder / "run.mp4").read_bytes() == before


def test_a_video_is_where_it_is_asked_for(folder, run_command_line):
    before = set((folder / "run").rglob("*"))
    flags = ["run", "--video=videos/catch.mp4", "--seed=3"]
    exit_code, _, stderr = run_command_line(flags, folder, "play.py")
    assert exit_code == 0, stderr
    assert (folder / "videos" / "catch.mp4").stat().st_size > 1000
    assert set((folder / "run").rglob("*")) == before


def test_episodes_follow_each_other_in_a_window(folder):
    """On a display that SDL only pretends to have; CartPole closes the window after an episode."""
    environ = {**os.environ, "SDL_VIDEODRIVER": "dummy"}
    command = [sys.executable, str(ROOT / "launch" / "play.py"), "cart", "--episodes=2"]
    run = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(re.findall(r"^return \d+\.00 after \d+ steps$", run.stdout, re.MULTILINE)) == 2
    assert [path.name for path in folder.glob("*.mp4")] == []


MISTAKES = {
    "no_run": (["nothing"], ["nothing is no folder"]),
    "no_episodes": (["run", "--episodes=0"], ["--episodes=0"]),
    "episodes_in_a_video": (["run", "--episodes=2"], ["--episodes=2 is for a window"]),
    "no_folder_for_the_video": (["run", "--video=/proc/none/x.mp4"], ["/proc/none"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line(name, folder, run_command_line):
    flags, expected = MISTAKES[name]
    assert_refused(run_command_line(flags, folder, "play.py"), expected)
