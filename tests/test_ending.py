"""Tests of exit codes and of what a run says at its end; tests/test_program.py has whole runs."""

import json
import pathlib
import signal
import types

import pytest

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.ending import (
    Run,
    conclude,
    describe_ended,
    describe_failure,
    describe_summary,
    find_ended,
)
from apex_agents.environments import EnvironmentConfig
from apex_agents.experiment import make_experiment
from apex_agents.metrics.run_state import RunState
from apex_agents.metrics.summary import (
    NOT_SAVED,
    complete_summary,
    remove_summary,
    write_summary,
)
from apex_agents.nodes.backend import Outcome, StopSignals, read_log_end
from apex_agents.runs.files import write_json
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.opening import close_workdir, open_run

FINISHED = {
    "finished": True,
    "reason": "limit of 5 learner steps reached",
    "learner_steps": 5,
    "actor_steps": 40,
    "wall_time_seconds": 7.5,
}
STOPPED = {**FINISHED, "finished": False, "reason": "stopped from outside"}
INTERRUPTED, TERMINATED = Outcome(None, signal.SIGINT), Outcome(None, signal.SIGTERM)
FAILED = Outcome("Node actor_3 failed.", log="actor_3.log ends with:\n  | no")
FLOW = types.SimpleNamespace(usual_min_steps=1000, min_size_field="agent.replay.min_size")
EXPERIMENT = types.SimpleNamespace(data_flow=lambda: FLOW)


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch):
    """Git is a program, which unit tests do not start."""
    monkeypatch.setattr("apex_agents.ending.git_commit", lambda: "abc-dirty")


@pytest.fixture
def state(tmp_path) -> RunState:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "logs").mkdir()
    return RunState(RunFolder(tmp_path))


def write(state: RunState, summary: dict) -> None:
    (state.run.path / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("written", "outcome", "finished", "exit_code", "reason"),
    [
        (FINISHED, Outcome(), True, 0, "limit of 5 learner steps reached"),
        (FINISHED, INTERRUPTED, True, 130, "limit of 5 learner steps reached"),
        (FINISHED, TERMINATED, True, 0, "limit of 5 learner steps reached"),
        (STOPPED, INTERRUPTED, False, 130, "stopped by SIGINT (Ctrl-C)"),
        (STOPPED, TERMINATED, False, 143, "stopped by SIGTERM"),
        ({}, INTERRUPTED, False, 130, "stopped by SIGINT (Ctrl-C)"),  # There was no learner yet.
        ({}, Outcome(), False, 143, "stopped by SIGTERM"),  # Nodes that are threads.
        (STOPPED, FAILED, False, 1, "Node actor_3 failed."),
        ({}, FAILED, False, 1, "Node actor_3 failed."),
    ],
)
def test_the_summary_says_how_a_run_ended(state, written, outcome, finished, exit_code, reason):
    if written:
        write(state, written)
    run = conclude(state, outcome)
    assert run.folder == state.run.path
    assert run.exit_code == run.summary["exit_code"] == exit_code
    assert (run.summary["finished"], run.summary["reason"]) == (finished, reason)
    assert run.summary["learner_steps"] == (5 if written else 0)
    assert run.summary["git_commit"] == "abc-dirty"
    assert state.run.summary() == run.summary


ENDED = {**FINISHED, "actor_steps": 20_002, "learner_steps": 1250, "wall_time_seconds": 95.0}


@pytest.mark.parametrize(
    ("limits", "reached"),
    [
        ({"max_actor_steps": 20_000}, ["run.max_actor_steps"]),
        ({"max_actor_steps": 5_000}, ["run.max_actor_steps"]),
        ({"max_actor_steps": 20_003}, []),
        ({"max_learner_steps": 1250}, ["run.max_learner_steps"]),
        ({"max_learner_steps": 1251}, []),
        ({"max_actor_steps": 30_000, "max_seconds": 94.5}, ["run.max_seconds"]),
        ({"target_return": 7.0}, ["run.target_return"]),
        ({"target_return": 7.5}, []),
        ({"max_learner_steps": 9, "max_seconds": 9}, ["run.max_learner_steps", "run.max_seconds"]),
        ({}, []),
    ],
)
def test_a_run_that_has_ended_continues_once_its_limits_are_raised(limits, reached, tmp_path):
    config = ExperimentConfig(ApexDQNConfig(torso="mlp"), EnvironmentConfig("toy", "catch"))
    experiment = make_experiment(config, workdir=str(tmp_path))
    assert find_ended(experiment) is None  # There is no run yet.
    close_workdir(open_run(experiment).workdir)
    config.run = RunConfig(**limits)
    experiment = make_experiment(config, workdir=str(tmp_path))
    assert find_ended(experiment) is None  # It has not ended.
    write_json(tmp_path / "summary.json", {**ENDED, "finished": False})
    assert find_ended(experiment) is None  # It was stopped.
    summary = {**ENDED, "last_return": 7.0, "exit_code": 0}
    write_json(tmp_path / "summary.json", summary)
    ended = find_ended(experiment)
    assert ended == (Run(tmp_path, summary, 0) if reached else None)
    if ended is not None:
        values = {f"run.{name}": f"{value:,}" for name, value in limits.items()}
        raised = " and ".join(f"{limit}, which is {values[limit]}" for limit in reached)
        assert describe_ended(ended, config.run).endswith(f"raise {raised}.")


def test_an_ended_run_of_another_experiment_is_refused(tmp_path):
    config = ExperimentConfig(ApexDQNConfig(torso="mlp"), EnvironmentConfig("toy", "catch"))
    close_workdir(open_run(make_experiment(config, workdir=str(tmp_path))).workdir)
    write_json(tmp_path / "summary.json", ENDED)
    config.agent.n_step = 5
    with pytest.raises(ValueError, match=r"agent\.n_step"):
        find_ended(make_experiment(config, workdir=str(tmp_path)))


def test_a_run_without_a_learner_step_has_failed(state):
    write(state, {**FINISHED, "reason": "limit of 40 actor steps reached", "learner_steps": 0})
    run = conclude(state, Outcome())
    # A study trains a run again that has not finished.
    assert (run.exit_code, run.summary["finished"]) == (1, False)
    failure = describe_failure(run, EXPERIMENT, Outcome())
    for part in (
        "limit of 40 actor steps reached",
        "40 steps",
        "1,000, by agent.replay.min_size",
    ):
        assert part in failure
    run.summary["actor_steps"] = 1_001  # It had what it needs, but not the time to compile.
    failure = describe_failure(run, EXPERIMENT, Outcome())
    assert "1,001 steps. The learner had not finished its first step" in failure
    assert "agent.replay.min_size" not in failure
    write(state, {**STOPPED, "learner_steps": 0})
    assert conclude(state, INTERRUPTED).exit_code == 130


def test_a_run_whose_last_parameters_are_not_saved_has_failed(state):
    experiment = types.SimpleNamespace(workdir=str(state.run.path), elapsed_seconds=lambda: 7.5)
    for reason, outcome, ending in (
        ("limit of 5 learner steps reached", Outcome(), ""),
        (None, INTERRUPTED, ""),
        (None, INTERRUPTED, "on_evaluation returned True"),
    ):
        write_summary(experiment, reason, False, learner_steps=5, actor_steps=40)
        run = conclude(state, outcome, ending)
        found = run.exit_code, run.summary["finished"], run.summary["learner_steps"]
        assert found == (1, False, 5)
        assert describe_failure(run, EXPERIMENT, Outcome()) == NOT_SAVED
    # One that was stopped, and saved, can be resumed.
    write_summary(experiment, None, True, learner_steps=5, actor_steps=40)
    assert conclude(state, INTERRUPTED).exit_code == 130
    remove_summary(experiment)
    remove_summary(experiment)
    assert state.run.summary() is None


def test_a_failure_shows_the_end_of_a_log(state):
    run = conclude(state, FAILED)
    failure = describe_failure(run, EXPERIMENT, FAILED)
    assert failure == "Node actor_3 failed.\nactor_3.log ends with:\n  | no"


def append(folder: pathlib.Path, name: str, text: str) -> None:
    with (folder / "logs" / f"{name}.csv").open("a") as file:
        file.write(text)


def test_a_summary_holds_returns_and_counts(state, tmp_path):
    append(tmp_path, "evaluator", "mean_return,learner_steps\n1.5,10\n9.0,20\n4.0,30\n")
    append(tmp_path, "actor_0", "episodes,episode_return\n3,0.5\n0,nan\n")
    append(tmp_path, "actor_12", "episodes,episode_return\n4,0.5\n")
    append(tmp_path, "actor_0_envs", "env_index,episodes\n0,3\n")
    append(tmp_path, "learner", "learner_steps,wall_time_seconds\n10,1.0\n33,2.5\n")
    append(tmp_path, "replay", "actor_steps,wall_time_seconds\n70,2.0\n")
    state.refresh()
    summary = complete_summary(state, {"reason": "a failure"})
    counts = {name: summary[name] for name in ("learner_steps", "actor_steps", "num_episodes")}
    assert counts == {"learner_steps": 33, "actor_steps": 70, "num_episodes": 7}
    assert (summary["last_return"], summary["best_return"]) == (4.0, 9.0)
    assert summary["wall_time_seconds"] == 2.5
    assert {"python", "apex_agents", "tensorflow", "dm-reverb"} == set(summary["versions"])
    assert summary["date"].startswith("20")


def test_a_run_whose_summary_could_not_be_written_has_failed(state, tmp_path):
    append(tmp_path, "learner", "learner_steps,wall_time_seconds\n10,1.0\n")
    state.refresh()
    run = conclude(state, Outcome())
    assert run.exit_code == 1
    assert run.summary["reason"] == "The run has ended, but summary.json could not be written."
    assert describe_failure(run, EXPERIMENT, Outcome()) == run.summary["reason"]


def test_a_summary_is_of_the_files_at_the_end(state, tmp_path):
    state.refresh()  # The last look of who watched the run.
    append(tmp_path, "evaluator", "mean_return,learner_steps\n1.5,5\n")
    write(state, FINISHED)
    assert conclude(state, Outcome()).summary["last_return"] == 1.5


def test_a_learner_that_was_stopped_early_leaves_the_count_of_the_run(state, tmp_path):
    append(tmp_path, "replay", "actor_steps,wall_time_seconds\n70,2.0\n")
    write(state, {**STOPPED, "actor_steps": 0})
    state.refresh()
    assert complete_summary(state, {})["actor_steps"] == 70


def test_a_run_without_an_evaluation_has_no_returns(state):
    summary = complete_summary(state, {})
    assert (summary["last_return"], summary["best_return"]) == (None, None)


def test_the_summary_is_printed_without_what_nobody_waits_for():
    summary = {
        "finished": True,
        "last_return": None,
        "learner_steps": 5,
        "versions": {},
        "date": "",
    }
    assert list(describe_summary(summary)) == [
        "          finished: True",
        "     learner steps: 5",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (93.15982001814992, "93.16"),
        (-20.0, "-20"),
        (0.00123456, "0.001235"),
        (123_456.789, "123457"),
        (12_345_678, "12345678"),
    ],
)
def test_numbers_are_printed_with_the_digits_that_a_person_reads(value, shown):
    (line,) = describe_summary({"best_return": value})
    assert line.split(": ") == ["       best return", shown]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("".join(f"line {i}\n" for i in range(20)), [f"  | line {i}" for i in range(5, 20)]),
        ("alone", ["  | alone"]),
        ("", ["  (nothing)"]),
    ],
    ids=["the last 15 lines", "an unfinished line", "nothing"],
)
def test_the_end_of_a_log(content, shown, tmp_path):
    log = tmp_path / "actor_3.log"
    log.write_text(content)
    first, *rest = read_log_end(log).splitlines()
    assert str(log) in first
    assert rest == shown


@pytest.mark.parametrize(
    ("received", "calls"),
    [
        ([(signal.SIGINT, 0.0)], ["stop", "note"]),
        ([(signal.SIGINT, 0.0), (signal.SIGINT, 0.9)], ["stop", "note"]),
        ([(signal.SIGINT, 0.0), (signal.SIGINT, 1.0)], ["stop", "note", "kill"]),
        (
            [(signal.SIGINT, 0.0), (signal.SIGINT, 0.9), (signal.SIGINT, 1.8)],
            ["stop", "note", "kill"],
        ),
        ([(signal.SIGTERM, 0.0), (signal.SIGTERM, 5.0)], ["stop"]),
        ([(signal.SIGTERM, 0.0), (signal.SIGINT, 5.0)], ["stop", "kill"]),
    ],
)
def test_a_later_sigint_kills(received, calls):
    seen: list[str] = []
    now = [0.0]
    signals = StopSignals(
        stop=lambda: seen.append("stop"),
        kill=lambda: seen.append("kill"),
        on_interrupt=lambda: seen.append("note"),
        clock=lambda: now[0],
    )
    assert signals.first is None
    for number, time in received:
        now[0] = time
        signals.handle(number)
    assert seen == calls
    assert signals.first == received[0][0]
    assert signals.is_killed == ("kill" in calls)
