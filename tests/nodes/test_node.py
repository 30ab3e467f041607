"""Tests of the replays that a node works with, and of its cores and threads."""

import os
import queue
import subprocess
import sys
import threading
import types

import pytest

from apex_agents.nodes import node
from apex_agents.nodes.node import Replays, exit_when_moved, select_cores
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


@pytest.mark.parametrize(
    ("cpu_split", "learner", "others"),
    [
        (0.0, [0], [1, 2, 3]),
        (0.5, [0, 1], [2, 3]),
        (0.7, [0, 1, 2], [3]),
        (1.0, [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_learner_and_others_share_the_cores(cpu_split, learner, others):
    assert select_cores([0, 1, 2, 3], True, cpu_split) == learner
    assert select_cores([0, 1, 2, 3], False, cpu_split) == others
    assert select_cores([5], True, cpu_split) == select_cores([5], False, cpu_split) == [5]


LIMIT = """
import os, sys
import tensorflow as tf
from apex_agents.builder import Role
from apex_agents.nodes.node import limit_cores
computes, cpu_split, makes_tensor, num_nodes, index = eval(sys.argv[1])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
if makes_tensor:
    tf.constant(1.0)
limit_cores(Role("name", print, num_nodes, computes), cpu_split, index)
threading = tf.config.threading
print(*sorted(os.sched_getaffinity(0)), threading.get_intra_op_parallelism_threads())
"""


# The cores of the process, beginning with 0, and TensorFlow's threads.
@pytest.mark.parametrize(
    ("computes", "cpu_split", "makes_tensor", "num_nodes", "index", "expected"),
    [
        (True, 0.5, False, None, 0, ([0], 1)),
        (True, None, False, None, 0, ([0, 1], 2)),
        (False, None, False, 3, 0, ([0, 1], 1)),
        # User code may make a tensor when it is imported; the number of threads is then given.
        (False, None, True, None, 0, ([0, 1], 0)),
        # Several learners.
        (True, None, False, 2, 1, ([0, 1], 1)),
        (True, 1.0, False, 2, 1, ([1], 1)),
        (True, 1.0, False, 4, 2, ([0], 1)),
    ],
)
def test_a_process_keeps_to_its_cores(
    computes, cpu_split, makes_tensor, num_nodes, index, expected
):
    arguments = computes, cpu_split, makes_tensor, num_nodes, index
    command = [sys.executable, "-c", LIMIT, str(arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    *cores, num_threads = map(int, finished.stdout.split())
    ours = sorted(os.sched_getaffinity(0))[:2]
    possible = [core for core in expected[0] if core < len(ours)] or [0]
    assert [ours.index(core) for core in cores] == possible
    assert num_threads == min(expected[1], len(ours))


# Prints how many pages the kernel maps for arrays of 60 MB that the node has had before.
RUN = """
import resource, types
import numpy as np
from launchpad import context
from apex_agents.builder import Role
from apex_agents.nodes import node

def allocate():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [np.ones(2_500_000) for _ in range(3)]
        del arrays
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

processes = types.SimpleNamespace(launch_type=context.LaunchType.LOCAL_MULTI_PROCESSING)
context.get_context = lambda: processes
node.run_node("name", allocate, Role("name", print))
"""


def test_a_process_keeps_the_memory_that_its_node_frees():
    finished = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) < 100
