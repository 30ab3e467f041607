"""Calls of environments that do not return."""

from __future__ import annotations

import signal

import pytest
from whole_runs import ENDLESS, apex_dqn

TASK = (
    "--config.environment.suite=function",
    "--config.environment.task=tests.programs.hanging_environment:make",
)
# Far more than a step of Catch takes on a busy machine.
STEP_TIMEOUT = "--config.environment.step_timeout_seconds=10"


def start_hanging(start, folder, *flags: str, **kwargs):
    kwargs = {"keeps_lock": False, "of_evaluations": False, **kwargs}
    given = f"--config.environment.kwargs={ {**kwargs, 'marker': str(folder / 'hung')} }"
    return start(*apex_dqn("local_mp", *ENDLESS, *TASK, given, *flags))


@pytest.mark.fault(
    breaks="an environment whose `step` or `reset` does not return, also one that keeps Python's "
    "lock, with `environment.step_timeout_seconds`",
    holds="its node is restarted, the log names environment and call and has the stack; the run "
    "continues",
)
@pytest.mark.parametrize(
    ("node", "call", "keeps_lock"), [("actor_0", "step", True), ("evaluator", "reset", False)]
)
def test_an_environment_that_hangs(node, call, keeps_lock, start, tmp_path):
    of_evaluations = node == "evaluator"
    kwargs = {"call": call, "keeps_lock": keeps_lock, "of_evaluations": of_evaluations}
    run = start_hanging(start, tmp_path, STEP_TIMEOUT, **kwargs)
    run.wait_for(lambda: run.num_restarts() == {node: 1})
    (event,) = [line for line in run.stdout().splitlines() if line.startswith(f"Node {node} ")]
    assert f"return from {call} (environment.step_timeout_seconds is 10)" in event
    assert "in hang" in run.log(node).read_text()  # The stack.
    run.wait_for_rows(node)
    assert run.num_restarts() == {node: 1}


@pytest.mark.fault(
    breaks="SIGTERM while an environment does not return from `step`",
    holds="its node is killed after its notice of 15 s, by name; exit code 143",
)
def test_sigterm_while_an_environment_hangs(start, tmp_path):
    run = start_hanging(start, tmp_path, call="step", keeps_lock=True)
    run.wait_for(lambda: run.states().get("actor_0", {}).get("waiting_seconds"))
    status = run.states()["actor_0"]
    assert "to return from step" in status["waits_for"]
    assert status["waiting_seconds"] % 10 == 0
    run.signal(signal.SIGTERM)
    run.finish()
    assert run.exit_code == 143, run.output()
    assert run.left_behind() == []
    assert run.exit_codes() == {
        **dict.fromkeys(("replay", "learner", "evaluator"), 0),
        "actor_0": -signal.SIGKILL,
    }
    events = [line for line in run.stdout().splitlines() if line.startswith("Node actor_0 ")]
    assert "to return from step" in events[-1]


def test_actors_without_steps_left_wait_for_the_end_of_the_run(start):
    run = start(*apex_dqn("local_mp", "--config.run.max_actor_steps=2000"))
    evaluator = run.node("evaluator")
    run.wait_for(lambda: run.rows("evaluator"))
    evaluator.suspend()  # It has to evaluate the last parameters.
    run.wait_for(lambda: run.states()["actor_0"]["waits_for"])
    waits = run.states()["actor_0"]["waits_for"]
    assert waits == "the end of the run, which needs no more steps"
    evaluator.resume()
    assert run.finish().exit_code == 0, run.output()
    assert "Node actor_0" not in run.output()
