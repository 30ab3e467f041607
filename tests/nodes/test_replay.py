"""Tests of what outlives a replay server: its saved content."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence

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
from apex_agents.waits import LACKS, NodeMemory, write_waits

EVERY_MINUTE = RunConfig(replay_checkpoint_period_seconds=60.0)


def make_tables(experiment: Experiment) -> Sequence[reverb.Table]:
    config = ReplayConfig(max_size=10, min_size=1)
    table = make_transition_table(config, tf.TensorSpec([], tf.int64))
    return [table, *make_message_tables({})]


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    """The folder of the replay's checkpoints."""
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints" / "replay"


@pytest.fixture
def start(tmp_path, folder, reserved_port) -> Iterator[Callable[..., reverb.Client]]:
    """Starts replay servers of a run, which follow each other."""
    servers = []

    def start_server(run: RunConfig = EVERY_MINUTE, make_tables=make_tables) -> reverb.Client:
        agent = ApexDQNBuilder(ApexDQNConfig(torso="mlp", frame_stack=0))
        node = ReplayNode(make_tables, Experiment(agent, len, run, str(tmp_path)))
        servers.append(node._start_server(f"localhost:{reserved_port()}"))
        return reverb.Client(f"localhost:{servers[-1].port}")

    yield start_server
    for server in servers:
        server.stop()


def insert(client: reverb.Client, num_items: int) -> None:
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in range(num_items):
            writer.append(np.int64(number))
            writer.create_item(TRANSITIONS, 1.0, writer.history[-1])


def size(client: reverb.Client) -> int:
    return client.server_info()[TRANSITIONS].current_size


def test_a_replay_is_saved_where_the_clock_was_set_back(start, folder):
    first = start()
    insert(first, 3)
    save_replay(first, folder)
    (path,) = folder.iterdir()
    path.rename(path.with_name("2999-01-01T00:00:00+00:00"))
    insert(first, 2)
    save_replay(first, folder)
    assert size(start()) == 5
    assert len(list(folder.iterdir())) == 1


class Full:
    """A client of a server whose disk is full."""

    def checkpoint(self) -> None:
        raise RuntimeError("full")


def test_a_replay_is_restored_where_replays_are_saved(start, folder):
    first = start()
    insert(first, 3)
    save_replay(first, folder)
    memory = NodeMemory()
    write_waits(memory)
    save_replay(Full(), folder)  # What was saved before stays.
    assert memory.messages() == LACKS
    assert size(start()) == 3
    assert size(start(RunConfig(replay_checkpoint_period_seconds=None))) == 0


def test_a_saved_replay_with_different_tables_is_put_aside(start, folder):
    first = start()
    insert(first, 3)
    save_replay(first, folder)
    assert size(start(make_tables=lambda experiment: make_tables(experiment)[:1])) == 0
    assert len(list(folder.parent.glob("replay-damaged-*"))) == 1


@pytest.mark.parametrize(("run", "is_longer"), [(RunConfig(), False), (EVERY_MINUTE, True)])
def test_a_replay_that_is_saved_may_take_longer_to_exit(run, is_longer, tmp_path):
    agent = ApexDQNConfig(torso="mlp", frame_stack=0)
    node = ReplayNode(make_tables, Experiment(ApexDQNBuilder(agent), len, run, str(tmp_path)))
    assert (node.name, node.role.stops_last, node.role.computes) == ("replay", True, False)
    assert (node.role.stop_seconds > 60) == is_longer
