"""Tests of the worker: its rollouts, its gradients, and when it takes which parameters."""

from typing import Any

import dm_env
import numpy as np
import pytest
import tensorflow as tf
from acme import core
from acme.tf import variable_utils
from small_actor_critic import E, T, make_config, make_network, make_rollout, of_envs

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.learning import METRICS, ActorCriticUpdate, Rollout
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.actor_critic.worker import GradientReceiver, Worker
from apex_agents.learning.gradients import to_vector

FIRST, MID, LAST = dm_env.StepType


class Source(core.VariableSource):
    """Parameters that grow by 0.1 with every version; `arrives_after` asks see the old version."""

    def __init__(self, network):
        self._initial = [variable.numpy() for variable in network.variables]
        self.version = 0
        self.in_use = 0
        self.num_asked = 0

    def get_variables(self, names):
        self.num_asked += 1
        self.in_use = self.version
        return [[array + 0.1 * self.version for array in self._initial] for _ in names]


class Sender:
    """Keeps what is sent."""

    def __init__(self, source: Source):
        self._source = source
        self.sent: list[tuple[int, np.ndarray, dict[str, float]]] = []
        self.is_stopping = False

    @property
    def version(self) -> int:
        return self._source.in_use

    def should_stop(self) -> bool:
        return self.is_stopping

    def send(self, gradient: np.ndarray, metrics: np.ndarray) -> bool:
        if not np.isfinite(gradient).all():
            return False
        self.sent.append((self.version, gradient, dict(zip(METRICS, metrics, strict=True))))
        return True


class Parts:
    """A worker with its own network, source and sender."""

    def __init__(self, config: ActorCriticConfig):
        self.config = config
        self.network = make_network()
        self.source = Source(self.network)
        self.sender = Sender(self.source)
        policy = SoftmaxPolicy(self.network, seed=0)
        client = variable_utils.VariableClient(self.source, policy.variables)
        update = ActorCriticUpdate(self.network, config)
        receiver = GradientReceiver(update, self.sender, client, config)  # type: ignore[arg-type]
        self.worker = Worker(policy, config, receiver)

    def expected_gradient(self, rollout: Rollout, version: int) -> np.ndarray:
        network = make_network()
        for variable in network.variables:
            variable.assign_add(tf.fill(variable.shape, 0.1 * version))
        update = ActorCriticUpdate(network, self.config)
        return to_vector(update.compute(rollout).gradients, update.trained).numpy()


def timestep(rollout: Rollout, k: int, discount: float) -> dm_env.TimeStep:
    """Return S_k of all environments, with what led to it."""
    is_last = ~rollout.is_step[k] if k < T else np.zeros(E, bool)
    is_first = ~rollout.is_step[k - 1] if k else np.ones(E, bool)
    return dm_env.TimeStep(
        step_type=np.where(is_last, LAST, np.where(is_first, FIRST, MID)),
        reward=rollout.reward[k - 1] if k else np.zeros(E, np.float32),
        discount=rollout.discount[k - 1] / discount if k else np.ones(E, np.float32),
        observation=rollout.observation[k],
    )


def begin(**settings: Any) -> tuple[Parts, Rollout]:
    """Let a new worker observe the first step of a rollout."""
    parts, rollout = Parts(make_config(**settings)), make_rollout(0)
    parts.worker.observe_first(timestep(rollout, 0, parts.config.discount))
    return parts, rollout


def play(parts: Parts, rollout: Rollout) -> None:
    """Let a worker observe a rollout that begins with S_0, as if it had taken its actions."""
    for k in range(T):
        parts.worker.select_action(rollout.observation[k])
        action = rollout.action[k]
        parts.worker.observe(action, timestep(rollout, k + 1, parts.config.discount))
        parts.worker.update()


def test_gradient_of_each_rollout_with_the_newest_parameters():
    parts = Parts(make_config(is_synchronous=False))
    first, second = make_rollout(0), make_rollout(1)
    # The second one goes on where the first one ends.
    second.observation[0] = first.observation[T]
    parts.worker.observe_first(timestep(first, 0, parts.config.discount))
    play(parts, first)
    parts.source.version = 3
    play(parts, second)
    assert [version for version, *_ in parts.sender.sent] == [0, 3]
    for (version, gradient, metrics), rollout in zip(
        parts.sender.sent, (first, second), strict=True
    ):
        expected = parts.expected_gradient(of_envs(rollout, slice(0, E)), version)
        np.testing.assert_allclose(gradient, expected, atol=1e-6)
        assert metrics["num_steps"] == T * E - 1


def test_no_rollout_of_one_step_lies_between_two_episodes():
    parts = Parts(make_config(is_synchronous=False, n_step=1))
    rollout = make_rollout(0)
    rollout.is_step[2] = False  # All environments end at S_2, and begin again with S_3.
    parts.worker.observe_first(timestep(rollout, 0, parts.config.discount))
    play(parts, rollout)
    assert [metrics["num_steps"] for *_, metrics in parts.sender.sent] == [E] * (T - 1)
    steps = [0, 1, 3, 4]
    for k, (_, gradient, _) in zip(steps, parts.sender.sent, strict=True):
        one = Rollout(rollout.observation[k : k + 2], *(field[k : k + 1] for field in rollout[1:]))
        expected = parts.expected_gradient(of_envs(one, slice(0, E)), 0)
        np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_episodes_begin_in_the_row_of_an_end():
    """The gradient is that of a rollout in which ends and beginnings have a row each."""
    parts, rollout = Parts(make_config(is_synchronous=False, n_step=T - 1)), make_rollout(0)
    rollout.is_step[2] = False  # All environments end at S_2, and begin again with S_3.
    rollout.discount[1] = 0.0
    rollout.discount[1, 0] = parts.config.discount  # The first one is truncated.
    steps = [timestep(rollout, k, parts.config.discount) for k in range(T + 1)]
    worker = parts.worker
    worker.observe_first(steps[0])
    for k in (0, 1, 3, 4):
        if k == 3:
            worker.observe_first(steps[k])
        worker.select_action(rollout.observation[k])
        worker.observe(rollout.action[k], steps[k + 1])
    ((_, gradient, metrics),) = parts.sender.sent
    assert metrics["num_steps"] == (T - 1) * E
    expected = parts.expected_gradient(of_envs(rollout, slice(0, E)), 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_parameters_stay_the_same_within_a_rollout():
    parts, rollout = begin(is_synchronous=False)
    parts.worker.select_action(rollout.observation[0])
    parts.source.version = 5
    for k in range(T):
        parts.worker.observe(rollout.action[k], timestep(rollout, k + 1, parts.config.discount))
        parts.worker.update()
        if k < T - 1:
            parts.worker.select_action(rollout.observation[k + 1])
    ((version, gradient, _),) = parts.sender.sent
    assert version == 0
    expected = parts.expected_gradient(of_envs(rollout, slice(0, E)), 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_a2c_waits_for_other_parameters_than_those_of_its_gradient(monkeypatch):
    parts, rollout = begin()
    play(parts, rollout)
    num_asked = parts.source.num_asked

    def sleep(seconds: float) -> None:
        if parts.source.num_asked == num_asked + 4:
            parts.source.version = 1

    monkeypatch.setattr("time.sleep", sleep)
    parts.worker.select_action(rollout.observation[0])
    assert parts.source.num_asked == num_asked + 5
    assert parts.source.in_use == 1


@pytest.mark.parametrize("ends", ["by time", "by the program"])
def test_a2c_does_not_wait_for_ever(ends):
    parts, rollout = begin(max_wait_seconds=0.05 if ends == "by time" else 1000.0)
    play(parts, rollout)
    parts.sender.is_stopping = ends == "by the program"
    parts.worker.select_action(rollout.observation[0])
    assert parts.source.in_use == 0


def test_a3c_never_waits(monkeypatch):
    parts, rollout = begin(is_synchronous=False)
    monkeypatch.delattr("time.sleep")
    play(parts, rollout)
    play(parts, rollout)
    assert len(parts.sender.sent) == 2


def test_single_environment_as_in_acmes_loop():
    """`EnvironmentLoop` begins each episode with `observe_first`, without an action."""
    parts = Parts(make_config(is_synchronous=False, n_step=T - 1))
    rollout = make_rollout(4)
    discount = parts.config.discount

    def single(k: int) -> dm_env.TimeStep:
        step = dm_env.TimeStep(*[field[0] for field in timestep(rollout, k, discount)])
        step = step._replace(step_type=dm_env.StepType(int(step.step_type)))
        return step._replace(reward=None, discount=None) if step.first() else step

    parts.worker.observe_first(single(0))
    for k in range(T):
        if single(k + 1).first():
            parts.worker.observe_first(single(k + 1))
            continue
        action = parts.worker.select_action(rollout.observation[k, 0])
        assert action.shape == ()
        parts.worker.observe(rollout.action[k, 0], single(k + 1))
    ((_, gradient, metrics),) = parts.sender.sent
    assert metrics["num_steps"] == T - 1
    expected = parts.expected_gradient(of_envs(rollout, slice(0, 1)), 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.parametrize("step", range(T))
def test_an_episode_that_an_environment_abandons_ends_at_its_last_state(step):
    """A failed environment answers with a first step, and no last one before it."""
    parts = Parts(make_config(is_synchronous=False))
    rollout = make_rollout(0)
    rollout.is_step[:, 0] = np.arange(T) != step
    discount = parts.config.discount
    parts.worker.observe_first(timestep(rollout, 0, discount))
    for k in range(T):
        parts.worker.select_action(rollout.observation[k])
        following = timestep(rollout, k + 1, discount)
        types = np.where(following.step_type == LAST, MID, following.step_type)
        parts.worker.observe(rollout.action[k], following._replace(step_type=types))
    ((_, gradient, metrics),) = parts.sender.sent
    expected = parts.expected_gradient(of_envs(rollout, slice(0, E)), 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert metrics["num_steps"] == T * E - 1


def test_a2c_does_not_wait_for_an_answer_to_a_gradient_that_was_not_sent(monkeypatch):
    parts = Parts(make_config())
    rollout = make_rollout(0)
    rollout.reward[0, 0] = np.nan
    parts.worker.observe_first(timestep(rollout, 0, parts.config.discount))
    play(parts, rollout)
    assert not parts.sender.sent
    monkeypatch.delattr("time.sleep")
    parts.worker.select_action(rollout.observation[0])


def test_single_environment_whose_episode_ends_with_the_rollout():
    parts = Parts(make_config(is_synchronous=False))
    rollout = make_rollout(0)
    steps = [(MID, k) for k in range(1, T)] + [(LAST, T), (FIRST, 0)]
    steps += [(MID, k) for k in range(1, T + 1)]
    parts.worker.observe_first(dm_env.restart(rollout.observation[0, 0]))
    for step_type, k in steps:
        observation = rollout.observation[k, 0]
        if step_type is FIRST:
            parts.source.version = 7
            parts.worker.observe_first(dm_env.restart(observation))
            continue
        action = parts.worker.select_action(observation)
        parts.worker.observe(action, dm_env.TimeStep(step_type, 1.0, 1.0, observation))
    # The second rollout begins with the first state: there is no step before it.
    sent = [(version, metrics["num_steps"]) for version, _, metrics in parts.sender.sent]
    assert sent == [(0, T), (7, T)]


def test_an_abandoned_episode_is_left_out():
    parts = Parts(make_config(is_synchronous=False))
    rollout = make_rollout(0)
    first = timestep(rollout, 0, parts.config.discount)
    parts.worker.observe_first(first)
    parts.worker.observe(rollout.action[0], timestep(rollout, 1, parts.config.discount))
    parts.worker.observe_first(first)
    play(parts, rollout)
    ((_, gradient, _),) = parts.sender.sent
    expected = parts.expected_gradient(of_envs(rollout, slice(0, E)), 0)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
