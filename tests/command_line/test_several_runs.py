"""Tests of what the commands share that train several runs."""

import io

import pytest
from rich.console import Console

from apex_agents.command_line.several_runs import write_results
from apex_agents.sweep.screen import Screen


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
