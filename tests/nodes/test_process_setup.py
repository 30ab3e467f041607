"""Tests of the cores and threads that a node uses."""

import os
import subprocess
import sys

import pytest

from apex_agents.nodes.node import select_cores

SHOW = """
import os
import tensorflow as tf
from apex_agents.nodes.node import limit_cores
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
limit_cores({computes}, {cpu_split})
threading = tf.config.threading
print(len(os.sched_getaffinity(0)), threading.get_intra_op_parallelism_threads())
"""


@pytest.mark.parametrize(
    ("cpu_split", "learner", "others"),
    [
        (0.0, [0], [1, 2, 3]),
        (0.25, [0], [1, 2, 3]),
        (0.5, [0, 1], [2, 3]),
        (0.7, [0, 1, 2], [3]),
        (1.0, [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_learner_and_others_share_the_cores(cpu_split, learner, others):
    assert select_cores([0, 1, 2, 3], True, cpu_split) == learner
    assert select_cores([0, 1, 2, 3], False, cpu_split) == others


def test_one_core_is_shared():
    assert select_cores([5], True, 0.5) == select_cores([5], False, 0.5) == [5]


@pytest.mark.parametrize(
    ("computes", "cpu_split", "expected"),
    [(True, 0.5, [1, 1]), (False, 0.5, [1, 1]), (True, None, [2, 2]), (False, None, [2, 1])],
)
def test_a_process_keeps_to_its_cores(computes, cpu_split, expected):
    script = SHOW.format(computes=computes, cpu_split=cpu_split)
    command = [sys.executable, "-c", script]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    num_cores = min(2, len(os.sched_getaffinity(0)))
    assert [int(n) for n in finished.stdout.split()] == [min(n, num_cores) for n in expected]


def test_user_code_that_has_used_tensorflow_is_no_failure():
    """It may make a constant when it is imported; the numbers of threads are then given."""
    script = (
        "import tensorflow as tf; from apex_agents.nodes.node import limit_cores;"
        "tf.constant(1.0); limit_cores(False, None); print('works')"
    )
    command = [sys.executable, "-c", script]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["works"]
