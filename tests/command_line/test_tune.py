"""`launch/tune.py` as a user runs it: mistakes, and a search of a toy task with real processes."""

import csv
import subprocess
import sys

import pytest
from refusals import assert_refused
from whole_runs import CATCH, ENDLESS

LIMIT = "--config.run.max_actor_steps=1000"
RANGE = "--config.agent.learning_rate=log:1e-4:1e-2"

# Flags, and what has to be in the one line. {tmp} is a folder of this test's own.
MISTAKES = {
    "nothing_to_search_for": ([LIMIT], ["--config.agent.learning_rate=log:"]),
    "runs_without_a_limit": (
        [RANGE, "--config.run.max_actor_steps=None"],
        ["run.max_actor_steps is None", "a number"],
    ),
    "range_of_texts": (
        ["--config.environment.task=1:2", LIMIT],
        ["environment.task is '1:2'", "LOW:HIGH"],
    ),
    "range_upside_down": (
        ["--config.agent.discount=0.9:0.8", LIMIT],
        ["--config.agent.discount is '0.9:0.8'", "LOW:HIGH"],
    ),
    "logarithm_of_zero": (
        ["--config.agent.exploration.epsilon=log:0:1", LIMIT],
        ["exploration.epsilon is 'log:0:1'", "LOW above 0"],
    ),
    "range_with_a_value_that_cannot_work": (
        ["--config.agent.discount=0.9:1.5", LIMIT],
        ["agent.discount is 1.5", "between 0 and 1"],
    ),
    "range_of_whole_numbers_with_a_fraction": (
        ["--config.agent.n_step=1:2.5", LIMIT],
        ["--config.agent.n_step=2.5 cannot be read"],
    ),
    "several_limits": (["--config.run.max_actor_steps=1:2"], ["--config.run.max_actor_steps is"]),
    "no_runs": (["--runs=0"], ["--runs=0"]),
    "workdir_in_the_way": ([RANGE, LIMIT, "--workdir={tmp}/file/x"], ["file/x cannot be written"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_before_anything_starts(name, run_command_line, tmp_path):
    (tmp_path / "file").touch()
    flags, expected = MISTAKES[name]
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    assert_refused(run_command_line(flags, tmp_path, "tune.py"), expected)
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]


def test_help_names_the_flags(run_command_line, tmp_path):
    exit_code, stdout, _ = run_command_line(["--help"], tmp_path, "tune.py")
    assert exit_code == 0
    for flag in ("--config", "--runs", "--minutes", "--parallel", "--workdir"):
        assert f"  {flag}:" in stdout


def test_optuna_is_an_extra():
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from apex_agents.command_line import commands; commands.tune()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 2
    assert "apex_agents[tune]" in result.stderr and "Traceback" not in result.stderr


def test_a_search_that_is_stopped_is_continued(start, tmp_path):
    flags = ("launch/tune.py", f"--workdir={tmp_path}/search", *CATCH, RANGE, "--runs=2")
    search = start(*flags, *ENDLESS)
    first_run = tmp_path / "search" / "run_000"
    search.wait_for((first_run / "logs" / "evaluator.csv").exists)
    search.press_ctrl_c()
    search.finish()
    assert search.exit_code == 130
    assert search.left_behind() == []
    results = tmp_path / "search" / "results.csv"
    (stopped,) = csv.DictReader(results.open())
    assert (stopped["run"], stopped["ending"]) == ("run_000", "stopped")

    search = start(*flags, *ENDLESS, "--config.run.target_return=-1.0").finish()
    assert search.exit_code == 0, search.output()
    rows = {row["run"]: row for row in csv.DictReader(results.open())}
    assert sorted(rows) == ["run_000", "run_001"]
    assert rows["run_000"]["learning_rate"] == stopped["learning_rate"]
    assert {row["ending"] for row in rows.values()} == {"finished"}
    assert all(-1 <= float(row["score"]) <= 1 for row in rows.values())
