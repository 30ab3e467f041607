"""Processes that keep a replay server busy, and what they and the server take for it."""

import contextlib
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil
import reverb
from measuring import cpu_seconds
from serving import leave_with_parent

from apex_agents import ApexDQNBuilder
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.batch_reader import BatchReader
from apex_agents.replay.priorities import PriorityWriter
from apex_agents.replay.tables import TRANSITIONS

_CONTEXT = multiprocessing.get_context("spawn")
_SERVER_TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.05
_SHORTEST_SLEEP_SECONDS = 0.005
# As fast as it can.
UNLIMITED = math.inf


class Worker:
    """A process that does the same again and again, as often as it is told to.

    Attributes:
      pid: of the process.
    """

    def __init__(self, make_work: Callable[..., Callable[[], Any]], *args: Any):
        """Start the process, at rest.

        Args:
          make_work: a function of a module, called in the process; it returns what is repeated.
          *args: its arguments.
        """
        self._rate = _CONTEXT.Value("d", 0.0)
        self._ready = _CONTEXT.Event()
        arguments = (self._rate, self._ready, make_work, args)
        self._process = _CONTEXT.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def wait_until_ready(self) -> None:
        """Block until the work could begin."""
        while not self._ready.wait(_POLL_SECONDS):
            self._check()

    def set_rate(self, calls_per_second: float) -> None:
        """Let the work be done so often at most; 0 stops it."""
        self._check()
        self._rate.value = calls_per_second

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()

    def _check(self) -> None:
        if not self._process.is_alive():
            raise RuntimeError(f"a worker ended with exit code {self._process.exitcode}")


@contextlib.contextmanager
def workers(*tasks: Sequence[Any]) -> Iterator[list[Worker]]:
    """Start workers, each with the arguments of `Worker`, for as long as the context lasts."""
    started = [Worker(*task) for task in tasks]
    try:
        for worker in started:
            worker.wait_until_ready()
        yield started
    finally:
        for worker in started:
            worker.kill()


def _work(
    rate: Any, ready: Any, make_work: Callable[..., Callable[[], Any]], args: tuple[Any, ...]
) -> None:
    leave_with_parent()
    work = make_work(*args)
    ready.set()
    due = time.perf_counter()
    while True:
        calls_per_second = rate.value
        if not calls_per_second:
            time.sleep(_POLL_SECONDS)
            continue
        work()
        # Who has been late for long does not catch up with all of it.
        due = max(due + 1 / calls_per_second, time.perf_counter() - _POLL_SECONDS)
        # A sleep for every call would take more of the core than the calls.
        if (ahead := due - time.perf_counter()) > _SHORTEST_SLEEP_SECONDS:
            time.sleep(ahead)


def make_learning(
    builder: ApexDQNBuilder, spec: EnvironmentSpec, address: str
) -> Callable[[], None]:
    """Make what a learner does besides learning: take a batch, write other priorities back."""
    client = reverb.Client(address)
    reader = BatchReader(builder.make_dataset(client, spec))
    writer = PriorityWriter(client)
    rng = np.random.default_rng(0)

    def learn() -> None:
        sample = reader.next()
        assert sample is not None
        keys = sample.info.key.numpy()
        writer.write(keys, rng.lognormal(sigma=1.5, size=len(keys)))
        assert not writer.num_dropped_batches

    return learn


class Traffic(NamedTuple):
    """What happened within some seconds.

    Attributes:
      inserts: transitions per second that the server took in.
      samples: transitions per second that the server gave out.
      cores: CPU seconds per second of each group of processes, by its name.
      network_bytes: per second, over this machine's loopback; by whomever.
    """

    inserts: float
    samples: float
    cores: dict[str, float]
    network_bytes: float = 0.0


def watch(address: str, pids: Mapping[str, Sequence[int]], seconds: float) -> Traffic:
    """Look for some seconds at what passes through a replay server, and what that takes.

    Args:
      address: of the server.
      pids: processes of each group, by its name.
      seconds: that long.
    """
    client = reverb.Client(address)
    before = _count(client, pids)
    time.sleep(seconds)
    after = _count(client, pids)
    elapsed, inserted, sampled, sent, *used = [b - a for a, b in zip(before, after, strict=True)]
    cores = {name: cpu / elapsed for name, cpu in zip(pids, used, strict=True)}
    return Traffic(inserted / elapsed, sampled / elapsed, cores, sent / elapsed)


def replay_size(address: str) -> int:
    """Return how many transitions there are in a server."""
    return _transition_table(reverb.Client(address)).current_size


def count_sampled(address: str) -> int:
    """Return how many transitions a server has given out so far."""
    return _transition_table(reverb.Client(address)).rate_limiter_info.sample_stats.completed


def _count(client: reverb.Client, pids: Mapping[str, Sequence[int]]) -> list[float]:
    """Return the time; inserted, sampled and bytes sent until then; the groups' CPU seconds."""
    table = _transition_table(client).rate_limiter_info
    counts = (table.insert_stats.completed, table.sample_stats.completed)
    cpu = [sum(cpu_seconds(pid) for pid in group) for group in pids.values()]
    sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    return [time.perf_counter(), *counts, sent, *cpu]


def _transition_table(client: reverb.Client) -> Any:
    return client.server_info(_SERVER_TIMEOUT_SECONDS)[TRANSITIONS]
