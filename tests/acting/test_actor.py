"""Tests of the actor: which adder gets which time step and output, and real environments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme import EnvironmentLoop, core
from acme.utils import loggers
from dm_env import specs
from sent_messages import publish_parameters
from waiting import wait_for

from apex_agents.acting.actor import ApexActor, make_variable_client, run_in_lock_step
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import SyncVectorEnvironment
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import ParameterSource, make_message_tables

FIRST, MID, LAST = 0, 1, 2
GAMMA = 0.9


class SumPolicy:
    """With s the sum of an observation: action = number of calls % 2, q = 100 * s, value = 10 * s.

    Nothing depends on its variable.
    """

    def __init__(self):
        self.variables: dict[str, Sequence[tf.Variable]] = {"policy": [tf.Variable(0.0)]}
        self.num_calls = 0
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        observation = timestep.observation
        sums = observation.reshape(len(observation), -1).sum(axis=1, dtype=np.float64)
        action = np.full(len(observation), self.num_calls % 2, np.int32)
        self.num_calls += 1
        self.shapes.append(observation.shape)
        return PolicyOutput(action, 100 * sums, 10 * sums)


class RecordingAdder:
    """Keeps what it is given as plain rows (step type, reward, discount, observation, output)."""

    def __init__(self):
        self.rows: list[tuple] = []
        self.closed = False

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        step_type, reward, discount, observation = timestep
        self.rows.append(
            (
                *(int(step_type), float(reward), float(discount), observation.tolist()),
                *(int(output.action), float(output.q_taken), float(output.value)),
            )
        )

    def close(self) -> None:
        self.closed = True


def batch(*rows: tuple) -> dm_env.TimeStep:
    """Make the batched time step of rows (step type, reward, discount, observation)."""
    step_type, reward, discount, observation = zip(*rows, strict=True)
    return dm_env.TimeStep(
        np.array(step_type, np.int32),
        np.array(reward, np.float32),
        np.array(discount, np.float32),
        np.array(observation, np.float32),
    )


def test_every_env_gets_its_own_rows():
    adders = [RecordingAdder(), RecordingAdder()]
    policy = SumPolicy()
    actor = ApexActor(policy, adders)
    timesteps = [
        batch((FIRST, 0, 1, [0, 1]), (FIRST, 0, 1, [50, 2])),
        batch((MID, 1, 1, [0, 3]), (LAST, 10, 0, [50, 4])),
        batch((LAST, 2, 1, [0, 5]), (FIRST, 0, 1, [60, 6])),
        batch((FIRST, 0, 1, [7, 7]), (MID, 20, 0.5, [60, 8])),
        batch((MID, 3, 1, [7, 9]), (MID, 30, 1, [60, 10])),
    ]
    actor.observe_first(timesteps[0])
    for timestep, next_timestep in itertools.pairwise(timesteps):
        action = actor.select_action(timestep.observation)
        assert action.shape == (2,)
        actor.observe(action, next_timestep)
    assert policy.shapes == [(2, 2)] * 4
    assert adders[0].rows == [
        (FIRST, 0, 1, [0, 1], 0, 100, 10),
        (MID, 1, 1, [0, 3], 1, 300, 30),
        (LAST, 2, 1, [0, 5], 0, 500, 50),
        (FIRST, 0, 1, [7, 7], 1, 1400, 140),
    ]
    assert adders[1].rows == [
        (FIRST, 0, 1, [50, 2], 0, 5200, 520),
        (LAST, 10, 0, [50, 4], 1, 5400, 540),
        (FIRST, 0, 1, [60, 6], 0, 6600, 660),
        (MID, 20, 0.5, [60, 8], 1, 6800, 680),
    ]


def test_records_the_action_that_was_taken():
    adder = RecordingAdder()
    actor = ApexActor(SumPolicy(), [adder])
    actor.observe_first(batch((FIRST, 0, 1, [1, 1])))
    actor.select_action(np.ones((1, 2), np.float32))
    actor.observe(np.array([7]), batch((MID, 0, 1, [2, 2])))
    assert adder.rows == [(FIRST, 0, 1, [1, 1], 7, 200, 20)]


def test_without_adders_and_variables():
    actor = ApexActor(SumPolicy())
    actor.observe_first(dm_env.restart(np.array([1.0])))
    actor.observe(actor.select_action(np.array([1.0])), dm_env.termination(1.0, np.array([2.0])))
    actor.update()
    actor.update(wait=True)
    actor.close()


def test_close_closes_every_adder():
    adders = [RecordingAdder(), RecordingAdder()]
    ApexActor(SumPolicy(), adders).close()
    assert all(adder.closed for adder in adders)


class Overwriting(dm_env.Environment):
    """Hands out one and the same array: `[episode, step]`, in episodes of three steps."""

    def __init__(self, last_discount: float):
        self._observation = np.zeros(2, np.float32)
        self._last_discount = last_discount

    def reset(self) -> dm_env.TimeStep:
        self._observation[:] = (self._observation[0] + 1, 0)
        return dm_env.restart(self._observation)

    def step(self, action: int) -> dm_env.TimeStep:
        if self._observation[1] == 3:
            return self.reset()
        self._observation[1] += 1
        if self._observation[1] == 3:
            return dm_env.TimeStep(
                dm_env.StepType.LAST, 8.0, self._last_discount, self._observation
            )
        return dm_env.transition(2.0 ** self._observation[1], self._observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((2,), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)

    def reward_spec(self) -> specs.Array:
        return specs.Array((), np.float32)


def act_unbatched(environment: dm_env.Environment, actor: ApexActor) -> None:
    EnvironmentLoop(environment, actor, logger=loggers.NoOpLogger()).run(num_episodes=2)


def act_batched(environment: dm_env.Environment, actor: ApexActor) -> None:
    # Two episodes of FIRST and three steps; a row is recorded with the step that follows it.
    steps = run_in_lock_step(SyncVectorEnvironment([environment]), actor)
    for _ in itertools.islice(steps, 8):
        pass


@pytest.mark.parametrize("act", [act_unbatched, act_batched])
@pytest.mark.parametrize("last_discount", [0.0, 1.0])
def test_environment_that_overwrites_its_observation(act, last_discount, make_fifo_replay):
    environment = Overwriting(last_discount)
    replay = make_fifo_replay(environment.observation_spec(), environment.action_spec())
    adder = replay.make_adder(ReplayConfig(), 2, GAMMA)
    actor = ApexActor(SumPolicy(), [adder])
    act(environment, actor)  # The actor copies in one case, the vector environment in the other.
    actor.close()
    d = last_discount
    # Calls of the policy in order: actions 0, 1, 0 and, at LAST, 1; q and value of [e, k] are
    # 100 * (e + k) and 10 * (e + k).
    replay.assert_holds(
        [
            ([1, 0], 0, 2 + 0.9 * 4, 0.81, [1, 2], 100 - (2 + 0.9 * 4 + 0.81 * 30)),
            ([1, 1], 1, 4 + 0.9 * 8, 0.81 * d, [1, 3], 200 - (4 + 0.9 * 8 + 0.81 * d * 40)),
            ([1, 2], 0, 8, 0.9 * d, [1, 3], 300 - (8 + 0.9 * d * 40)),
            ([2, 0], 0, 2 + 0.9 * 4, 0.81, [2, 2], 200 - (2 + 0.9 * 4 + 0.81 * 40)),
            ([2, 1], 1, 4 + 0.9 * 8, 0.81 * d, [2, 3], 300 - (4 + 0.9 * 8 + 0.81 * d * 50)),
            ([2, 2], 0, 8, 0.9 * d, [2, 3], 400 - (8 + 0.9 * d * 50)),
        ]
    )


def test_batched_observations_are_not_copied():
    received = []

    class Adder(RecordingAdder):
        def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
            received.append(timestep.observation)

    actor = ApexActor(SumPolicy(), [Adder(), Adder()])
    timestep = batch((FIRST, 0, 1, [0, 1]), (FIRST, 0, 1, [50, 2]))
    actor.observe_first(timestep)
    actor.observe(actor.select_action(timestep.observation), timestep)
    assert [np.shares_memory(row, timestep.observation) for row in received] == [True, True]


def test_images_that_are_no_stacks_are_no_failure_of_the_environment(make_fifo_replay):
    environment = SyncVectorEnvironment([Overwriting(0.0)])  # Its "stack" is `[episode, step]`.
    spec = environment.spec
    replay = make_fifo_replay(spec.observations, spec.actions, n_step=1, frame_stack=2)
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA)
    steps = run_in_lock_step(environment, ApexActor(SumPolicy(), [adder]))
    with pytest.raises(ValueError, match="frame_stack"):
        list(itertools.islice(steps, 8))
    assert environment.num_failures == 0


class Source(core.VariableSource):
    """Answers requests with their number, once `gate` is open."""

    def __init__(self):
        self.num_requests = 0
        self.gate = threading.Event()

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        self.num_requests += 1
        number = self.num_requests
        assert self.gate.wait(timeout=60)
        return [[np.float32(number)] for _ in names]


class GatedSource(ParameterSource):
    """Counts what it has read, and hands it over once `gate` is open."""

    def __init__(self, client: reverb.Client):
        super().__init__(client)
        self.num_read = 0
        self.gate = threading.Event()

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        variables = super().get_variables(names)
        self.num_read += 1
        assert self.gate.wait(timeout=60)
        return variables


def make_updating_actor(source: Source, period: int) -> tuple[ApexActor, tf.Variable]:
    """Make an actor, which gets the first variables at once; close the gate again."""
    policy = SumPolicy()
    source.gate.set()
    actor = ApexActor(policy, [], make_variable_client(policy, source, period))
    source.gate.clear()
    (variable,) = policy.variables["policy"]
    assert (source.num_requests, variable.numpy()) == (1, 1.0)
    return actor, variable


def test_variables_are_pulled_every_so_many_updates():
    source = Source()
    actor, variable = make_updating_actor(source, period=10)
    threads = set(threading.enumerate())
    for _ in range(9):
        actor.update()
    assert set(threading.enumerate()) <= threads  # None fetches.
    actor.update()
    wait_for(lambda: source.num_requests == 2)
    for _ in range(100):
        actor.update()  # Returns, although the source does not answer.
    assert variable.numpy() == 1.0
    source.gate.set()
    wait_for(lambda: actor.update() or variable.numpy() > 1)


def test_learner_steps_are_those_of_the_parameters_in_use(serve):
    policy = SumPolicy()
    (variable,) = policy.variables["policy"]
    client = serve(*make_message_tables(policy.variables))

    def publish(value: float, learner_steps: int) -> None:
        publish_parameters(client, {"policy": [np.float32(value)]}, learner_steps)

    publish(1.0, learner_steps=10)
    source = GatedSource(client)
    source.gate.set()
    actor = ApexActor(policy, [], make_variable_client(policy, source))
    assert (variable.numpy(), source.learner_steps) == (1.0, 10)
    source.gate.clear()
    publish(2.0, learner_steps=20)
    actor.update()  # Starts to fetch.
    wait_for(lambda: source.num_read == 2)
    assert (variable.numpy(), source.learner_steps) == (1.0, 10)
    source.gate.set()
    wait_for(lambda: actor.update() or variable.numpy() == 2.0)
    assert source.learner_steps == 20


def test_update_waits_when_told_to():
    source = Source()
    actor, variable = make_updating_actor(source, period=1)
    source.gate.set()
    actor.update(wait=True)
    assert variable.numpy() == 2.0
