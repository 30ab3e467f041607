"""Tests of the learner: which gradients it applies together, and which it leaves out."""

import queue
from collections.abc import Iterator
from typing import Any

import documented_logs
import numpy as np
import pytest
import reverb
from acme.utils import loggers
from small_actor_critic import make_config, make_network

from apex_agents.actor_critic.gradients import Gradient
from apex_agents.actor_critic.learner import ActorCriticLearner
from apex_agents.actor_critic.learning import METRICS, ActorCriticUpdate

SIZE = sum(variable.shape.num_elements() for variable in make_network().trainable_variables)


class Queue:
    """Stands for the dataset: gives out gradients as they are added."""

    def __init__(self) -> None:
        self._samples: queue.Queue = queue.Queue()

    def __iter__(self) -> Iterator[reverb.ReplaySample]:
        while True:
            try:
                yield self._samples.get(timeout=0.02)
            except queue.Empty:
                return

    def add(
        self, worker: int, version: int, value: float = 0.0, num_workers: int = 2, steps: float = 5
    ) -> None:
        gradient = Gradient(
            np.full(SIZE, value, np.float32),
            np.array([steps, *[value] * (len(METRICS) - 1)], np.float32),
            *(np.asarray(number, np.int64) for number in (version, worker, num_workers)),
        )
        self._samples.put(reverb.ReplaySample(None, Gradient(*map(Tensor, gradient))))


class Tensor:
    """An array that, as a tensor, is read by `numpy`."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def numpy(self) -> np.ndarray:
        return self._array


class Publisher:
    """Keeps the versions that are published."""

    def __init__(self) -> None:
        self.versions: list[int] = []

    def publish(self, variables: Any, learner_steps: int) -> None:
        self.versions.append(learner_steps)

    def close(self) -> None:
        """Do nothing."""


class Rows(loggers.Logger):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, data):
        self.rows.append(data)

    def close(self):
        """Do nothing."""


class Parts:
    def __init__(self, is_synchronous: bool, max_wait_seconds: float = 1000.0):
        config = make_config(is_synchronous, max_wait_seconds=max_wait_seconds)
        self.queue, self.publisher, self.logger = Queue(), Publisher(), Rows()
        self.update = ActorCriticUpdate(make_network(), config)
        self.applied: list[tuple[list[float], list[float]]] = []
        self.is_stopping = False
        self.learner = ActorCriticLearner(
            self.update,
            self.queue,
            self.publisher,  # type: ignore[arg-type]
            config,
            self.logger,
            lambda: self.is_stopping,
        )
        self.compiled = self.learner._apply
        self.learner._apply = self._apply

    def _apply(self, gradients: np.ndarray, num_steps: np.ndarray) -> Any:
        self.applied.append((gradients[:, 0].tolist(), num_steps.tolist()))
        return self.update(gradients, num_steps)


@pytest.fixture
def make_parts() -> Iterator[Any]:
    made = []

    def make(*args: Any) -> Parts:
        made.append(Parts(*args))
        return made[-1]

    yield make
    for parts in made:
        parts.learner.close()


def test_the_update_is_compiled_before_workers_get_parameters(make_parts):
    parts = make_parts(True)
    assert parts.publisher.versions == []
    variables = parts.update.variables["network"]
    before = [variable.numpy().copy() for variable in variables]
    assert parts.compiled.experimental_get_tracing_count() == 1
    for num_gradients in (1, 3):
        parts.compiled(np.ones([num_gradients, SIZE], np.float32), np.full(num_gradients, 5.0, "f"))
    assert parts.compiled.experimental_get_tracing_count() == 1
    assert int(parts.update.num_updates) == 2
    assert all((a != b.numpy()).any() for a, b in zip(before, variables, strict=True))


def test_a2c_applies_one_gradient_of_each_worker(make_parts):
    parts = make_parts(True)
    for value, (worker, version) in enumerate([(8, 0), (0, 0), (0, 1), (8, 1)]):
        parts.queue.add(worker, version, 0.1 * value, steps=5 - value % 2)
    parts.learner.step()
    parts.learner.step()
    # In the order of the workers, each with the steps of its rollout.
    assert [steps for _, steps in parts.applied] == [[4.0, 5.0], [5.0, 4.0]]
    np.testing.assert_allclose([values for values, _ in parts.applied], [[0.1, 0], [0.2, 0.3]])
    assert parts.publisher.versions == [1, 2]
    assert parts.learner.num_steps == 2
    row = parts.logger.rows[-1]
    assert row["learner_steps"] == 2
    assert row["staleness_steps"] == 0 and row["gradients_per_step"] == 2
    assert row["loss"] == pytest.approx((5 * 0.2 + 4 * 0.3) / 9)


def test_metrics_are_the_documented_columns(make_parts):
    parts = make_parts(False)
    parts.queue.add(0, 0)
    parts.learner.step()
    added_by_the_logger = {
        "learner_steps_per_second",
        "data_wait_fraction",
        "actor_steps",
        "replay_size",
        "samples_per_insert",
        "wall_time_seconds",
    }
    documented = documented_logs.columns("learner", "a2c") - added_by_the_logger
    assert parts.logger.rows[-1].keys() - {"num_updates", "waiting_seconds"} == documented


def test_a2c_leaves_out_gradients_of_other_versions(make_parts):
    parts = make_parts(True)
    parts.learner.num_steps = 7
    for worker, version in [(0, 6), (0, 7), (8, 8), (8, 7)]:
        parts.queue.add(worker, version, version)
    parts.learner.step()
    assert parts.applied == [([7.0, 7.0], [5.0, 5.0])]
    assert parts.logger.rows[-1]["gradients_dropped"] == 2


def test_a2c_goes_on_without_a_worker_until_it_is_back(make_parts):
    parts = make_parts(True, 0.05)
    for worker, version in [(0, 0)]:
        parts.queue.add(worker, version)
    parts.learner.step()  # After 0.05 s.
    # From now on at once: a thousand seconds would be too long for this test.
    parts.learner._config.max_wait_seconds = 1000.0
    for version in (1, 2):
        parts.queue.add(0, version)
        parts.learner.step()
    for worker, version in [(8, 1), (0, 3), (8, 3)]:
        parts.queue.add(worker, version)
    parts.learner.step()
    assert [len(values) for values, _ in parts.applied] == [1, 1, 1, 2]


def test_a2c_takes_the_newest_gradient_of_a_worker_that_was_restarted(make_parts):
    parts = make_parts(True)
    for worker, value in [(0, 1.0), (0, 2.0), (8, 3.0)]:
        parts.queue.add(worker, 0, value)
    parts.learner.step()
    assert parts.applied == [([2.0, 3.0], [5.0, 5.0])]


def test_a3c_applies_each_gradient(make_parts):
    parts = make_parts(False)
    parts.learner.num_steps = 10
    for worker, version in [(0, 10), (8, 8), (0, 7)]:
        parts.queue.add(worker, version, version)
    for _ in range(3):
        parts.learner.step()
    assert parts.applied == [([10.0], [5.0]), ([8.0], [5.0]), ([7.0], [5.0])]
    assert [row["staleness_steps"] for row in parts.logger.rows] == [0.0, 3.0, 5.0]
    assert parts.publisher.versions == [11, 12, 13]


def test_gradients_from_before_a_learner_was_restarted_are_not_stale(make_parts):
    parts = make_parts(False)
    parts.learner.num_steps = 10  # Of its checkpoint.
    parts.queue.add(0, 12)
    parts.learner.step()
    assert parts.logger.rows[-1]["staleness_steps"] == 0.0


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_without_gradients_it_stops_when_told_to(make_parts, is_synchronous):
    parts = make_parts(is_synchronous)
    parts.is_stopping = True
    parts.learner.step()
    assert parts.learner.num_steps == 0 and not parts.logger.rows


def test_it_resumes_from_its_state(make_parts):
    parts = make_parts(False)
    parts.update.num_updates.assign(30)
    parts.learner.resume()
    assert parts.learner.num_steps == 30
    assert set(parts.learner.state) == {"network", "optimizer", "num_updates"}


def test_parameters_that_are_not_finite_are_not_published(make_parts):
    parts = make_parts(False)
    variable = parts.update.variables["network"][0]
    before = variable.numpy()
    variable.assign(before * np.nan)
    with pytest.raises(FloatingPointError, match="after 0 learner steps"):
        parts.learner.publish()
    variable.assign(before)
