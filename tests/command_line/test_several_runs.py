"""Tests of what the commands share that train several runs."""

import io
import pathlib
import types

import pytest
from rich.console import Console

from apex_agents.command_line import several_runs
from apex_agents.command_line.settings import Settings
from apex_agents.command_line.several_runs import make_command, write_results
from apex_agents.presets import load_config
from apex_agents.studies.screen import Screen


@pytest.mark.parametrize(("project", "expected"), [("pong", ["--wandb=pong"]), (None, [])])
def test_runs_get_the_flags_that_are_theirs(monkeypatch, project, expected):
    monkeypatch.setattr(several_runs, "_WANDB", types.SimpleNamespace(value=project))
    monkeypatch.setattr(several_runs, "_LAUNCH_TYPE", types.SimpleNamespace(value="local_mt"))
    settings = Settings(load_config("a2c_cartpole"), pathlib.Path("a.py"), {"run.seed": 1}, {})
    command = make_command(settings, {"agent.n_step": 7})
    first_flag = command.index("--lp_launch_type=local_mt")
    assert command[first_flag - 1] == "a2c"
    flags = command[first_flag:]
    fields = ["--config=a.py", "--config.run.seed=1", "--config.agent.n_step=7"]
    assert flags == ["--lp_launch_type=local_mt", *expected, *fields]


@pytest.mark.parametrize("error", [ValueError("no font"), PermissionError(13, "denied")])
def test_tables_are_written_though_no_figure_can_be_drawn(tmp_path, error):
    def draw():
        raise error

    screen = io.StringIO()
    texts = {"results.md": "| 1 |", "results.csv": "1"}
    assert not write_results(tmp_path, texts, draw, Screen(Console(file=screen)))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts
    assert "error: " in screen.getvalue()
    assert "no font" in screen.getvalue() or "denied" in screen.getvalue()
