"""Several learners and their parameter server, with a real replay server between them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import documented_logs
import numpy as np
import pytest
import reverb
import sonnet as snt
import tensorflow as tf
from acme.utils import loggers
from dm_env import specs
from waiting import TIMEOUT_SECONDS, wait_for

from apex_agents import learners as learners_module
from apex_agents.builder import ApexBuilder
from apex_agents.checks import check_experiment
from apex_agents.config import LearnersConfig, RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec
from apex_agents.experiment import make_experiment
from apex_agents.learners import (
    add_gradient_tables,
    make_gradient_learner,
    make_parameter_server,
)
from apex_agents.learning.following import (
    FollowingSource,
    ParameterFollower,
    TargetPublisher,
)
from apex_agents.learning.gradient_learner import GradientLearner, OutlierFilter
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.update import Computed, Update, update_on_batch
from apex_agents.local import run_local
from apex_agents.networks import RunningNormalization
from apex_agents.nodes.replay import ReplayNode
from apex_agents.presets import load_config
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.replay import messages
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.connections import ParameterPublisher, Sample
from apex_agents.replay.messages import ParameterSource, to_arrays
from apex_agents.replay.transitions import Transition
from tests.r2d2.sequences import make_config as make_r2d2_config

BATCH_SIZE, NUM_UPDATES = 4, 100
VECTOR = specs.Array((3,), np.float32)
DISCRETE = EnvironmentSpec(VECTOR, specs.DiscreteArray(3), None, None)
CONTINUOUS = EnvironmentSpec(VECTOR, specs.BoundedArray((2,), np.float32, -1.0, 1.0), None, None)
REPLAY = ReplayConfig(max_size=100, min_size=1)
SMALL = {"batch_size": BATCH_SIZE, "target_update_period": 7, "replay": REPLAY}

Batches = Sequence[Any]  # What an agent learns from, `[B, ...]` each.


def draw_transitions(spec: EnvironmentSpec, random: np.random.Generator) -> Transition:
    def draw(*shape: int) -> tf.Tensor:
        return tf.constant(random.normal(size=[BATCH_SIZE, *shape]), tf.float32)

    is_discrete = spec is DISCRETE
    action = tf.constant(random.integers(3, size=BATCH_SIZE), tf.int32) if is_discrete else draw(2)
    discount = tf.constant(random.choice([0.0, 0.9], size=BATCH_SIZE), tf.float32)
    return Transition(draw(3), action, draw(), discount, draw(3), tf.zeros([BATCH_SIZE]))


def draw_sequences(builder: Any, random: np.random.Generator) -> Any:
    layout = builder.make_layout(DISCRETE)
    length, columns = layout.padded_shapes["steps"]
    steps = random.normal(size=[BATCH_SIZE, length, columns])
    steps[..., 3] = random.integers(3, size=[BATCH_SIZE, length])  # Previous actions.
    steps[..., 5] = 1.0  # Discounts.
    heads = [[length, 4, 8, *random.normal(size=10)] for _ in range(BATCH_SIZE)]
    item = {"head": tf.constant(heads, tf.float32), "steps": tf.constant(steps, tf.float32)}
    return layout.unpack(item)


def make_agent(name: str) -> tuple[ApexBuilder, EnvironmentSpec, Callable[..., Any]]:
    """Make a builder, the spec of its environment, and what draws a batch from a generator."""
    if name == "dpg":
        config = ApexDPGConfig(num_critics=2, **SMALL)
        return ApexDPGBuilder(config), CONTINUOUS, lambda r: draw_transitions(CONTINUOUS, r)
    if name == "r2d2":
        builder = R2D2Builder(make_r2d2_config(batch_size=BATCH_SIZE, target_update_period=7))
        return builder, DISCRETE, lambda random: draw_sequences(builder, random)
    config = ApexDQNConfig(
        torso="mlp",
        mlp_hidden_sizes=(8,),
        stream_hidden_size=8,
        frame_stack=0,
        head="quantile" if name == "quantile" else "dueling",
        num_quantiles=5,
        optimizer="adam" if name == "adam" else "rmsprop",
        adam_epsilon=1e-3,  # By default it depends on the batch size of one learner.
        **SMALL,
    )
    return ApexDQNBuilder(config), DISCRETE, lambda random: draw_transitions(DISCRETE, random)


class GivenBatches:
    """Stands for the connections with the replays: gives batches in turn.

    Attributes:
      priorities: those that were written back, `[B]` each.
    """

    num_not_finite = num_dropped_batches = 0

    def __init__(self, batches: Batches):
        self._batches = iter(batches)
        self.priorities: list[np.ndarray] = []

    def sample(self, should_stop: Callable[[], bool]) -> Sample | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        ones = tf.ones([BATCH_SIZE])
        info = reverb.SampleInfo(
            key=tf.zeros([BATCH_SIZE], tf.uint64),
            probability=tf.cast(ones / 10, tf.float64),
            table_size=tf.fill([BATCH_SIZE], tf.constant(10, tf.int64)),
            priority=ones,
            times_sampled=tf.ones([BATCH_SIZE], tf.int32),
        )
        return Sample(reverb.ReplaySample(info, batch), ())

    def write_priorities(self, sample: Sample, priorities: np.ndarray) -> None:
        self.priorities.append(priorities)

    def close(self) -> None:
        """Do nothing."""


class Team:
    """A parameter server, and learners that are given their batches.

    Attributes:
      server: the parameter server, and what it logs, `server_rows`.
      learners: the learners, and what the first one logs, `learner_rows`.
      given: what gives each of them its batches.
      updates: updates of the server and of the learners.
    """

    def __init__(
        self,
        name: str,
        batches: Sequence[Batches],
        start: Callable[..., reverb.Client],
        stack: contextlib.ExitStack,
        **settings: Any,
    ):
        self.builder, self.spec, _ = make_agent(name)
        self.updates: list[Any] = []
        make_update = self.builder.make_update

        def make_and_keep(*arguments: Any, **options: Any) -> Any:
            self.updates.append(make_update(*arguments, **options))
            return self.updates[-1]

        self.builder.make_update = make_and_keep  # type: ignore[method-assign]
        run = RunConfig(num_learners=len(batches), learners=LearnersConfig(**settings))
        tables = self.builder.make_replay_tables(self.spec)
        self.client = start(*add_gradient_tables(tables, self.builder, self.spec, run))
        self.updates.clear()
        self.is_stopping = False
        deadline = time.monotonic() + TIMEOUT_SECONDS

        def should_stop() -> bool:
            return self.is_stopping or time.monotonic() > deadline

        server_log, learner_log = loggers.InMemoryLogger(), loggers.InMemoryLogger()
        self.server_rows, self.learner_rows = server_log.data, learner_log.data
        self.server: ApexLearner = make_parameter_server(
            self.builder,
            run,
            [self.client],
            self.spec,
            [self.client],
            seed=1,
            logger=server_log,
            should_stop=should_stop,
        )
        stack.callback(self.server.close)
        self.given = [GivenBatches(of_learner) for of_learner in batches]
        self.learners: list[GradientLearner] = []
        for index, given in enumerate(self.given):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(learners_module, "ReplayConnections", lambda *_, g=given: g)
                learner = make_gradient_learner(
                    self.builder,
                    self.spec,
                    run,
                    [self.client],
                    index,
                    logger=None if index else learner_log,
                    should_stop=should_stop,
                )
            self.learners.append(learner)
            stack.callback(learner.close)
        stack.callback(self._stop)
        self.server.publish()

    def _stop(self) -> None:
        self.is_stopping = True

    def await_publication(self) -> None:
        """Wait until the newest parameters of the server have arrived at all learners."""
        sources = [learner._follower._source for learner in self.learners]

        def have_newest() -> bool:
            for source in sources:
                source.refresh()
            return all(source.newest_steps == self.server.num_steps for source in sources)

        wait_for(have_newest)

    def learn(self, num_updates: int) -> None:
        """Let all learners take so many steps, and the server as many."""

        def compute(learner: GradientLearner) -> None:
            try:
                for _ in range(num_updates):
                    learner.step()
            except Exception:
                self.is_stopping = True
                raise

        with concurrent.futures.ThreadPoolExecutor() as pool:
            computing = [pool.submit(compute, learner) for learner in self.learners]
            for _ in range(num_updates):
                self.server.step()
            for future in computing:
                future.result(TIMEOUT_SECONDS)


def draw_batches(name: str, num_learners: int) -> list[list[Any]]:
    """Draw the batches of each learner, by learner and update."""
    random = np.random.default_rng(0)
    draw = make_agent(name)[2]
    return [[draw(random) for _ in range(NUM_UPDATES)] for _ in range(num_learners)]


@pytest.mark.parametrize(
    ("name", "num_learners"),
    [("dueling", 2), ("dueling", 3), ("adam", 2), ("quantile", 2), ("dpg", 2), ("r2d2", 2)],
)
def test_learners_with_batches_are_one_with_all_of_them(name, num_learners, serve):
    batches = draw_batches(name, num_learners)
    with contextlib.ExitStack() as stack:
        team = Team(name, batches, serve, stack)
        team.learn(NUM_UPDATES)
        arrays = team.server.get_all_variables()
        priorities = np.stack([given.priorities for given in team.given])  # `[K, T, B]`.
        update = team.builder.make_update(team.spec, seed=1)
    learn = tf.function(
        lambda batch, weights: update_on_batch(update, batch, weights), autograph=False
    )
    for step in range(NUM_UPDATES):
        of_step = [of_learner[step] for of_learner in batches]
        whole = tf.nest.map_structure(lambda *rows: tf.concat(rows, 0), *of_step)
        output = learn(whole, tf.ones([num_learners * BATCH_SIZE]))
        np.testing.assert_allclose(
            output.priorities, priorities[:, step].ravel(), rtol=1e-3, atol=1e-4
        )
    assert team.server.num_steps == NUM_UPDATES
    for group, variables in update.variables.items():
        for array, variable in zip(arrays[group], variables, strict=True):
            np.testing.assert_allclose(array, variable, rtol=1e-3, atol=1e-5)


def test_gradients_in_bfloat16_change_little(serve):
    batches = draw_batches("dueling", 2)
    arrays = []
    for bfloat16 in (False, True):
        with contextlib.ExitStack() as stack:
            team = Team("dueling", batches, serve, stack, bfloat16=bfloat16)
            before = team.server.get_all_variables()["network"]
            team.learn(3)
            arrays.append(team.server.get_all_variables()["network"])
    moves = [
        np.concatenate([(new - old).ravel() for new, old in zip(after, before, strict=True)])
        for after in arrays
    ]
    difference = np.linalg.norm(moves[1] - moves[0]) / np.linalg.norm(moves[0])
    assert 1e-5 < difference < 0.02


@pytest.mark.parametrize(("name", "documented"), [("dueling", "dqn"), ("dpg", "dpg")])
def test_metrics_are_the_documented_columns(name, documented, serve):
    with contextlib.ExitStack() as stack:
        team = Team(name, draw_batches(name, 2), serve, stack)
        team.learn(1)
    counts = {"actor_steps", "replay_size", "samples_per_insert", "wall_time_seconds"}
    amounts = {"num_updates", "waiting_seconds"}
    of_server = documented_logs.columns("learner", f"several_{documented}") - counts
    per_second = {"learner_steps_per_second", "data_wait_fraction"}
    assert team.server_rows[0].keys() - amounts == of_server - per_second
    of_learner = documented_logs.columns("learner_<i>", documented) - counts
    per_second = {
        "gradients_per_second",
        "data_wait_fraction",
        "parameter_wait_fraction",
        "send_fraction",
    }
    amounts |= {"parameter_wait_seconds", "sending_seconds"}
    assert team.learner_rows[0].keys() - amounts == of_learner - per_second


def test_each_gradient_is_an_update_when_learners_are_asynchronous(serve):
    batches = draw_batches("dueling", 2)
    with contextlib.ExitStack() as stack:
        team = Team("dueling", batches, serve, stack, mode="asynchronous")
        update = team.builder.make_update(team.spec, seed=1)
        # Both compute with the first parameters; the second gradient is one update old.
        for learner in team.learners:
            learner.step()
        team.server.step()
        team.server.step()
        arrays = team.server.get_all_variables()["network"]
        assert [row["staleness_steps"] for row in team.server_rows] == [0.0, 1.0]
    ones = tf.ones([BATCH_SIZE])
    gradients = [update.compute(of_learner[0], ones).gradients for of_learner in batches]
    for gradient in gradients:
        update.apply(gradient)
    for array, variable in zip(arrays, update.variables["network"], strict=True):
        np.testing.assert_allclose(array, variable, rtol=1e-5, atol=1e-7)


def test_a_gradient_that_is_too_stale_is_left_out(serve):
    with contextlib.ExitStack() as stack:
        team = Team(
            "dueling",
            draw_batches("dueling", 3),
            serve,
            stack,
            mode="asynchronous",
            max_staleness=1,
        )
        for learner in team.learners:  # Of the same parameters.
            learner.step()
        team.server.step()
        team.server.step()
        team.await_publication()
        team.learners[0].step()  # Of the newest ones; it comes after the third stale one.
        team.server.step()
        staleness = [row["staleness_steps"] for row in team.server_rows]
        dropped = [row["gradients_dropped"] for row in team.server_rows]
    assert (staleness, dropped) == ([0.0, 1.0, 0.0], [0, 0, 1])


def test_targets_are_those_of_the_server_when_it_moves_them(serve):
    period = SMALL["target_update_period"]
    with contextlib.ExitStack() as stack:
        team = Team("dueling", draw_batches("dueling", 2), serve, stack)
        of_server, *updates = team.updates
        before = [variable.numpy() for variable in of_server.targets.variables]
        team.learn(period)  # The last gradients are of parameters from before the move.
        for update in updates:
            for array, variable in zip(before, update.targets.variables, strict=True):
                np.testing.assert_array_equal(array, variable)
        team.learn(1)
        moved = of_server.targets.variables
        for update in updates:
            for expected, variable in zip(moved, update.targets.variables, strict=True):
                np.testing.assert_array_equal(expected, variable)
        assert not np.array_equal(before[1], moved[1])
        # One that begins between two moves has the same targets, not the newest parameters.
        team.await_publication()
        late = team.builder.make_update(team.spec)
        source = ParameterSource(team.client)
        follower = ParameterFollower(team.client, source, late, max_wait_seconds=None)
        follower.take()
        follower.close()
        assert follower.learner_steps == period + 1
        for expected, variable in zip(moved, late.targets.variables, strict=True):
            np.testing.assert_array_equal(expected, variable)


def test_a_restored_replay_has_nothing_of_learners_from_when_it_was_saved(serve, monkeypatch):
    run = RunConfig(num_learners=2)
    builder, spec, _ = make_agent("dueling")
    demonstrations = reverb.Table.queue("demonstrations", 1)  # A table of an own builder.
    tables = [*builder.make_replay_tables(spec), demonstrations]
    of_learners = add_gradient_tables(tables, builder, spec, run)[len(tables) :]
    client = serve(*tables, *of_learners)
    flow = builder.data_flow(1)
    client.insert(np.float32(1.0), {"demonstrations": 1.0})
    node = types.SimpleNamespace(_experiment=types.SimpleNamespace(data_flow=lambda: flow))
    publisher = TargetPublisher(client, builder.make_update(spec))
    publisher.publish(to_arrays(builder.make_update(spec).variables), 0)
    publisher.flush()
    publisher.close()
    sizes = client.server_info()
    assert [sizes[name].current_size for name in ("targets", "parameters_0", "parameters_1")] == [
        1
    ] * 3
    reset, names = client.reset, []
    monkeypatch.setattr(client, "reset", lambda name: names.append(name) or reset(name))
    ReplayNode._reset_messages(node, client)  # type: ignore[arg-type]
    assert not any(client.server_info()[table.name].current_size for table in of_learners)
    assert {*names} == {*sizes} - {flow.table, "demonstrations"}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("a2c_cartpole", {"num_actors": 3}, ["parameters_0", "parameters_1", "parameters_2"]),
        ("a3c_cartpole", {"num_actors": 3}, []),
        ("apex_dqn_cartpole", {"num_actors": 3}, []),
        ("gorila_minatar", {"num_learners": 2}, ["gradients", "targets"]),
        (
            "gorila_minatar",
            {"num_learners": 2, "learners": LearnersConfig("synchronous")},
            ["gradients", "parameters_0", "parameters_1", "targets"],
        ),
    ],
)
def test_tables_for_those_who_compute_gradients(name, settings, expected):
    config = load_config(name)
    config.run = dataclasses.replace(config.run, **settings)
    experiment = make_experiment(config)
    spec = DISCRETE
    if "minatar" in name:
        spec = spec._replace(observations=specs.Array((10, 10, 4), np.float32))
    tables = experiment.builder.make_replay_tables(spec)
    added = add_gradient_tables(tables, experiment.builder, spec, experiment.run)[len(tables) :]
    assert [table.name for table in added] == expected


def spoil(batch: Transition) -> Transition:
    return batch._replace(n_step_return=batch.n_step_return * np.inf)


def test_nobody_waits_for_a_gradient_that_is_not_finite(serve):
    (first,), (second,) = [batches[:1] for batches in draw_batches("dueling", 2)]
    given = [[first, spoil(first)], [spoil(second), spoil(second)]]
    # If the server waited, it would for longer than the test has.
    with contextlib.ExitStack() as stack:
        team = Team("dueling", given, serve, stack, max_wait_seconds=2 * TIMEOUT_SECONDS)
        update = team.builder.make_update(team.spec, seed=1)
        team.learn(1)
        arrays = team.server.get_all_variables()["network"]
        team.learn(1)  # There is no gradient to apply.
        unchanged = team.server.get_all_variables()["network"]
    update.apply(update.compute(first, tf.ones([BATCH_SIZE])).gradients)
    for array, variable, later in zip(arrays, update.variables["network"], unchanged, strict=True):
        np.testing.assert_allclose(array, variable, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(array, later)
    assert [int(row["steps_skipped"]) for row in team.server_rows] == [0, 1]
    assert [row["gradients_left_out"] for row in team.learner_rows] == [0, 1]
    assert np.isfinite(team.server_rows[0]["loss"])


def test_a_gradient_that_is_not_finite_is_no_asynchronous_update(serve):
    (first,), (second,) = [batches[:1] for batches in draw_batches("dueling", 2)]
    with contextlib.ExitStack() as stack:
        team = Team("dueling", [[first], [spoil(second)]], serve, stack, mode="asynchronous")
        for learner in reversed(team.learners):
            learner.step()
        team.server.step()
    assert [row["steps_skipped"] for row in team.server_rows] == [0]
    assert np.isfinite(team.server_rows[0]["loss"])


def test_parameters_are_found_by_a_learner_whose_own_table_got_none(serve, monkeypatch):
    # As after a restart of the replay, while its reader waits for the one before.
    with contextlib.ExitStack() as stack:
        team = Team("dueling", draw_batches("dueling", 2), serve, stack)
        team.await_publication()
        update = team.builder.make_update(team.spec)
        source = FollowingSource(team.client, 0)
        limit = 2 * TIMEOUT_SECONDS
        follower = ParameterFollower(team.client, source, update, max_wait_seconds=limit)
        stack.callback(follower.close)
        monkeypatch.setattr(messages, "find_followers", lambda *_: [])
        for learner_steps in (5, 3):  # A parameter server may resume from an earlier checkpoint.
            publisher = ParameterPublisher(team.client)
            stack.callback(publisher.close)
            publisher.publish(team.server.get_all_variables(), learner_steps)
            publisher.flush()
            follower.take()
            assert follower.learner_steps == learner_steps


def test_a_learner_that_is_gone_is_not_waited_for(serve):
    with contextlib.ExitStack() as stack:
        team = Team("dueling", draw_batches("dueling", 2), serve, stack, max_wait_seconds=1.0)
        first, second = team.learners
        numbers = []
        for learners in ([first, second], [first], [first], [second], [first, second]):
            team.await_publication()
            for learner in learners:
                learner.step()
                while learner.num_steps != team.server.num_steps:
                    learner.step()  # What it had read ahead was too old.
            team.server.step()
            numbers.append(team.server_rows[-1]["gradients_per_step"])
    assert numbers == [2, 1, 1, 1, 2]


@pytest.mark.parametrize("sign", [1, -1])
def test_outliers_are_far_above_the_mean_of_absolute_losses(sign):
    outliers, random = OutlierFilter(5.0), np.random.default_rng(0)
    found = [outliers.is_outlier(sign * loss) for loss in random.uniform(0.9, 1.1, size=500)]
    assert not any(found)
    assert not outliers.is_outlier(sign * 0.0)  # Far below.
    assert outliers.is_outlier(sign * 2.0) and outliers.is_outlier(-sign * 2.0)
    assert outliers.is_outlier(float("nan"))
    # Losses that stay larger are outliers for a while only.
    found = [outliers.is_outlier(sign * 2.0) for _ in range(1_000)]
    assert found[0] and not any(found[500:])


def test_the_first_losses_are_no_outliers():
    outliers = OutlierFilter(1.0)
    assert not any(outliers.is_outlier(10.0**size) for size in range(8))


def test_gradients_of_outlying_losses_are_not_sent(serve, monkeypatch):
    class SecondOnly(OutlierFilter):
        num_asked = 0

        def is_outlier(self, loss: float) -> bool:
            self.num_asked += 1
            return self.num_asked == 2

    monkeypatch.setattr(learners_module, "OutlierFilter", SecondOnly)
    batches = draw_batches("dueling", 2)
    with contextlib.ExitStack() as stack:
        team = Team("dueling", batches, serve, stack, mode="asynchronous", num_deviations=3.0)
        learner = team.learners[0]
        for _ in range(3):
            learner.step()
        team.server.step()
        team.server.step()
        assert [row["gradients_left_out"] for row in team.learner_rows] == [0, 1, 1]
        assert team.server.num_steps == 2
        assert (
            len(team.given[0].priorities) == 3
        )  # Priorities of the outlier are as good as others.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_sgd_steps_per_step": 4}, "1 while agent.num_sgd_steps_per_step is 4"),
        ({"num_sgd_steps_per_step": 4}, "set that to 1"),
        ({"normalize_observations": True}, "1 while agent.normalize_observations is True"),
        ({"normalize_observations": True}, "set that to False"),
    ],
)
def test_what_several_learners_cannot_do_is_refused(changes, words):
    config = load_config("apex_dqn_cartpole")
    config.run.num_learners = 2
    config.agent.num_sgd_steps_per_step = 1
    for name, value in changes.items():
        setattr(config.agent, name, value)
    with pytest.raises(ValueError, match=rf"run.num_learners is 2; .*{words}"):
        make_experiment(config)


def make_normalized_torso(spec, config):
    normalization = RunningNormalization(spec.observations.shape)
    return snt.Sequential([normalization, snt.Linear(4), tf.nn.relu])


@pytest.mark.parametrize("num_learners", [1, 2])
@pytest.mark.parametrize("name", ["apex_dqn_cartpole", "apex_dpg_pendulum"])
def test_statistics_of_own_networks_need_one_learner(name, num_learners):
    config = load_config(name)
    config.agent.num_sgd_steps_per_step, config.run.num_learners = 1, num_learners
    config.agent.normalize_observations = False
    own = f"{__name__}:make_normalized_torso"
    if name == "apex_dqn_cartpole":
        config.agent.torso = own
    else:
        config.agent.critic_torso = own
    experiment = make_experiment(config)
    if num_learners == 1:
        check_experiment(experiment)
    else:
        with pytest.raises(ValueError, match=r"RunningNormalization.*run.num_learners=1"):
            check_experiment(experiment)


def make_static_torso(spec, config):
    return snt.Sequential([lambda x: tf.reshape(x, [x.shape[0], -1]), snt.Linear(4), tf.nn.relu])


def test_own_networks_may_read_the_size_of_a_batch(serve):
    config = dataclasses.replace(load_config("apex_dqn_cartpole").agent, batch_size=8)
    builder = ApexDQNBuilder(config, make_static_torso)
    spec = make_agent("dueling")[1]
    run = RunConfig(num_learners=2)
    client = serve(*add_gradient_tables(builder.make_replay_tables(spec), builder, spec, run))
    server = make_parameter_server(builder, run, [client], spec, [client])
    server.publish()
    server.close()


class OwnMetricBuilder(ApexDQNBuilder):
    """A builder whose update calls its loss by another name."""

    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        update = super().make_update(spec, seed)
        compute = update.compute

        def compute_and_rename(batch: Any, weights: tf.Tensor) -> Computed:
            computed = compute(batch, weights)
            metrics = {**computed.metrics}
            return computed._replace(metrics={"own_loss": metrics.pop("loss"), **metrics})

        update.compute = compute_and_rename  # type: ignore[method-assign]
        return update


def test_outliers_need_the_metric_that_they_are_outliers_of(serve):
    agent, spec, _ = make_agent("dueling")
    builder = OwnMetricBuilder(agent.config)
    learners = LearnersConfig(mode="asynchronous", num_deviations=3.0)
    run = RunConfig(num_learners=2, learners=learners)
    client = serve(*add_gradient_tables(builder.make_replay_tables(spec), builder, spec, run))
    with pytest.raises(ValueError, match=r"num_deviations is 3.0; it has to be None.*no 'loss'"):
        make_parameter_server(builder, run, [client], spec, [client])


def test_actors_that_compute_gradients_have_one_learner():
    config = load_config("a3c_cartpole")
    config.run.num_learners = 2
    with pytest.raises(ValueError, match=r"run.num_learners is 2; .* A2C and A3C"):
        make_experiment(config)


class OwnLearnerBuilder(ApexDQNBuilder):
    def make_learner(self, *arguments, **options):
        return super().make_learner(*arguments, **options)


def test_a_learner_of_the_users_is_not_left_out_in_silence():
    config = load_config("apex_dqn_cartpole")
    config.agent.num_sgd_steps_per_step, config.run.num_learners = 1, 2
    with pytest.raises(ValueError, match=r"run.num_learners is 2; .* OwnLearnerBuilder"):
        make_experiment(config, builder_fn=OwnLearnerBuilder)


def test_run_local_has_one_learner():
    config = load_config("apex_dqn_cartpole")
    config.agent.num_sgd_steps_per_step, config.run.num_learners = 1, 2
    with pytest.raises(ValueError, match=r"run.num_learners is 2; .* run_local"):
        run_local(make_experiment(config))
