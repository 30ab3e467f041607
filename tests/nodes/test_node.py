"""Tests of the replays that a node works with."""

import threading
import types

import pytest

from apex_agents.nodes import node
from apex_agents.nodes.node import Replays

ADDRESSES = [types.SimpleNamespace(resolve=lambda i=i: f"localhost:{i}") for i in (1, 2)]


@pytest.fixture
def told(monkeypatch) -> threading.Event:
    """Starts as in a new process; set once the node has to be restarted."""
    monkeypatch.setattr(node, "_told_addresses", [])
    monkeypatch.setattr(node, "_not_to_move", [])
    monkeypatch.setattr(node, "_has_moved", threading.Event())
    return node._has_moved


def test_clients_follow_a_replay_that_moves(told):
    clients = Replays(ADDRESSES, "7f3a").connect(follows=True)
    assert [client.server_address for client in clients] == ["localhost:1", "localhost:2"]
    assert not clients.have_moved()
    assert clients.follow() == []
    stays = clients[0]
    node._take_addresses("localhost:1,localhost:3\n")
    assert clients.have_moved()
    assert clients.follow() == [1]
    assert (clients[1].server_address, clients[1].run_id) == ("localhost:3", "7f3a")
    assert clients[0] is stays
    assert not clients.have_moved()
    assert not told.is_set()


def test_a_node_is_restarted_when_its_own_replay_moves(told):
    (client,) = Replays(ADDRESSES, "7f3a").connect(1)
    assert client.server_address == "localhost:2"
    node._take_addresses("localhost:9,localhost:2\n")
    assert not told.is_set()
    node._take_addresses("localhost:9,localhost:3\n")
    assert told.is_set()


def test_a_node_that_starts_late_knows_the_present_addresses(told):
    node._take_addresses("localhost:9,localhost:3")
    (client,) = Replays(ADDRESSES, "").connect(1)
    assert client.server_address == "localhost:3"
    assert not told.is_set()
