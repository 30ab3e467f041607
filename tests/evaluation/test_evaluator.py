"""Tests of the evaluator with a real replay server: what it evaluates, reports and keeps."""

import contextlib
import csv
import dataclasses
import pathlib
import threading
import types
from collections.abc import Sequence

import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf
from dm_env import specs
from sent_messages import publish_actor_steps, publish_parameters, report_last_step
from waiting import wait_for

from apex_agents.acting.policy import PolicyOutput
from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.evaluation import evaluator as evaluator_module
from apex_agents.evaluation.evaluator import Evaluator, run_evaluator
from apex_agents.experiment import Experiment
from apex_agents.metrics.statistics import (
    read_statistics,
)
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import Evaluation, make_message_tables
from apex_agents.replay.tables import DataFlow, make_transition_table
from apex_agents.runs.parameter_file import read_parameters
from apex_agents.runs.workdir import make_folders


class Bandit(dm_env.Environment):
    """Rewards an action with its own value, minus the environment's handicap; ends after a step."""

    def __init__(self, handicap: float):
        self._handicap = handicap

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(np.zeros(1, np.float32))

    def step(self, action: float) -> dm_env.TimeStep:
        return dm_env.termination(float(action[0]) - self._handicap, np.zeros(1, np.float32))

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32)

    def action_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((1,), np.float32, -100, 100)


class OneReplay:
    """The replay of a program, already connected."""

    def __init__(self, client: reverb.Client):
        self._client = client

    def connect(self) -> list[reverb.Client]:
        return [self._client]


class ConstantPolicy:
    """Acts by its only variable."""

    def __init__(self):
        self.variables = {"network": [tf.Variable(0.0, name="action")]}

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        action = np.full([len(timestep.observation), 1], self.variables["network"][0].numpy())
        return PolicyOutput(action, action[:, 0], action[:, 0])


BUILDER = types.SimpleNamespace(
    data_flow=lambda num_envs_per_actor: DataFlow(),
    make_evaluation_policy=lambda spec, num_envs, seed: ConstantPolicy(),
)


def make_environment(
    num_envs: int, seed: int, *, evaluation: bool, env_indices: Sequence[int] = ()
) -> SyncVectorEnvironment:
    assert evaluation
    return SyncVectorEnvironment([Bandit(handicap=2.0 * i) for i in range(num_envs)])


@pytest.fixture
def experiment(tmp_path) -> Experiment:
    make_folders(tmp_path)
    run = RunConfig(evaluation=EvaluationConfig(num_episodes=3))
    return Experiment(BUILDER, make_environment, run, str(tmp_path), task="bandit")


@pytest.fixture
def serve_run(serve):
    """Starts replay servers with the tables of a run and returns clients of them."""
    return lambda: serve(
        make_transition_table(ReplayConfig(), tf.TensorSpec([], tf.int64)),
        *make_message_tables(ConstantPolicy().variables),
    )


@pytest.fixture
def make_evaluator(experiment):
    evaluators = []

    def make(client: reverb.Client, should_stop=lambda: False) -> Evaluator:
        evaluators.append(Evaluator(experiment, [client], should_stop))
        return evaluators[-1]

    yield make
    for evaluator in evaluators:
        evaluator.close()


def publish(client: reverb.Client, learner_steps: int, action: float) -> None:
    publish_parameters(client, {"network": [np.float32(action)]}, learner_steps)


def read_rows(workdir: pathlib.Path) -> list[dict[str, float]]:
    with (workdir / "logs" / "evaluator.csv").open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def read_best(workdir: pathlib.Path) -> tuple[float, int]:
    _, arrays, learner_steps = read_parameters(workdir / "checkpoints" / "best.npz")
    return float(arrays["action"]), learner_steps


# An action of 9 gives returns of 9, 7 and 5, whose standard deviation is 2.
EXPECTED = {
    "mean_return": 7.0,
    "standard_error": pytest.approx(2 / 3**0.5),
    "num_episodes": 3.0,
    "learner_steps": 5.0,
    "actor_steps": 0.0,
}


def test_an_evaluation_is_a_row_and_a_message_and_the_best_parameters(
    serve_run, make_evaluator, tmp_path
):
    client = serve_run()
    publish(client, 5, 9.0)
    assert make_evaluator(client).evaluate()
    (row,) = read_rows(tmp_path)
    assert row.pop("wall_time_seconds") > 0
    assert row == {**EXPECTED, "environment_failures": 0.0}
    wait_for(lambda: read_statistics(client).evaluation is not None)
    assert read_statistics(client).evaluation._asdict() == EXPECTED
    assert read_best(tmp_path) == (9.0, 5)


def test_episodes_that_the_environment_broke_off_are_counted(experiment, serve_run, tmp_path):
    class FailsFirst(Bandit):
        has_failed = False

        def step(self, action: float) -> dm_env.TimeStep:
            if not self.has_failed:
                self.has_failed = True
                raise RuntimeError("it fell over")
            return super().step(action)

    def make(num_envs: int, seed: int, **settings: object) -> SyncVectorEnvironment:
        return SyncVectorEnvironment([FailsFirst(handicap=0.0), FailsFirst(0.0), Bandit(0.0)])

    client = serve_run()
    publish(client, 5, 9.0)
    changed = dataclasses.replace(experiment, make_vector_environment=make)
    with contextlib.closing(Evaluator(changed, [client], lambda: False)) as evaluator:
        assert evaluator.evaluate()
    (row,) = read_rows(tmp_path)
    assert (row["num_episodes"], row["environment_failures"]) == (3.0, 2.0)


def test_the_actor_steps_are_those_at_the_start(experiment, serve_run, tmp_path):
    client = serve_run()
    publish_actor_steps(client, 100, 3)
    publish(client, 5, 9.0)

    class SlowBandit(Bandit):
        """Ends after an actor has reported further steps."""

        def step(self, action: float) -> dm_env.TimeStep:
            publish_actor_steps(client, 100, 7)
            return super().step(action)

    def make(num_envs: int, seed: int, **settings: object) -> SyncVectorEnvironment:
        return SyncVectorEnvironment([SlowBandit(handicap=0.0)])

    experiment = dataclasses.replace(experiment, make_vector_environment=make)
    with contextlib.closing(Evaluator(experiment, [client], lambda: False)) as evaluator:
        assert evaluator.evaluate()
        wait_for(lambda: read_statistics(client).evaluation is not None)
    (row,) = read_rows(tmp_path)
    assert row["actor_steps"] == 103
    assert read_statistics(client).evaluation.actor_steps == 103
    assert read_statistics(client).actor_steps == 107


def test_the_best_parameters_are_the_latest_of_equals(serve_run, make_evaluator, tmp_path):
    client = serve_run()
    evaluator = make_evaluator(client)
    best = []
    for learner_steps, action in ((1, 4.0), (2, 3.0), (3, 4.0), (4, 8.0)):
        publish(client, learner_steps, action)
        assert evaluator.evaluate()
        best.append(read_best(tmp_path))
    assert best == [(4.0, 1), (4.0, 1), (4.0, 3), (8.0, 4)]


def test_a_restarted_evaluator_continues(serve_run, make_evaluator, tmp_path):
    first = serve_run()
    publish(first, 5, 9.0)
    assert make_evaluator(first).evaluate()
    with (tmp_path / "logs" / "evaluator.csv").open("a") as file:
        file.write("x" + 5 * ",1.0" + "\n")  # A corrupted row.
    second = serve_run()
    publish(second, 5, 9.0)
    evaluator = make_evaluator(second)
    assert not evaluator.evaluate()
    # The new server is told the evaluation before.
    wait_for(lambda: read_statistics(second).evaluation is not None)
    assert read_statistics(second).evaluation == Evaluation(
        7.0, EXPECTED["standard_error"], 3, 5, 0
    )
    publish(second, 6, 8.0)
    assert evaluator.evaluate()
    assert read_best(tmp_path) == (9.0, 5)


def test_there_is_no_evaluation_after_one_that_reached_the_target(
    experiment, serve_run, make_evaluator, tmp_path
):
    experiment.run.target_return = 7.0
    first, second = serve_run(), serve_run()
    publish(first, 5, 9.0)
    assert make_evaluator(first).evaluate()
    publish(second, 6, 9.0)
    resumed = make_evaluator(second)
    assert not resumed.evaluate()
    assert [row["learner_steps"] for row in read_rows(tmp_path)] == [5]
    wait_for(lambda: read_statistics(second).evaluation is not None)
    assert read_statistics(second).evaluation.mean_return == 7.0


def test_an_evaluation_that_is_stopped_leaves_nothing(serve_run, make_evaluator, tmp_path):
    client = serve_run()
    publish(client, 5, 9.0)
    evaluator = make_evaluator(client, should_stop=lambda: True)
    with pytest.raises(RuntimeError):  # No parameters are read any more.
        evaluator.evaluate()
    calls = iter([False, True])  # Parameters are read, no episode is played.
    assert not make_evaluator(client, should_stop=lambda: next(calls)).evaluate()
    assert read_rows(tmp_path) == []
    assert read_statistics(client).evaluation is None
    assert not (tmp_path / "checkpoints" / "best.npz").exists()


def test_the_last_parameters_are_evaluated_instead_of_older_ones(
    serve_run, make_evaluator, tmp_path
):
    client = serve_run()
    publish(client, 5, 9.0)
    evaluator = make_evaluator(client)
    assert not evaluator.has_last_step()
    report_last_step(client, 8)  # The learner has finished, but what it published comes later.
    wait_for(evaluator.has_last_step)
    assert not evaluator.evaluate()
    publish(client, 8, 3.0)
    assert evaluator.evaluate()
    assert not evaluator.evaluate()
    assert [row["learner_steps"] for row in read_rows(tmp_path)] == [8]
    assert read_best(tmp_path) == (3.0, 8)


def test_the_last_parameters_are_evaluated_though_later_ones_were(
    serve_run, make_evaluator, tmp_path
):
    """The learner died, and went back to a checkpoint before the last evaluation."""
    client = serve_run()
    publish(client, 9, 3.0)
    assert make_evaluator(client).evaluate()
    wait_for(lambda: read_statistics(client).evaluation is not None)
    evaluator = make_evaluator(client)
    publish(client, 8, 5.0)
    assert not evaluator.evaluate()
    report_last_step(client, 8)
    wait_for(evaluator.has_last_step)
    assert evaluator.evaluate()
    assert [row["learner_steps"] for row in read_rows(tmp_path)] == [9, 8]
    wait_for(lambda: read_statistics(client).evaluation.learner_steps == 8)
    assert not evaluator.evaluate()


def test_an_evaluation_under_way_is_abandoned_when_the_learner_finishes(
    serve_run, make_evaluator, tmp_path
):
    client = serve_run()
    publish(client, 5, 9.0)
    evaluators = []

    def finish() -> bool:  # Asked while episodes are played.
        report_last_step(client, 8)
        wait_for(evaluators[0].has_last_step)
        return False

    evaluators.append(make_evaluator(client, should_stop=finish))
    assert not evaluators[0].evaluate()
    assert read_rows(tmp_path) == []


def test_parameters_wait_for_the_next_period_except_the_last_ones(
    experiment, serve_run, tmp_path, monkeypatch
):
    experiment.run.evaluation.min_period_seconds = 1e6
    client = serve_run()
    publish(client, 5, 9.0)
    evaluated = []

    class StopEvent(threading.Event):
        """A program that stops once the last parameters are evaluated."""

        num_looks = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.num_looks += 1
            if self.num_looks == 1:
                publish(client, 8, 3.0)
            if self.num_looks == 20:
                evaluated.extend(row["learner_steps"] for row in read_rows(tmp_path))
                report_last_step(client, 8)
            if len(read_rows(tmp_path)) == 2 or self.num_looks == 600:  # Looks of 0.1 s.
                self.set()
            return super().wait(timeout)

    stop = StopEvent()
    monkeypatch.setattr(evaluator_module.lp, "stop_event", lambda: stop)
    run_evaluator(experiment, OneReplay(client), 0)
    assert evaluated == [5]
    assert [row["learner_steps"] for row in read_rows(tmp_path)] == [5, 8]


@pytest.mark.parametrize(
    ("period", "published", "evaluated"),
    [
        # Each once, and never before the first learner step.
        (0, [0, 5, 5, 6], [5, 6]),
        # The last ones, of step 340, in any case.
        (100, [20, 100, 119, 120, 219, 320, 340], [20, 120, 320, 340]),
    ],
)
def test_parameters_are_evaluated_after_so_many_learner_steps(
    experiment, serve_run, make_evaluator, tmp_path, period, published, evaluated
):
    experiment.run.evaluation.min_period_learner_steps = period
    client = serve_run()
    evaluator = make_evaluator(client)
    found = []
    for learner_steps in published:
        publish(client, learner_steps, 3.0)
        found += [learner_steps] * evaluator.evaluate()
    if period:
        report_last_step(client, published[-1])
        wait_for(evaluator.has_last_step)
        found += [published[-1]] * evaluator.evaluate()
    assert found == [row["learner_steps"] for row in read_rows(tmp_path)] == evaluated
