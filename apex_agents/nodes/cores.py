"""Which cores of a machine a node computes on."""

import os

import tensorflow as tf


def limit_cores(is_learner: bool, cpu_split: float | None) -> None:
    """Keep this process to its cores, and its TensorFlow to as many threads as it should have.

    Args:
      is_learner: whether it is the learner's process.
      cpu_split: see `apex_agents.config.RunConfig`.
    """
    cores = sorted(os.sched_getaffinity(0))
    if cpu_split is not None:
        cores = select_cores(cores, is_learner, cpu_split)
        os.sched_setaffinity(0, cores)
    num_threads = len(cores) if is_learner else 1
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    tf.config.threading.set_inter_op_parallelism_threads(num_threads)


def select_cores(cores: list[int], is_learner: bool, cpu_split: float) -> list[int]:
    """Return the learner's share of some cores, or the others: at least one each way."""
    num_learner = max(1, round(cpu_split * len(cores)))
    if is_learner:
        return cores[:num_learner]
    return cores[num_learner:] or cores
