"""Tests of sampling from several replay servers at once, with real servers."""

from __future__ import annotations

import collections
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import reverb
import tensorflow as tf
from numbered_transitions import SPEC, add_transitions, read_priorities
from scipy import stats
from waiting import TIMEOUT_SECONDS, Clock, wait_for

from apex_agents.learning.losses import importance_weights
from apex_agents.replay import connections as connections_module
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.connections import (
    ParameterPublisher,
    PerServer,
    ReplayConnections,
)
from apex_agents.replay.dataset import make_dataset
from apex_agents.replay.messages import ParameterSource, make_message_tables
from apex_agents.replay.tables import TRANSITIONS, make_transition_table
from apex_agents.replay.transitions import make_layout

BATCH_SIZE = 40
REPLAY = ReplayConfig(max_size=10, min_size=1, priority_exponent=1.0, prefetch_batches=1)
LAYOUT = make_layout(SPEC, REPLAY, n_step=1)
VARIABLES = {"network": [tf.Variable([3.0])]}
# Priorities by the returns of the transitions: two servers with the same sum, and with others.
EQUAL_SUMS = ({1.0: 1.0, 2.0: 3.0}, {3.0: 2.0, 4.0: 2.0})
OTHER_SUMS = ({1.0: 1.0, 2.0: 3.0}, {3.0: 20.0, 4.0: 60.0})


def make_tables() -> list[reverb.Table]:
    return [
        make_transition_table(REPLAY, LAYOUT.signature),
        *make_message_tables(VARIABLES),
    ]


@pytest.fixture
def patience(monkeypatch) -> Callable[[float], None]:
    """Set the seconds for which the others' shares wait for that of one server."""

    def set_seconds(seconds: float) -> None:
        for name in ("_PATIENCE_SECONDS", "_FIRST_PATIENCE_SECONDS"):
            monkeypatch.setattr(connections_module, name, seconds)

    return set_seconds


@pytest.fixture
def connect():
    """Connects to servers by their clients, a sequence or each, for K batches at once."""
    made = []

    def connect_to(*clients: Any, num_batches: int = 1) -> ReplayConnections:
        given = clients[0] if isinstance(clients[0], Sequence) else clients
        size = BATCH_SIZE // len(given)

        def make_share(client: reverb.Client) -> tf.data.Dataset:
            return make_dataset(client, REPLAY, size, LAYOUT, num_batches)

        made.append(ReplayConnections(given, make_share, BATCH_SIZE, num_batches))
        return made[-1]

    yield connect_to
    for replays in made:
        replays.close()


@pytest.fixture
def start(serve) -> Callable[..., list[reverb.Client]]:
    """Starts a server for each of several tables of priorities by return."""

    def start_servers(*contents: Mapping[float, float]) -> list[reverb.Client]:
        clients = [serve(*make_tables()) for _ in contents]
        for client, priorities in zip(clients, contents, strict=True):
            add_transitions(client, LAYOUT, priorities)
        return clients

    return start_servers


@pytest.mark.parametrize(
    ("contents", "probabilities"),
    [
        (EQUAL_SUMS, (1 / 8, 3 / 8, 1 / 4, 1 / 4)),
        (OTHER_SUMS, (1 / 8, 3 / 8, 1 / 8, 3 / 8)),
        # One table with all transitions: with equal sums two servers sample as it does.
        (({**EQUAL_SUMS[0], **EQUAL_SUMS[1]},), (1 / 8, 3 / 8, 1 / 4, 1 / 4)),
        (({**OTHER_SUMS[0], **OTHER_SUMS[1]},), (1 / 84, 3 / 84, 20 / 84, 60 / 84)),
    ],
    ids=["equal_sums", "other_sums", "one_with_equal_sums", "one_with_other_sums"],
)
def test_frequencies_are_the_stated_probabilities(
    start, connect, patience, contents, probabilities
):
    patience(3600.0)
    replays = connect(*start(*contents))
    samples = [replays.sample().batches for _ in range(100)]
    returns = np.concatenate([sample.data.n_step_return for sample in samples])
    counts = [np.count_nonzero(returns == value) for value in (1, 2, 3, 4)]
    expected = len(returns) * np.asarray(probabilities)
    assert stats.chisquare(counts, expected).pvalue > 1e-7, (counts, expected)

    # What is sampled says with which probability it was, in a replay of four transitions.
    told = np.concatenate([sample.info.probability for sample in samples])
    np.testing.assert_allclose(told, np.asarray(probabilities)[returns.astype(int) - 1], rtol=1e-5)
    sizes = np.concatenate([sample.info.table_size for sample in samples])
    assert set(sizes) == {4}

    # Any mean over all transitions is estimated without bias, here that of their squared returns.
    weighted = returns**2 / (sizes * told)
    error = weighted.std() / np.sqrt(len(weighted))  # Six of them by chance once in 500 million.
    assert abs(weighted.mean() - (1 + 4 + 9 + 16) / 4) < 6 * error


def test_weights_compare_the_transitions_of_all_servers(start, connect):
    # N P is 4 * 3 / 8 for the second and the fourth, 4 / 8 for the others: not 2 * 3 / 4.
    batch = connect(*start(*OTHER_SUMS)).sample().batches
    weights = importance_weights(batch.info.probability, batch.info.table_size, 0.5)
    is_frequent = np.isin(batch.data.n_step_return, (2.0, 4.0))
    np.testing.assert_allclose(weights, np.where(is_frequent, 3**-0.5, 1.0), rtol=1e-5)


@pytest.mark.parametrize("num_batches", [1, 3])
def test_each_batch_has_as_many_rows_of_each_server(start, connect, num_batches):
    batches = connect(*start(*EQUAL_SUMS), num_batches=num_batches).sample().batches
    is_first = np.reshape(batches.data.n_step_return, [num_batches, BATCH_SIZE]) < 2.5
    assert is_first.sum(axis=1).tolist() == num_batches * [BATCH_SIZE // 2]


@pytest.mark.parametrize("num_batches", [1, 3])
def test_priorities_return_to_the_server_they_came_from(start, connect, num_batches):
    clients = start({1.0: 2.0, 2.0: 2.0}, {3.0: 2.0, 4.0: 2.0})
    replays = connect(*clients, num_batches=num_batches)
    sample = replays.sample()
    seen = set(np.asarray(sample.batches.data.n_step_return).tolist())
    assert seen == {1.0, 2.0, 3.0, 4.0}  # One is missing in 20 rows once in 250,000 runs.
    replays.write_priorities(sample, np.asarray(10 * sample.batches.data.n_step_return))
    replays.flush()
    found = [read_priorities(client) for client in clients]
    assert found == [{1.0: 10.0, 2.0: 20.0}, {3.0: 30.0, 4.0: 40.0}]


def test_a_server_that_gives_nothing_is_left_out_until_it_does(start, connect, patience):
    patience(0.5)
    clients = start({}, OTHER_SUMS[1])
    replays = connect(*clients)
    batches = replays.sample().batches
    assert batches.data.n_step_return.shape == [BATCH_SIZE]
    assert set(np.asarray(batches.data.n_step_return)) == {3.0, 4.0}
    # They are the whole replay.
    assert set(np.asarray(batches.info.table_size)) == {2}
    is_frequent = np.asarray(batches.data.n_step_return) == 4.0
    told = np.where(is_frequent, 3 / 4, 1 / 4)
    np.testing.assert_allclose(batches.info.probability, told, rtol=1e-5)
    patience(3600.0)
    for _ in range(50):  # Nothing waits for the other one any more.
        replays.sample()

    add_transitions(clients[0], LAYOUT, OTHER_SUMS[0])
    everything = {1.0, 2.0, 3.0, 4.0}
    wait_for(lambda: set(np.asarray(replays.sample().batches.data.n_step_return)) == everything)


def test_a_server_that_fills_the_share_of_another_is_counted_for_both(start, connect, patience):
    patience(0.5)
    replays = connect(*start({}, {0.0: 1.0}, {1.0: 1.0}, {2.0: 1.0}))  # One transition each.
    batches = [replays.sample().batches]
    patience(3600.0)  # Nothing waits for the first one any more.
    batches += [replays.sample().batches for _ in range(6)]
    all_shares = []
    for batch in batches:
        returns = np.asarray(batch.data.n_step_return).astype(int)
        shares = np.bincount(returns, minlength=3) / BATCH_SIZE
        np.testing.assert_allclose(batch.info.probability, shares[returns], rtol=1e-5)
        assert set(np.asarray(batch.info.table_size)) == {np.count_nonzero(shares)}
        all_shares.append(sorted(shares.tolist()))
    assert [1 / 4, 1 / 4, 1 / 2] in all_shares


def test_whoever_gives_is_sampled(start, connect, monkeypatch):
    monkeypatch.setattr(connections_module, "_PATIENCE_SECONDS", 0.5)
    clients = start({1.0: 1.0}, {2.0: 1.0}, {3.0: 1.0}, {4.0: 1.0})
    replays = connect(*clients)

    def await_only(*returns: float) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        found = None
        while found != {*returns}:
            sample = replays.sample(lambda: time.monotonic() > deadline)
            assert sample is not None, f"no sample any more; the last one was of {found}"
            found = set(np.asarray(sample.batches.data.n_step_return))
            assert len(sample.batches.data.n_step_return) == BATCH_SIZE
            assert len(sample.shares) == len(clients)

    await_only(1.0, 2.0, 3.0, 4.0)
    for silent, left in [(0, (2.0, 3.0, 4.0)), (2, (2.0, 4.0)), (1, (4.0,))]:
        clients[silent].reset(TRANSITIONS)
        await_only(*left)
    # The last one falls silent, too, and one that was left out is back.
    for silent, back in [(3, 0), (0, 1), (1, 2), (2, 3)]:
        clients[silent].reset(TRANSITIONS)
        silence_ends = time.monotonic() + 1
        while replays.sample(lambda end=silence_ends: time.monotonic() > end):
            silence_ends = time.monotonic() + 1
        add_transitions(clients[back], LAYOUT, {back + 1.0: 1.0})
        await_only(back + 1.0)


class ScriptedServer:
    """A server whose shares are ready at given times of a clock, which waiting advances."""

    def __init__(self, clock: Clock, ready_at: Sequence[float], is_absent: bool = False):
        self.is_absent = is_absent
        self.num_takes = 0
        self._clock = clock
        self._ready_at = [*ready_at]

    def take(self, seconds: float) -> reverb.ReplaySample | None:
        self.num_takes += 1
        assert self.num_takes < 3000, "it is asked all the time"
        self._clock.now += 0.0 if self.is_absent else seconds
        if not self._ready_at or self._clock.now < self._ready_at[0]:
            return None
        del self._ready_at[0]
        info = reverb.SampleInfo(*[tf.ones([1])] * len(reverb.SampleInfo._fields))
        return reverb.ReplaySample(info, tf.ones([1]))

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("is_absent", "max_takes"),
    [
        # The first share is there at once, the next one long after the patience with the others.
        (False, 1 + 10 * 10 + 20),
        (True, 10 * 200 + 20),  # All are absent: they are asked in the pauses of 5 ms.
    ],
)
def test_a_server_that_fills_all_shares_slowly_is_waited_for(
    monkeypatch, patience, is_absent, max_takes
):
    clock = Clock(0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(connections_module, "ReplayConnection", lambda server, *_: server)
    monkeypatch.setattr(
        connections_module, "time", types.SimpleNamespace(monotonic=clock, sleep=sleep)
    )
    patience(1.0)
    slow, silent = ScriptedServer(clock, [0.0, 10.0], is_absent), ScriptedServer(clock, [], True)
    replays = ReplayConnections([slow, silent], lambda _: None, 2)
    sample = replays.sample(lambda: clock.now > 20.0)
    assert [server for server, _ in sample.shares] == [slow, slow]
    assert (slow.is_absent, silent.is_absent) == (is_absent, True)
    assert max(slow.num_takes, silent.num_takes) <= max_takes
    replays.close()


def test_a_server_that_has_moved_is_sampled_at_its_new_address(start, connect, patience):
    patience(3600.0)
    first, second, moved = start(*EQUAL_SUMS, {5.0: 1.0})
    clients = collections.UserList([first, second])
    replays = connect(clients)
    sample = replays.sample()
    replays.write_priorities(sample, np.full(BATCH_SIZE, np.nan))
    replays.flush()
    clients[0] = moved
    while 5.0 not in np.asarray((sample := replays.sample()).batches.data.n_step_return):
        """Those that were read ahead come first."""
    assert set(np.asarray(sample.batches.data.n_step_return)) == {3.0, 4.0, 5.0}
    replays.write_priorities(sample, np.full(BATCH_SIZE, 7.0))
    replays.flush()
    assert read_priorities(moved) == {5.0: 7.0}
    assert replays.num_not_finite == BATCH_SIZE  # Those for the old address count, too.


def test_parameters_are_published_on_all_servers_and_on_one_that_has_moved(start):
    first, second, moved = start({}, {}, {})
    clients = collections.UserList([first, second])
    publisher = ParameterPublisher(clients)
    publisher.publish({"network": [np.array([5.0], np.float32)]}, 7)
    publisher.flush()
    clients[0] = moved
    for client in (first, second, moved):
        source = ParameterSource(client)
        assert source.get_variables(["network"])[0][0].tolist() == [5.0]
        assert source.learner_steps == 7
    publisher.close()


def test_sampling_ends_when_told_to(start, connect):
    replays = connect(*start({}, {}))
    assert replays.sample(lambda: True) is None
    stop_at = time.monotonic() + 1
    assert replays.sample(lambda: time.monotonic() > stop_at) is None


class Part:
    """A part that notes its server."""

    def __init__(self, server: str):
        self.server = server

    def close(self) -> None:
        """Do nothing."""


def test_a_server_that_cannot_be_followed_is_logged_once_and_tried_again(caplog):
    failures = iter([OSError("no route"), OSError("no route"), None])

    def make(server: str, before: Part | None) -> Part:
        failure = next(failures) if before is not None else None
        if failure is not None:
            raise failure
        return Part(server)

    servers = ["here", "there"]
    parts = PerServer(servers, make)
    servers[1] = "elsewhere"
    wait_for(lambda: [part.server for part in parts] == ["here", "elsewhere"])
    parts.close()
    (record,) = caplog.records
    assert "OSError: no route" in record.message
