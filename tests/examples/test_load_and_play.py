"""The examples that play with the policy of a run, copied out of the checkout."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from tiny_runs import make_run

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "examples"
EXPORT = "from apex_agents.command_line import commands; commands.export()"
# Runs an example as a script and prints which libraries it has imported.
SCRIPT = """
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
print(sorted({"apex_agents", "reverb", "sonnet", "tensorflow", "torch"} & set(sys.modules)))
"""

MLP = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))
SHORT = AtariConfig(evaluation_max_frames=40)
RUNS = {
    "cartpole": (MLP, EnvironmentConfig("gymnasium", "CartPole-v1")),
    "pendulum": (DPG, EnvironmentConfig("gymnasium", "Pendulum-v1")),
    "pong": (ApexDQNConfig(stream_hidden_size=8), EnvironmentConfig(task="pong", atari=SHORT)),
}


@pytest.fixture(params=RUNS)
def name(request) -> str:
    return request.param


def run_python(*command: object, folder: pathlib.Path) -> list[str]:
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_load_and_play(name, tmp_path):
    make_run(tmp_path / "run", *RUNS[name])
    shutil.copy(EXAMPLES / "load_and_play.py", tmp_path / "play.py")
    task, *episodes = run_python("play.py", "run", "3", folder=tmp_path)
    assert task == f"{RUNS[name][1].task}, learner step 1,234"
    assert len(episodes) == 3
    assert all(re.fullmatch(r"episode \d: -?\d+\.\d", line) for line in episodes)


def test_play_onnx_without_tensorflow(name, tmp_path):
    make_run(tmp_path / "run", *RUNS[name])
    run_python("-c", EXPORT, "run", "--output=export", folder=tmp_path)
    shutil.copy(EXAMPLES / "play_onnx.py", tmp_path / "play.py")
    *episodes, imported = run_python("-c", SCRIPT, "play.py", "export", folder=tmp_path)
    assert imported == "[]"
    assert len(episodes) == 5
    assert all(re.fullmatch(r"episode \d: -?\d+\.\d", line) for line in episodes)


@pytest.mark.parametrize("example", ["load_and_play.py", "play_onnx.py"])
def test_examples_are_short(example):
    assert len((EXAMPLES / example).read_text().splitlines()) < 40
