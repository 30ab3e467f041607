"""Processes that keep a replay server busy, and what they and the server consume."""

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
from apex_agents.replay.connections import ReplayConnections
from apex_agents.replay.tables import TRANSITIONS

_CONTEXT = multiprocessing.get_context("spawn")
_SERVER_TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.05
_SHORTEST_SLEEP_SECONDS = 0.005
UNLIMITED = math.inf


class Worker:
    """A process that repeats one call, as often as it is told to.

    Attributes:
      pid: id of the process.
    """

    def __init__(self, make_work: Callable[..., Callable[[], Any]], *args: Any):
        """Start the process, at rest.

        Args:
          make_work: function of a module, called in the process; it returns what is repeated.
          *args: arguments of `make_work`.
        """
        self._rate = _CONTEXT.Value("d", 0.0)
        self._ready = _CONTEXT.Event()
        arguments = (self._rate, self._ready, make_work, args)
        self._process = _CONTEXT.Process(target=_work, args=arguments, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def wait_until_ready(self) -> None:
        """Block until the process is ready to work."""
        while not self._ready.wait(_POLL_SECONDS):
            self._check()

    def set_rate(self, calls_per_second: float) -> None:
        """Set how often per second the call is repeated at most; 0 pauses it."""
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
    """Run workers for as long as the context lasts.

    Args:
      *tasks: arguments of each `Worker`.
    """
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
        # A worker that has been late for long does not catch up with all of it.
        due = max(due + 1 / calls_per_second, time.perf_counter() - _POLL_SECONDS)
        # A sleep for every call would take more of the core than the calls.
        if (ahead := due - time.perf_counter()) > _SHORTEST_SLEEP_SECONDS:
            time.sleep(ahead)


def make_learning(
    builder: ApexDQNBuilder, spec: EnvironmentSpec, addresses: Sequence[str]
) -> Callable[[], None]:
    """Make what a learner does besides learning: take a batch, write new priorities back."""
    config, shared = builder.config, builder.share(len(addresses))
    clients = [reverb.Client(address) for address in addresses]
    num_batches = config.num_sgd_steps_per_step
    replays = ReplayConnections(
        clients, lambda client: shared.make_dataset(client, spec), config.batch_size, num_batches
    )
    rng = np.random.default_rng(0)

    def learn() -> None:
        sample = replays.sample()
        assert sample is not None
        priorities = rng.lognormal(sigma=1.5, size=config.batch_size * num_batches)
        replays.write_priorities(sample, priorities)
        assert not replays.num_dropped_batches

    return learn


class Traffic(NamedTuple):
    """What passed through a table within some seconds, and what that took.

    Attributes:
      inserts: items that were inserted per second.
      samples: items that were sampled per second.
      cores: CPU seconds per second of each group of processes, by its name.
      network_bytes: bytes per second over this machine's loopback, by all processes.
    """

    inserts: float
    samples: float
    cores: dict[str, float]
    network_bytes: float = 0.0


def watch(
    addresses: Sequence[str],
    pids: Mapping[str, Sequence[int]],
    seconds: float,
    table: str = TRANSITIONS,
) -> Traffic:
    """Measure for some seconds what passes through a table of all servers together.

    Args:
      addresses: addresses of the replay servers.
      pids: processes of each group, by its name.
      seconds: length of the measurement.
      table: name of the table.
    """
    clients = [reverb.Client(address) for address in addresses]

    def count() -> list[float]:
        """Return the time; inserts, samples and bytes sent so far; CPU seconds of each group."""
        limiters = [_read_table(client, table).rate_limiter_info for client in clients]
        inserts = sum(limiter.insert_stats.completed for limiter in limiters)
        counts = (inserts, sum(limiter.sample_stats.completed for limiter in limiters))
        cpu = [sum(cpu_seconds(pid) for pid in group) for group in pids.values()]
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
        return [time.perf_counter(), *counts, sent, *cpu]

    before = count()
    time.sleep(seconds)
    elapsed, inserted, sampled, sent, *used = [b - a for a, b in zip(before, count(), strict=True)]
    cores = {name: cpu / elapsed for name, cpu in zip(pids, used, strict=True)}
    return Traffic(inserted / elapsed, sampled / elapsed, cores, sent / elapsed)


def replay_size(addresses: Sequence[str]) -> int:
    """Return how many transitions some replay servers hold together."""
    tables = [_read_table(reverb.Client(address), TRANSITIONS) for address in addresses]
    return sum(table.current_size for table in tables)


def _read_table(client: reverb.Client, table: str) -> Any:
    return client.server_info(_SERVER_TIMEOUT_SECONDS)[table]
