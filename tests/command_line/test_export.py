"""Tests of the command that exports: real folders, real files."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import onnxruntime
import pytest
from refusals import assert_refused
from tiny_runs import make_run, spoil_for_float16

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = ["policy.json", "policy.onnx", "saved_model"]

MLP = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> pathlib.Path:
    """A folder with a run that has just begun, and one that has no parameters."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "catch", MLP, EnvironmentConfig("toy", "catch"), "last.npz")
    make_run(folder / "new", MLP, EnvironmentConfig("toy", "catch"))
    (folder / "new" / "checkpoints" / "best.npz").unlink()
    (folder / "file").write_text("")
    return folder


@pytest.mark.parametrize("flags", [["catch"], ["--workdir=catch"]])
def test_the_run_is_named_by_its_folder(run_command_line, runs, flags):
    exit_code, stdout, stderr = run_command_line(flags, runs, "export.py")
    assert exit_code == 0, stderr
    output = runs / "catch" / "exports" / "best"
    assert sorted(path.name for path in output.iterdir()) == FILES
    assert json.loads((output / "policy.json").read_text())["learner_steps"] == 1234
    lines = [line.split(":")[0].strip() for line in stdout.splitlines()]
    assert lines == ["parameters", "compared for", "saved_model", "onnx", "description"]
    assert stdout.count("greatest difference ") == 2


BITCAST = """
import sonnet as snt
import tensorflow as tf


class Bits(snt.Module):
    def __call__(self, observation):  # ONNX has no Bitcast.
        bits = tf.bitcast(tf.cast(observation, tf.float32), tf.int32)
        return snt.Flatten()(tf.cast(bits, tf.float32) / 2.0**30)


def make_torso(spec, config):
    return Bits()
"""


def test_a_network_that_onnx_cannot_hold_has_a_described_saved_model(
    run_command_line, tmp_path, monkeypatch
):
    (tmp_path / "bits.py").write_text(BITCAST)
    monkeypatch.syspath_prepend(tmp_path)
    agent = dataclasses.replace(MLP, torso="bits:make_torso")
    make_run(tmp_path / "run", agent, EnvironmentConfig("toy", "catch"))
    exit_code, _, stderr = run_command_line(["run"], tmp_path, "export.py")
    assert exit_code == 1 and "Bitcast" in stderr
    output = tmp_path / "run" / "exports" / "best"
    assert sorted(path.name for path in output.iterdir()) == ["policy.json", "saved_model"]


def test_parameters_and_output(run_command_line, runs, tmp_path):
    flags = [str(runs / "catch"), "--checkpoint=last", "--output=mine"]
    assert run_command_line(flags, tmp_path, "export.py")[0] == 0
    assert json.loads((tmp_path / "mine" / "policy.json").read_text())["parameters"] == "last"
    onnxruntime.InferenceSession(tmp_path / "mine" / "policy.onnx")


def test_parameters_of_another_run_have_a_folder_of_their_own(run_command_line, runs, tmp_path):
    other = tmp_path / "best.npz"
    shutil.copy(runs / "catch" / "checkpoints" / "best.npz", other)
    flags = [str(runs / "catch"), f"--checkpoint={other}"]
    exit_code, stdout, _ = run_command_line(flags, tmp_path, "export.py")
    assert exit_code == 0
    assert str(runs / "catch" / "exports" / "other-best" / "policy.json") in stdout


# Flags, and what the one line says; {runs} is the folder of the runs.
MISTAKES = {
    "no_run_named": ([], ["RUN"]),
    "two_runs": (["{runs}/catch", "{runs}/new"], ["catch", "new"]),
    "no_parameters": (["{runs}/new"], ["no parameters yet"]),
    "no_such_checkpoint": (["{runs}/catch", "--checkpoint=newest"], ["newest", "best, last"]),
    "output_that_is_a_file": (["{runs}/catch", "--output={runs}/file"], ["file"]),
    "output_with_a_pattern": (["{runs}/catch", "--output={runs}/a[1]"], ["a[1]", "without any of"]),
    "float16_of_an_export": (["{runs}/catch", "--float16"], ["--float16 is for --agent"]),
    "license_of_an_export": (["{runs}/catch", "--license=MIT"], ["--license is for --agent"]),
    "two_outputs": (["{runs}/catch", "--agent=a", "--output=b"], ["--output and --agent"]),
    "agent_over_a_run": (["{runs}/catch", "--agent={runs}/new"], ["holds something else"]),
    "agent_over_a_file": (["{runs}/catch", "--agent={runs}/file"], ["file"]),
    "agent_without_a_name": (["{runs}/catch", "--agent="], ["--agent is empty"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_and_exit_code_2(run_command_line, runs, tmp_path, name):
    flags, texts = MISTAKES[name]
    flags = [flag.format(runs=runs) for flag in flags]
    assert_refused(run_command_line(flags, tmp_path, "export.py"), texts)


def test_an_agent_is_written_and_played(run_command_line, runs, tmp_path):
    flags = [str(runs / "catch"), "--agent=agents/catch", "--float16"]
    exit_code, stdout, stderr = run_command_line(flags, tmp_path, "export.py")
    assert exit_code == 0, stderr
    folder = re.escape(str(tmp_path / "agents" / "catch"))
    assert re.search(rf"^ +agent: {folder}, \d+\.\d kB$", stdout, re.MULTILINE)
    for script, flag in (("play.py", "--video=catch.mp4"), ("evaluate.py", "--output=evaluation")):
        exit_code, _, stderr = run_command_line(["agents/catch", flag], tmp_path, script)
        assert exit_code == 0, stderr
    assert (tmp_path / "catch.mp4").exists()
    assert (tmp_path / "evaluation" / "summary.json").exists()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        *(("export.py", "RuntimeError"), ("evaluate.py", "RuntimeError")),
        *(("evaluate.py", "ValueError"), ("play.py", "RuntimeError")),
    ],
)
def test_an_environment_that_fails_is_named_with_its_line(
    script, error, run_command_line, tmp_path, monkeypatch
):
    lines = [
        "import gymnasium",
        "class Room(gymnasium.Wrapper):",
        "    num_steps = 0",
        "    def step(self, action):",
        "        Room.num_steps += 1",
        f"        if Room.num_steps > 5: raise {error}('the simulator has gone')",
        "        return super().step(action)",
        "def make(render_mode=None):",
        "    return Room(gymnasium.make('CartPole-v1', render_mode=render_mode))",
    ]
    (tmp_path / "failing_rooms.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    make_run(tmp_path / "run", MLP, EnvironmentConfig("function", "failing_rooms:make"))
    problem = f"failing_rooms:make fails: {error}: the simulator has gone"
    exit_code, stdout, stderr = run_command_line(["run"], tmp_path, script)
    assert (exit_code, stdout) == (2 if script == "play.py" else 1, "")
    assert stderr.splitlines()[-1] == f"error: {problem} ({tmp_path / 'failing_rooms.py'}, line 6)"


def test_an_agent_that_computes_something_else_is_exit_code_1(runs, tmp_path, run_command_line):
    run = shutil.copytree(runs / "catch", tmp_path / "catch")
    spoil_for_float16(run)
    argv = [str(run), "--agent=rounded", "--float16"]
    exit_code, stdout, stderr = run_command_line(argv, tmp_path, "export.py")
    assert (exit_code, stdout) == (1, "") and stderr.startswith("error: ")
    assert stderr.count("\n") == 1 and not (tmp_path / "rounded").exists()


def run_with(module: str, content: str, runs: pathlib.Path, tmp_path: pathlib.Path):
    """Run the real command, with a module of ours in place of a library."""
    (tmp_path / f"{module}.py").write_text(content)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, ROOT / "launch" / "export.py", runs / "catch", "--output=out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_without_the_extra_there_is_a_saved_model(runs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "policy.onnx").write_text("of another policy")
    result = run_with("tf2onnx", "raise ImportError('not installed')", runs, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith("warning: ") and result.stderr.count("\n") == 1
    assert "apex_agents[export]" in result.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["policy.json", "saved_model"]
