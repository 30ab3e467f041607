"""Sets up the process of a node: its name, its cores and threads, its end."""

import contextlib
import ctypes
import os
import signal

import tensorflow as tf

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # From <linux/prctl.h>.


def name_process(name: str) -> None:
    """Let tools such as `top` show the node's name, truncated by Linux to 15 characters."""
    _prctl(_PR_SET_NAME, name.encode())


def continue_after_launcher() -> None:
    """Continue when the launcher dies while it has stopped this process, which then exits."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def limit_cores(computes: bool, cpu_split: float | None) -> None:
    """Restrict this process to its cores, and TensorFlow to its threads; see `NodeRole`."""
    cores = sorted(os.sched_getaffinity(0))
    if cpu_split is not None:
        cores = select_cores(cores, computes, cpu_split)
        os.sched_setaffinity(0, cores)
    num_threads = len(cores) if computes else 1
    with contextlib.suppress(RuntimeError):  # Code of the user may have made a tensor already.
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def select_cores(cores: list[int], computes: bool, cpu_split: float) -> list[int]:
    """Return the learner's share of some cores, or the other cores; at least one either way."""
    num_learner = max(1, round(cpu_split * len(cores)))
    return cores[:num_learner] if computes else cores[num_learner:] or cores


def _prctl(option: int, value: bytes | int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # Not Linux.
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
