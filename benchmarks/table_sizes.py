"""Measures what a sample and a new priority cost with tables of different sizes."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import reverb
from dm_env import specs
from measuring import cpu_seconds, measure_in_turn
from serving import ReplayServer, replay_server
from traffic import UNLIMITED, Worker, replay_size, watch, workers

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.dataset import BatchReader
from apex_agents.replay.tables import TRANSITIONS

# A million items are there soon if every transition is added several times; they share content.
REPLICAS = 20
NUM_WRITERS = 2
BATCH_SIZE, NUM_BATCHES = 512, 64
SETTLE_SECONDS, SECONDS, TIMEOUT_SECONDS = 0.5, 1.5, 60.0

SPEC = EnvironmentSpec(
    observations=specs.Array((8,), np.float32, name="observation"),
    actions=specs.DiscreteArray(4, dtype=np.int32, name="action"),
    rewards=specs.Array((), np.float32, name="reward"),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
)


class Costs(NamedTuple):
    """Microseconds per transition.

    Attributes:
      sample: time between two samples.
      sample_cpu: CPU time of the server for a sample.
      update: time for a new priority.
      update_cpu: CPU time of the server for a new priority.
    """

    sample: float
    sample_cpu: float
    update: float
    update_cpu: float


def measure(sizes: Sequence[int], rounds: int) -> dict[int, list[Costs]]:
    """Measure in turn with full tables of several sizes, each on a server of its own."""
    with contextlib.ExitStack() as stack:
        tables = [stack.enter_context(serve_full_table(size)) for size in sizes]
        measurements = {str(size): table.measure for size, table in zip(sizes, tables, strict=True)}
        return {int(name): costs for name, costs in measure_in_turn(measurements, rounds).items()}


class FullTable(NamedTuple):
    """A table, a process that samples it, and new priorities by the keys of transitions."""

    server: ReplayServer
    sampler: Worker
    updates: Iterator[dict[int, float]]

    def measure(self) -> Costs:
        self.sampler.set_rate(UNLIMITED)
        time.sleep(SETTLE_SECONDS)
        traffic = watch([self.server.address], {"server": [self.server.pid]}, SECONDS)
        self.sampler.set_rate(0.0)
        time.sleep(SETTLE_SECONDS)
        update, update_cpu = self._update()
        sample_cpu = 1e6 * traffic.cores["server"] / traffic.samples
        return Costs(1e6 / traffic.samples, sample_cpu, update, update_cpu)

    def _update(self) -> tuple[float, float]:
        client = reverb.Client(self.server.address)
        cpu, started, count = cpu_seconds(self.server.pid), time.perf_counter(), 0
        while (elapsed := time.perf_counter() - started) < SECONDS:
            updates = next(self.updates)
            client.mutate_priorities(TRANSITIONS, updates)
            count += len(updates)
        return 1e6 * elapsed / count, 1e6 * (cpu_seconds(self.server.pid) - cpu) / count


@contextlib.contextmanager
def serve_full_table(size: int) -> Iterator[FullTable]:
    builder = make_builder(size, REPLICAS)
    with replay_server(builder.make_replay_tables, SPEC) as server:
        fill(builder, server, size)
        with workers((make_sampling, builder, server.address)) as (sampler,):
            yield FullTable(server, sampler, itertools.cycle(make_updates(server.address)))


def make_builder(max_size: int, replicas: int = 1) -> ApexDQNBuilder:
    """Make an agent for small observations."""
    replay = ReplayConfig(max_size=max_size, min_size=1_000, replicas=replicas)
    return ApexDQNBuilder(ApexDQNConfig(torso="mlp", frame_stack=0, replay=replay))


def fill(builder: ApexDQNBuilder, server: ReplayServer, size: int) -> None:
    tasks = [(make_inserting, builder, server.address, seed) for seed in range(NUM_WRITERS)]
    with workers(*tasks) as writers:
        for writer in writers:
            writer.set_rate(UNLIMITED)
        while replay_size([server.address]) < size:
            time.sleep(SETTLE_SECONDS)


def make_inserting(builder: ApexDQNBuilder, address: str, seed: int) -> Callable[[], None]:
    """Make what adds one transition; TD errors are log-normal."""
    (adder,) = builder.make_adders(reverb.Client(address), SPEC)
    rng = np.random.default_rng(seed)
    first = dm_env.restart(np.zeros(8, np.float32))
    step = dm_env.transition(1.0, first.observation)

    def make_output() -> PolicyOutput:
        return PolicyOutput(np.zeros((), np.int32), rng.lognormal(sigma=1.5, size=()), np.zeros(()))

    adder.add(first, make_output())
    return lambda: adder.add(step, make_output())


def make_sampling(builder: ApexDQNBuilder, address: str) -> Callable[[], Any]:
    """Make what reads one batch."""
    reader = BatchReader(builder.make_dataset(reverb.Client(address), SPEC))
    return lambda: reader.poll(TIMEOUT_SECONDS)


def make_updates(address: str) -> list[dict[int, float]]:
    """Sample some batches, and draw a new priority for each of their transitions."""
    client = reverb.Client(address)
    rng = np.random.default_rng(0)
    samples = client.sample(TRANSITIONS, BATCH_SIZE * NUM_BATCHES, emit_timesteps=False)
    keys = [sample.info.key for sample in samples]
    batches = [keys[i::NUM_BATCHES] for i in range(NUM_BATCHES)]
    return [
        dict(zip(batch, rng.lognormal(sigma=1.5, size=len(batch)), strict=True))
        for batch in batches
    ]
