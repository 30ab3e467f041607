"""Tests of sequences from acting to learning, against a real replay server.

Whatever sequence is sampled, the network that acted gives it the values that acting had: this fails
if a state belongs to another step, if the previous action or reward is of another step or kept over
a reset, or if padding changes a state.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Sequence
from typing import Any

import acme
import dm_env
import numpy as np
import pytest
import tensorflow as tf
from dm_env import specs

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.r2d2.config import R2D2Config
from apex_agents.replay.config import ReplayConfig
from tests.r2d2.sequences import make_config

# Steps of the episodes, one after the other: shorter than a block, of exactly one, of several.
LENGTHS = (3, 8, 9, 23, 1, 16)
NUM_ENVS = 2


class Noise(dm_env.Environment):
    """Random observations and rewards; its episodes have the lengths above, and end in turn.

    If it abandons episodes, every third one is left without a LAST.
    """

    def __init__(
        self,
        seed: int,
        dtype: Any = np.float32,
        shape: tuple[int, ...] = (3,),
        stack: int = 0,
        abandons: bool = False,
    ):
        self._random = np.random.default_rng(seed)
        self._dtype, self._shape = dtype, shape
        self._frames: collections.deque[np.ndarray] | None = None
        if stack:
            self._frames = collections.deque(maxlen=stack)
        self._episode = seed
        self._abandons = abandons
        self._num_steps = 0

    def reset(self) -> dm_env.TimeStep:
        self._episode += 1
        self._num_steps = 0
        if self._frames is not None:
            self._frames.extend([self._draw()] * self._frames.maxlen)
        return dm_env.restart(self._observe())

    def step(self, action: int) -> dm_env.TimeStep:
        self._num_steps += 1
        reward = float(self._random.normal())
        if self._num_steps < LENGTHS[self._episode % len(LENGTHS)]:
            return dm_env.transition(reward, self._observe())
        if self._abandons and self._episode % 3 == 0:
            return self.reset()
        end = dm_env.termination if self._episode % 2 else dm_env.truncation
        return end(reward, self._observe())

    def observation_spec(self) -> specs.Array:
        stack = () if self._frames is None else (self._frames.maxlen,)
        return specs.Array((*stack, *self._shape), self._dtype)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(3, np.int32)

    def _observe(self) -> np.ndarray:
        if self._frames is None:
            return self._draw()
        self._frames.append(self._draw())
        return np.stack(self._frames)

    def _draw(self) -> np.ndarray:
        if self._dtype == np.uint8:
            return self._random.integers(256, size=self._shape).astype(np.uint8)
        return self._random.normal(size=self._shape).astype(self._dtype)


class Recorder:
    """A policy that keeps all time steps with their outputs, per environment."""

    def __init__(self, policy: Any, num_envs: int = NUM_ENVS):
        self._policy = policy
        self.variables, self.exploration = policy.variables, policy.exploration
        self.steps: list[list[tuple[dm_env.TimeStep, Any]]] = [[] for _ in range(num_envs)]

    def __call__(self, timestep: dm_env.TimeStep) -> Any:
        output = self._policy(timestep)
        for i, steps in enumerate(self.steps):
            steps.append((dm_env.TimeStep(*[field[i] for field in timestep]), output.select(i)))
        return output


def act(config: R2D2Config, serve: Any, num_steps: int = 90, **settings: Any) -> Any:
    """Act in two environments; return the builder, the spec, the recorder and a client."""
    environment = SyncVectorEnvironment([Noise(seed, **settings) for seed in range(NUM_ENVS)])
    builder, spec = R2D2Builder(config), environment.spec
    client = serve(*builder.make_replay_tables(spec))
    recorder = Recorder(builder.make_policy(spec, range(NUM_ENVS), NUM_ENVS, seed=1))
    adders = builder.make_adders(client, spec, range(NUM_ENVS), NUM_ENVS)
    actor = builder.make_actor(recorder, adders)
    for step, _ in enumerate(run_in_lock_step(environment, actor)):
        if step == num_steps:
            break
    for adder in adders:
        adder.flush()
    return builder, spec, recorder, client


def act_in_acmes_loop(config: R2D2Config, serve: Any) -> Any:
    """Act as `act` does, in a single environment and in Acme's loop."""
    environment = Noise(0)
    builder, spec = R2D2Builder(config), acme.make_environment_spec(environment)
    client = serve(*builder.make_replay_tables(spec))
    recorder = Recorder(builder.make_policy(spec, [0], 1, seed=1), num_envs=1)
    adders = builder.make_adders(client, spec)
    acme.EnvironmentLoop(environment, builder.make_actor(recorder, adders)).run(num_episodes=8)
    adders[0].flush()
    return builder, spec, recorder, client


def read_all(builder: R2D2Builder, spec: EnvironmentSpec, client: Any) -> list[Any]:
    """Sample until every item of the table was seen; return one batch with each of them."""
    size = client.server_info()["transitions"].current_size
    found: dict[int, Any] = {}
    for sample in builder.make_dataset(client, spec):
        for row, key in enumerate(sample.info.key.numpy()):
            found[key] = tf.nest.map_structure(lambda rows, r=row: rows[r], sample)
        if len(found) == size:
            break
    samples = list(found.values())
    return tf.nest.map_structure(lambda *rows: tf.stack(rows), *samples)


def split_episodes(steps: list[tuple[dm_env.TimeStep, Any]]) -> list[list[Any]]:
    episodes: list[list[Any]] = []
    for timestep, output in steps:
        if timestep.first():
            episodes.append([])
        episodes[-1].append((timestep, output))
    return episodes


KINDS = {
    "vectors": ({}, {}),
    "gru": ({"core": "gru"}, {}),
    "no memory": ({"core": "none"}, {}),
    "images": (
        {"torso": "conv", "conv_kernel_sizes": (2,)},
        {"dtype": np.uint8, "shape": (4, 4)},
    ),
    "stacks": (
        {"torso": "conv", "conv_kernel_sizes": (2,), "frame_stack": 3},
        {"dtype": np.uint8, "shape": (4, 4), "stack": 3},
    ),
    "abandoned episodes": ({}, {"abandons": True}),
    "no burn-in": ({"burn_in_length": 0}, {}),
    "Acme's loop": ({}, {}),
}


def known_steps(recorder: Recorder) -> dict[bytes, tuple[int, dm_env.TimeStep, Any]]:
    """Return all acted steps by their observations, which are all different."""
    return {
        timestep.observation.tobytes(): (index, timestep, output)
        for steps in recorder.steps
        for episode in split_episodes(steps)
        for index, (timestep, output) in enumerate(episode)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_replayed_sequences_have_the_values_of_acting(kind, serve):
    changes, settings = KINDS[kind]
    config = make_config(measure_staleness=kind != "no memory", **changes)
    act_in = act_in_acmes_loop if kind == "Acme's loop" else act
    builder, spec, recorder, client = act_in(config, serve, **settings)
    batch = read_all(builder, spec, client).data
    network = builder.make_networks(spec, seed=1)
    burn_in_values, state = np.zeros([]), batch.state
    if config.burn_in_length:
        burn_in_values, state = network.unroll(batch.burn_in, state, batch.num_burn_in)
    values, _ = network.unroll(batch.steps, state)
    batch, burn_in_values, values = tf.nest.map_structure(
        np.asarray, (batch, burn_in_values, values)
    )
    known = known_steps(recorder)

    def check(steps: Any, q_values: np.ndarray, i: int, t: int) -> tuple[dm_env.TimeStep, Any]:
        index, timestep, output = known[steps.observation[i, t].tobytes()]
        assert steps.reward[i, t] == pytest.approx(float(timestep.reward or 0), rel=1e-6)
        assert (steps.previous_action[i, t] == -1) == (index == 0)
        assert index > 0 or not any(part.any() for part in output.state)
        if not timestep.last():
            taken = q_values[i, t, output.action]
            assert taken == pytest.approx(float(output.q_taken), abs=1e-5)
        assert q_values[i, t].max() == pytest.approx(float(output.value), abs=1e-5)
        return timestep, output

    for i, num_burn_in in enumerate(batch.num_burn_in):
        for t in range(num_burn_in):
            check(batch.burn_in, burn_in_values, i, t)
        for t in np.nonzero(batch.is_real[i])[0]:
            timestep, output = check(batch.steps, values, i, t)
            assert batch.discount[i, t] == (1 if timestep.first() else timestep.discount)
            if t < 8 and batch.is_trained[i, t]:
                assert not timestep.last()
                assert batch.action[i, t] == output.action
        if not config.measure_staleness:
            continue
        trained = np.nonzero(batch.is_trained[i])[0]
        for t, acted in zip((trained[0], trained[-1]), batch.acted_states, strict=True):
            _, _, output = known[batch.steps.observation[i, t].tobytes()]
            for part, expected in zip(acted, output.state, strict=True):
                np.testing.assert_array_equal(part[i], expected)
    assert set(batch.num_burn_in) == {0, config.burn_in_length}


def test_blocks_cover_every_step_and_have_the_steps_that_their_targets_need(serve):
    builder, spec, recorder, client = act(make_config(), serve)
    batch = tf.nest.map_structure(np.asarray, read_all(builder, spec, client).data)
    num_times = collections.Counter(
        batch.steps.observation[i, t].tobytes()
        for i, t in zip(*np.nonzero(batch.is_trained), strict=True)
    )
    # The last episode of each environment is not over: its last steps are in no item yet.
    for steps in recorder.steps:
        for episode in split_episodes(steps)[:-1]:
            counts = [num_times[timestep.observation.tobytes()] for timestep, _ in episode]
            num_acted = len(episode) - 1
            # Blocks begin at 0, 4, 8, ... until one has reached the end.
            starts = [0]
            while starts[-1] + 8 < num_acted:
                starts.append(starts[-1] + 4)
            expected = [
                sum(s <= t < min(s + 8, num_acted) for s in starts) for t in range(num_acted)
            ]
            assert counts == [*expected, 0]


def test_initial_priorities_are_those_of_the_learner(serve):
    builder, spec, _, client = act(make_config(), serve)
    sample = read_all(builder, spec, client)
    update = builder.make_update(spec, seed=1)
    computed = update.compute(sample.data, tf.ones(len(sample.info.key)))
    np.testing.assert_allclose(computed.priorities, sample.info.priority, rtol=1e-4, atol=1e-5)


def test_no_gradient_reaches_the_burn_in(serve):
    builder, spec, _, client = act(make_config(), serve)
    batch = read_all(builder, spec, client).data
    update = builder.make_update(spec, seed=1)
    with tf.GradientTape() as tape:
        watched = (batch.burn_in.observation, batch.state, batch.steps.observation)
        tape.watch(watched)
        loss, _ = update.compute_loss(batch)
    burn_in, state, steps = tape.gradient(loss.loss, watched)
    assert burn_in is None and state == (None, None)
    is_trained = batch.is_trained.numpy()
    assert np.all(steps.numpy()[:, :8][is_trained].any(axis=1))
    assert np.all(steps.numpy()[:, 8:] == 0)


def test_staleness_is_zero_with_the_weights_that_acted_and_not_with_others(serve):
    builder, spec, _, client = act(make_config(measure_staleness=True), serve)
    batch = read_all(builder, spec, client).data
    for seed, is_stale in ((1, False), (2, True)):
        metrics = (
            builder.make_update(spec, seed).compute(batch, tf.ones(len(batch.is_real))).metrics
        )
        for name in ("delta_q_first", "delta_q_last"):
            assert (metrics[name] > 1e-3) == is_stale
            assert metrics[name] > 1e-3 or metrics[name] < 1e-5


def make_adder(serve: Any, config: R2D2Config, **calls: Any) -> Any:
    """Return builder, spec, client and the adder of one environment."""
    builder, spec = R2D2Builder(config), acme.make_environment_spec(Noise(0))
    client = serve(*builder.make_replay_tables(spec))
    (adder,) = builder.make_adders(client, spec, **calls)
    return builder, spec, client, adder


def add_episode(
    adder: Any, rewards: Sequence[float], values: Sequence[float] = (), is_over: bool = True
) -> None:
    """Add an episode with these rewards; steps have values of 0 but those that are given."""
    zeros = np.zeros(5, np.float32)
    for t, reward in enumerate([0.0, *rewards]):
        observation = np.full(3, t, np.float32)
        timestep = dm_env.transition(reward, observation)
        if t == 0:
            timestep = dm_env.restart(observation)
        elif t == len(rewards) and is_over:
            timestep = dm_env.termination(reward, observation)
        value = np.float32(values[t] if t < len(values) else 0.0)
        adder.add(timestep, PolicyOutput(np.int32(0), value, value, (zeros, zeros)))


def count_items(client: Any) -> int:
    return client.server_info()["transitions"].current_size


def test_items_are_sent_while_their_episode_goes_on(serve):
    _, _, client, adder = make_adder(serve, make_config())
    add_episode(adder, [0.0] * 60, is_over=False)
    assert adder.num_items == 13  # With 10, 14, ... 58 steps.
    deadline = time.monotonic() + 30
    while count_items(client) < 12:  # The rows of the last one may share a chunk with later ones.
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("initial_priority", ["td_error", "max"])
@pytest.mark.parametrize(
    ("rewards", "num_added", "num_left_out"),
    [
        ([1.0, np.nan, 1.0], 1, 11),
        ([1.0, 1e39, 1.0], 1, 11),
        # These are numbers, but not their sum: only the first block has errors that are none.
        ([1.0, 3e38, 3e38], 2, 8),
    ],
)
def test_sequences_that_are_not_finite_are_left_out(
    rewards, num_added, num_left_out, initial_priority, serve
):
    replay = ReplayConfig(max_size=100, min_size=1, initial_priority=initial_priority)
    _, _, client, adder = make_adder(serve, make_config(replay=replay))
    add_episode(adder, [1.0, 1.0])
    # Blocks of steps 0 to 7 and, with a burn-in of steps 0 to 3, 4 to 10.
    add_episode(adder, [*rewards, *[1.0] * 8])
    adder.flush()
    assert (adder.num_items, adder.num_not_finite) == (num_added, num_left_out)
    assert count_items(client) == num_added


def test_the_highest_initial_priority(serve):
    replay = ReplayConfig(max_size=100, min_size=1, initial_priority="max")
    builder, spec, client, adder = make_adder(serve, make_config(replay=replay))
    for reward in (1.0, 5.0, 2.0):
        add_episode(adder, [reward])
    adder.flush()
    # h(r) - 0, the only error of a sequence: sqrt(r + 1) - 1 + 0.001 r.
    low, high = 2**0.5 - 1 + 0.001, 6**0.5 - 1 + 0.005
    priorities = np.sort(read_all(builder, spec, client).info.priority)
    np.testing.assert_allclose(priorities, [low, high, high], rtol=1e-5)


def test_learner_steps_are_those_of_the_first_trained_step(serve):
    counts = itertools.count()
    builder, spec, client, adder = make_adder(
        serve, make_config(), learner_steps_fn=lambda: next(counts)
    )
    add_episode(adder, [0.0] * 16)
    adder.flush()
    batch = read_all(builder, spec, client).data
    first = batch.steps.observation[:, 0, 0]
    assert sorted(np.asarray(first)) == [0, 4, 8]
    np.testing.assert_array_equal(batch.learner_steps, first)


def test_stacks_that_do_not_slide_are_refused(serve):
    config = make_config(torso="conv", conv_kernel_sizes=(2,), frame_stack=3)
    with pytest.raises(ValueError, match="do not slide by one frame per step"):
        act(config, serve, dtype=np.uint8, shape=(3, 4, 4))
