"""Tests of what the launcher says; whole runs are in tests/test_program.py."""

import json
import pathlib
import re
import time

import numpy as np
import pytest
import reverb

from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_lanes
from apex_agents.experiment import Experiment, RunConfig
from apex_agents.replay.messages import Evaluation
from apex_agents.replay.statistics import ReplayStatistics, report_evaluation
from apex_agents.running import launcher
from apex_agents.running.supervision import NodeFailure


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    agent = ApexDQNConfig(network="mlp", frame_stack=0, batch_size=50)
    return Experiment(
        ApexDQNBuilder(agent),
        lambda *_: None,
        RunConfig(),
        str(tmp_path),
        started_at=time.time() - 75.2,
    )


def make_evaluation(mean: float, error: float, learner_steps: int) -> Evaluation:
    values = (mean, error, 20, learner_steps, 5)
    return Evaluation(*[np.asarray(value, np.float64) for value in values])


@pytest.fixture
def status(experiment):
    status = launcher.StatusLine("localhost:1", experiment)
    yield status
    status.close()


def test_status_line_gives_speeds_since_the_line_before(status):
    before = ReplayStatistics(1_000_000, inserted=10_000, sampled=500_000, replay_size=100)
    now = ReplayStatistics(
        actor_steps=1_024_690,
        inserted=34_690,  # 24 690 in 10 s.
        sampled=700_000,  # 200 000 in 10 s, in batches of 50.
        replay_size=123_456,
        evaluation=make_evaluation(12.34, 0.56, 7_000),
    )
    assert status._format(now, before, elapsed=10.0) == (
        "[   75 s] actors 2,469 steps/s (1,024,690) | learner 400.0 steps/s | "
        "20.18 samples/insert | replay 123,456 | evaluation 12.3 ± 0.6 at learner step 7,000"
    )


def test_status_line_before_anything_has_happened(status):
    nothing = ReplayStatistics()
    assert status._format(nothing, nothing, elapsed=10.0) == (
        "[   75 s] actors 0 steps/s (0) | learner 0.0 steps/s | 0.00 samples/insert | replay 0 | "
        "evaluation none yet"
    )


def test_status_line_reads_the_replay_server(experiment, monkeypatch, capsys):
    monkeypatch.setattr(launcher, "_STATUS_PERIOD_SECONDS", 0.1)
    lanes = make_lanes(EnvironmentConfig("toy", "catch"), 1, 0)
    server = reverb.Server(experiment.builder.make_replay_tables(lanes.spec))
    client = reverb.Client(f"localhost:{server.port}")
    item = {"transition": np.zeros([50 + 3 + 50], np.float32)}
    for _ in range(7):
        client.insert(item, {"transitions": 1.0})
    report_evaluation(client, make_evaluation(-0.5, 0.25, 1234))
    status = launcher.StatusLine(f"localhost:{server.port}", experiment)
    printed, deadline = "", time.monotonic() + 20
    while printed.count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        printed += capsys.readouterr().out
    status.close()
    first, second = printed.splitlines()[:2]
    assert "(7) |" in first and "| replay 7 |" in first
    assert first.endswith("evaluation -0.5 ± 0.2 at learner step 1,234")
    assert float(re.search(r"actors (\S+) steps/s", first)[1]) > 0
    assert "actors 0 steps/s (7)" in second  # Nothing was added since the first line.
    server.stop()


def test_status_line_after_the_replay_was_restarted(status):
    before = ReplayStatistics(actor_steps=1_000, inserted=1_000, sampled=500_000)
    now = ReplayStatistics(actor_steps=1_100, inserted=100, sampled=5_000)  # 5 000 on the new one.
    line = status._format(now, before, elapsed=10.0)
    assert "actors 10 steps/s (1,100) | learner 10.0 steps/s" in line


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
    failure = NodeFailure("actor_3", "failed with exit code 1", log)
    assert launcher._describe(failure) == (
        f"Node actor_3 failed with exit code 1. {log} ends with:\n{shown.rstrip()}"
    )
