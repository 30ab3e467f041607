"""`apex-check` as a user runs it."""

import pathlib
import subprocess
import sys

import pytest
from refusals import assert_refused

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = """
import gymnasium

class Steps(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, num_steps, environment):
        assert environment == "flat"
        self.length = num_steps

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place += 1
        return self.place, 1.0, self.place == self.length, False, {}
"""


def run(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, str(ROOT / "launch" / "check.py"), *arguments]
    return subprocess.run(argv, cwd=folder, capture_output=True, encoding="utf-8", timeout=600)


def test_an_environment_of_the_current_folder_is_described(tmp_path):
    (tmp_path / "my_envs.py").write_text(ENVIRONMENT)
    # Arguments with the names of those of `apex_agents.check` are the environment's.
    arguments = "num_steps=7", "environment=flat", "--num_steps=50"
    ended = run(tmp_path, "my_envs:Steps", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "lengths 7 (7 to 7), returns 7 (7 to 7)" in ended.stdout
    assert "Discrete(100)" in ended.stdout and "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["TASK is missing"]),
        (("CartPole-v1", "Pendulum-v1"), ["'Pendulum-v1' is no NAME=VALUE"]),
        (("Nowhere-v0",), ["unknown gymnasium task 'Nowhere-v0'"]),
        (("CartPole-v1", "gravity=3"), ["CartPole-v1", "gravity"]),
    ],
)
def test_mistakes_are_named(arguments, words, run_command_line, tmp_path):
    assert_refused(run_command_line(arguments, tmp_path, "check.py"), words)
