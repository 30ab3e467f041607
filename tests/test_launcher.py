"""Tests of exit codes and of what a run prints at its end; tests/test_program.py has whole runs."""

import pytest

from apex_agents import launcher
from apex_agents.nodes.backend import Outcome, describe_failure
from apex_agents.nodes.process import Exit
from apex_agents.nodes.supervisor import NodeFailure

SUMMARY = {"finished": True, "reason": "5 learner steps done", "learner_steps": 5}


def test_conclude_prints_the_summary_of_a_finished_run(capsys):
    assert launcher.conclude(SUMMARY, Outcome(None, 0)) == 0
    assert capsys.readouterr().out == (
        "\n"
        "          finished: True\n"
        "            reason: 5 learner steps done\n"
        "     learner steps: 5\n"
    )


@pytest.mark.parametrize(
    ("summary", "interrupted", "exit_code"),
    [
        ({**SUMMARY, "finished": False}, True, 130),
        ({**SUMMARY, "finished": False}, False, 143),
        ({}, True, 130),  # Stopped before there was a learner.
        ({}, False, 143),
    ],
)
def test_conclude_tells_ctrl_c_from_sigterm(summary, interrupted, exit_code):
    assert launcher.conclude(summary, Outcome(None, int(interrupted))) == exit_code


def test_conclude_prints_what_failed_instead_of_the_summary(capsys):
    outcome = Outcome("Node actor_3 failed.", 0)
    assert launcher.conclude({**SUMMARY, "finished": False}, outcome) == 1
    assert capsys.readouterr().out == "\nNode actor_3 failed.\n"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("".join(f"line {i}\n" for i in range(20)), [f"  | line {i}" for i in range(5, 20)]),
        ("alone", ["  | alone"]),
        ("", ["  (nothing)"]),
    ],
    ids=["the last 15 lines", "an unfinished line", "nothing"],
)
def test_a_failure_shows_the_last_log_lines(content, shown, tmp_path):
    log = tmp_path / "actor_3.log"
    log.write_text(content)
    message = describe_failure(NodeFailure("actor_3", Exit("failed with exit code 1", False), log))
    first, *rest = message.splitlines()
    assert "actor_3 failed with exit code 1" in first and str(log) in first
    assert rest == shown
