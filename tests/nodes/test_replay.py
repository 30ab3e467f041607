"""Tests of what outlives a replay server: its saved content."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np
import pytest
import reverb
import tensorflow as tf

from apex_agents.config import RunConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.replay import ReplayNode, save_replay
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import make_message_tables
from apex_agents.replay.tables import TRANSITIONS, make_transition_table


class Replay:
    """A replay server and its client; the folder holds its checkpoints."""

    def __init__(self, folder: pathlib.Path, port: int):
        config = ReplayConfig(max_size=10, min_size=1)
        tables = [
            make_transition_table(config, tf.TensorSpec([], tf.int64)),
            *make_message_tables({}),
        ]
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(folder))
        self.server = reverb.Server(tables, port, checkpointer)
        self.client = reverb.Client(f"localhost:{self.server.port}")

    def insert(self, num_items: int) -> None:
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for number in range(num_items):
                writer.append(np.int64(number))
                writer.create_item(TRANSITIONS, 1.0, writer.history[-1])


@pytest.fixture
def start(tmp_path, reserved_port):
    """Starts replay servers, which follow each other in one run."""
    started = []

    def start_server() -> Replay:
        started.append(Replay(tmp_path / "replay", reserved_port()))
        return started[-1]

    yield start_server
    for replay in started:
        replay.server.stop()


def test_a_replay_is_saved_where_the_clock_was_set_back(start, tmp_path):
    first = start()
    first.insert(3)
    save_replay(first.client, tmp_path / "replay")
    (path,) = (tmp_path / "replay").iterdir()
    path.rename(path.with_name("2999-01-01T00:00:00+00:00"))
    first.insert(2)
    save_replay(first.client, tmp_path / "replay")
    assert start().client.server_info()[TRANSITIONS].current_size == 5
    assert len(list((tmp_path / "replay").iterdir())) == 1


def test_a_failure_leaves_the_replay_that_was_saved_before(start, tmp_path, monkeypatch):
    first = start()
    first.insert(3)
    save_replay(first.client, tmp_path / "replay")

    class Fails:
        def checkpoint(self):
            raise RuntimeError("full")

    save_replay(Fails(), tmp_path / "replay")
    assert start().client.server_info()[TRANSITIONS].current_size == 3


@pytest.mark.parametrize(("period", "size"), [(None, 0), (60.0, 3)])
def test_a_saved_replay_is_restored_where_replays_are_saved(
    period, size, start, tmp_path, reserved_port
):
    replay = start()
    replay.insert(3)
    save_replay(replay.client, tmp_path / "replay")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "replay").rename(tmp_path / "run" / "checkpoints" / "replay")

    def make_tables(experiment: Experiment) -> Sequence[reverb.Table]:
        config = ReplayConfig(max_size=10, min_size=1)
        return [
            make_transition_table(config, tf.TensorSpec([], tf.int64)),
            *make_message_tables({}),
        ]

    run = RunConfig(replay_checkpoint_period_seconds=period)
    agent = ApexDQNBuilder(ApexDQNConfig(torso="mlp", frame_stack=0))
    node = ReplayNode(make_tables, Experiment(agent, len, run, str(tmp_path / "run")))
    server = node._start_server(f"localhost:{reserved_port()}")
    client = reverb.Client(f"localhost:{server.port}")
    sizes = [
        info.current_size for name, info in client.server_info().items() if TRANSITIONS in name
    ]
    server.stop()
    assert sizes == [size]


def test_a_saved_replay_with_other_tables_is_put_aside(start, tmp_path, reserved_port):
    start().insert(3)
    replay = start()
    save_replay(replay.client, tmp_path / "replay")
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (tmp_path / "replay").rename(checkpoints / "replay")

    def make_tables(experiment: Experiment) -> Sequence[reverb.Table]:
        config = ReplayConfig(max_size=10, min_size=1)
        return [make_transition_table(config, tf.TensorSpec([], tf.int64))]

    run = RunConfig(replay_checkpoint_period_seconds=60.0)
    agent = ApexDQNBuilder(ApexDQNConfig(torso="mlp", frame_stack=0))
    node = ReplayNode(make_tables, Experiment(agent, len, run, str(tmp_path / "run")))
    server = node._start_server(f"localhost:{reserved_port()}")
    info = reverb.Client(f"localhost:{server.port}").server_info()
    server.stop()
    assert [table.current_size for table in info.values()] == [0]
    assert len(list(checkpoints.glob("replay-damaged-*"))) == 1


@pytest.mark.parametrize(("period", "is_longer"), [(None, False), (60.0, True)])
def test_a_replay_that_is_saved_may_take_longer_to_exit(period, is_longer, tmp_path):
    agent = ApexDQNConfig(torso="mlp", frame_stack=0)
    run = RunConfig(replay_checkpoint_period_seconds=period)
    experiment = Experiment(ApexDQNBuilder(agent), len, run, str(tmp_path))

    def make_tables(experiment: Experiment) -> Sequence[reverb.Table]:
        return []

    node = ReplayNode(make_tables, experiment)
    assert (node.name, node.role.stops_last, node.role.computes) == ("replay", True, False)
    assert (node.role.stop_seconds > 60) == is_longer
