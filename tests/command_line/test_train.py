"""Tests of what a successful training command says at its end; tests/installed runs it."""

import pathlib
import shlex
import sys

import pytest

from apex_agents.ending import describe_next_steps
from apex_agents.presets import preset_names

DEFAULTS = {"apex_dqn": "apex_dqn_cartpole", "apex_dpg": "apex_dpg_pendulum"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """The folder of a run below the current folder, where the interpreter is no command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    (tmp_path / "runs" / "a run" / "plots").mkdir(parents=True)
    (tmp_path / "runs" / "a run" / "plots" / "returns.png").touch()
    return tmp_path / "runs" / "a run"


def read_steps(agent: str, folder: pathlib.Path, settings: str, program: str) -> dict[str, str]:
    _, *lines = describe_next_steps(agent, folder, settings, program)
    return dict(line.strip().split(": ", 1) for line in lines)


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)


@pytest.mark.parametrize(("agent", "task"), [("apex_dqn", "Atari"), ("apex_dpg", "control suite")])
def test_a_script_of_the_checkout_names_others(agent, task, folder):
    steps = read_steps(agent, folder, DEFAULTS[agent], f"launch/{agent}.py")
    python = ".venv/bin/python"
    assert list(steps) == ["figure", "evaluate", "plot", task]
    assert steps["figure"] == "runs/a run/plots/returns.png"
    assert words(steps["evaluate"]) == [python, "launch/evaluate.py", "runs/a run"]
    assert words(steps["plot"]) == [python, "launch/plot.py", "runs/a run"]
    assert words(steps[task])[:2] == [python, f"launch/{agent}.py"]


@pytest.mark.parametrize("is_on_the_path", [True, False])
def test_an_installed_command_names_others(is_on_the_path, folder, tmp_path):
    bin_folder = tmp_path / ("bin" if is_on_the_path else "env")
    bin_folder.mkdir()
    for name in ("apex-dqn", "apex-evaluate", "apex-plot"):
        (bin_folder / name).touch(mode=0o755)
    steps = read_steps("apex_dqn", folder, "apex_dqn_cartpole", str(bin_folder / "apex-dqn"))
    place = "" if is_on_the_path else "env/"
    assert words(steps["evaluate"]) == [f"{place}apex-evaluate", "runs/a run"]
    assert words(steps["plot"]) == [f"{place}apex-plot", "runs/a run"]
    assert words(steps["Atari"])[0] == f"{place}apex-dqn"


@pytest.mark.parametrize("program", ["launch/a2c.py", "bin/apex-a2c"])
def test_commands_of_agents_that_are_no_ape_x(program, folder):
    steps = read_steps("a2c", folder, "a2c_cartpole", program)
    assert list(steps) == ["figure", "evaluate", "plot", "Atari"]
    assert program in words(steps["Atari"])


@pytest.mark.parametrize("agent", DEFAULTS)
def test_the_next_task_has_settings_that_exist(agent, folder):
    steps = read_steps(agent, folder, DEFAULTS[agent], f"launch/{agent}.py")
    (settings,) = [word for word in words([*steps.values()][-1]) if word.startswith("--config=")]
    assert settings.removeprefix("--config=") in preset_names()


def test_what_does_not_apply_is_left_out(folder):
    (folder / "plots" / "returns.png").unlink()
    steps = read_steps("apex_dqn", folder, "mine", "launch/apex_dqn.py")
    assert list(steps) == ["evaluate", "plot"]


def test_a_folder_elsewhere_is_named_in_full(folder, monkeypatch):
    monkeypatch.chdir(folder / "plots")
    steps = read_steps("apex_dqn", folder, "mine", "launch/apex_dqn.py")
    assert words(steps["evaluate"])[-1] == str(folder)


def test_a_run_of_a_sweep_says_nothing(folder):
    program = "/somewhere/apex_agents/command_line/commands.py"
    assert not list(describe_next_steps("apex_dqn", folder, "apex_dqn_cartpole", program))
