"""Tests of what the launcher says; whole runs are in tests/test_program.py."""

import json
import pathlib

import pytest

from apex_agents import launcher
from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.process import Exit
from apex_agents.nodes.supervisor import NodeFailure


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    agent = ApexDQNConfig(network="mlp", frame_stack=0, batch_size=50)
    return Experiment(ApexDQNBuilder(agent), lambda *_: None, RunConfig(), str(tmp_path))


def write(experiment: Experiment, file: str, content: dict) -> None:
    pathlib.Path(experiment.workdir, file).write_text(json.dumps(content))


SUMMARY = {"finished": True, "reason": "5 learner steps done", "learner_steps": 5}


def test_conclude_prints_the_summary_of_a_finished_run(experiment, capsys):
    write(experiment, "summary.json", SUMMARY)
    assert launcher._conclude(experiment, None, interrupted=False) == 0
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
        (None, True, 130),  # Stopped before there was a learner.
        (None, False, 143),
    ],
)
def test_conclude_tells_ctrl_c_from_sigterm(experiment, summary, interrupted, exit_code):
    if summary:
        write(experiment, "summary.json", summary)
    assert launcher._conclude(experiment, None, interrupted) == exit_code


def test_conclude_prints_what_failed_instead_of_the_summary(experiment, capsys):
    write(experiment, "summary.json", {**SUMMARY, "finished": False})
    assert launcher._conclude(experiment, "Node actor_3 failed.", interrupted=False) == 1
    assert capsys.readouterr().out == "\nNode actor_3 failed.\n"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            "".join(f"line {i}\n" for i in range(20)),
            "".join(f"  | line {i}\n" for i in range(5, 20)),
        ),
        ("alone", "  | alone\n"),
        ("", "  (nothing)\n"),
    ],
)
def test_a_failure_shows_the_last_log_lines(content, shown, tmp_path):
    log = tmp_path / "actor_3.log"
    log.write_text(content)
    failure = NodeFailure("actor_3", Exit("failed with exit code 1", False), log)
    assert launcher._describe(failure) == (
        f"Node actor_3 failed with exit code 1. {log} ends with:\n{shown.rstrip()}"
    )
