"""Tests of the replays that a node works with."""

import queue
import threading
import types

import pytest

from apex_agents.nodes import node
from apex_agents.nodes.node import Replays, exit_when_moved
from apex_agents.nodes.process import EXIT_MOVED

ADDRESSES = [types.SimpleNamespace(resolve=lambda i=i: f"localhost:{i}") for i in (1, 2)]


@pytest.fixture(autouse=True)
def new_process(monkeypatch) -> None:
    """Starts as in a new process, to which the supervisor has told nothing."""
    monkeypatch.setattr(node, "_told_addresses", [])


def test_a_replay_that_moves_has_a_new_client():
    clients = Replays(ADDRESSES, "7f3a").connect(follows=True)
    assert [client.server_address for client in clients] == ["localhost:1", "localhost:2"]
    stays, moves = clients
    assert list(clients) == [stays, moves]
    node._take_addresses("localhost:1,localhost:3\n")
    assert clients[0] is stays
    assert clients[1] is not moves
    assert (clients[1].server_address, clients[1].run_id) == ("localhost:3", "7f3a")


def test_a_node_exits_when_its_own_replay_moves():
    clients = Replays(ADDRESSES, "7f3a").connect(1)
    exit_codes: queue.Queue = queue.Queue()
    threading.Thread(target=exit_when_moved, args=(clients, exit_codes.put), daemon=True).start()
    node._take_addresses("localhost:9,localhost:2\n")
    with pytest.raises(queue.Empty):
        exit_codes.get(timeout=1.2)  # It looks every half a second.
    node._take_addresses("localhost:9,localhost:3\n")
    assert exit_codes.get(timeout=60) == EXIT_MOVED


def test_a_node_that_starts_late_knows_the_present_addresses():
    node._take_addresses("localhost:9,localhost:3")
    (client,) = Replays(ADDRESSES, "").connect(1, follows=True)
    assert client.server_address == "localhost:3"
