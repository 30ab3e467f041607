"""Measures the paper's load on replay servers, with everything on this machine.

Several processes add real frames of a game, recorded beforehand, through adders; another one
samples batches and writes priorities back, as a learner does. Neither an emulator nor a network
takes part. The paper: 12,500 transitions are added and 9,700 sampled per second, at the same time.

Examples:
  python benchmarks/replay_load.py --games pong ms_pacman
  python benchmarks/replay_load.py --games pong --replays 1 2 4
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
from measuring import (
    PAPER_INSERTS,
    PAPER_SAMPLES,
    Row,
    at_least,
    at_most,
    make_parser,
    measure_in_turn,
    report,
    resident_bytes,
    run_and_leave,
    spread,
)
from recording import record
from serving import replay_server
from traffic import UNLIMITED, Traffic, Worker, make_learning, replay_size, watch, workers

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.replay.config import ReplayConfig

# Adding is held at these shares of the paper's rate while sampling is not held.
SHARES = (0.4, 0.6, 0.8, 0.9, 1.0)
NUM_WRITERS = 4
STEPS = 2000  # Steps of the game, recorded by each writer.
SETTLE_SECONDS, SECONDS, REST_SECONDS = 0.5, 2.0, 0.5

# Kinds of load besides those with a share.
INSERTING, SAMPLING, BOTH = "4 writers", "learner", "4 writers and learner"
Rounds = Mapping[str, Sequence[Traffic]]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--games", nargs="+", default=("pong", "ms_pacman"))
    parser.add_argument("--max_size", type=int, default=200_000, help="transitions in the replay")
    parser.add_argument("--replays", type=int, nargs="+", default=(1,), help="numbers of servers")
    arguments = parser.parse_args()
    rows: list[Row] = []
    series = {}
    for game, replays in itertools.product(arguments.games, arguments.replays):
        name = game if replays == 1 else f"{game}, {replays} replays"
        loads, bytes_each = measure(game, replays, arguments.max_size, arguments.rounds)
        rows += make_rows(name, loads)
        what = f"{name}: memory of the server per transition"
        memory = at_most(what, spread([bytes_each]), 2000, "bytes")
        rows.append(memory if game == "pong" else Row(what, memory.value, "bytes"))
        series[name] = {kind: [t._asdict() for t in rounds] for kind, rounds in loads.items()}
    report("replay_load", arguments.out, rows, series)


class Load(NamedTuple):
    """Replay servers and the processes that load them."""

    addresses: list[str]
    pids: dict[str, list[int]]
    writers: list[Worker]
    learner: Worker

    def measure(self, inserts: float, batches: float) -> Traffic:
        """Let writers and learner work, at such rates per second at most, and measure them."""
        for writer in self.writers:
            writer.set_rate(inserts / len(self.writers))
        self.learner.set_rate(batches)
        time.sleep(SETTLE_SECONDS)
        traffic = watch(self.addresses, self.pids, SECONDS)
        self.rest()
        return traffic

    def rest(self) -> None:
        """Pause all workers, and wait until the batches that are read ahead are complete."""
        for worker in (*self.writers, self.learner):
            worker.set_rate(0.0)
        while any(watch(self.addresses, {}, REST_SECONDS)[:2]):
            pass

    def fill(self, size: int) -> None:
        """Let the writers add transitions until the server holds that many."""
        for writer in self.writers:
            writer.set_rate(UNLIMITED)
        while replay_size(self.addresses) < size:
            time.sleep(SETTLE_SECONDS)
        self.rest()


def measure(
    game: str, num_replays: int, max_size: int, rounds: int
) -> tuple[dict[str, list[Traffic]], float]:
    """Measure all kinds of load in turn, on full replays, which share their size.

    Returns:
      What happened in every round, by kind of load; and bytes per transition in the end.
    """
    replay = ReplayConfig(max_size=max_size, min_size=1_000)
    builder = ApexDQNBuilder(ApexDQNConfig(replay=replay))
    spec = make_vector_environment(EnvironmentConfig(task=game), 1, seed=0).spec
    make_tables = builder.share(num_replays).make_replay_tables
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(replay_server(make_tables, spec)) for _ in range(num_replays)
        ]
        addresses = [server.address for server in servers]
        empty = sum(resident_bytes(server.pid) for server in servers)
        tasks: list[Any] = [
            (make_inserting, builder, game, seed, addresses[seed % num_replays])
            for seed in range(NUM_WRITERS)
        ]
        tasks.append((make_learning, builder, spec, addresses))
        with workers(*tasks) as (*writers, learner):
            pids = {
                "server": [server.pid for server in servers],
                "writers": [writer.pid for writer in writers],
                "learner": [learner.pid],
            }
            load = Load(addresses, pids, writers, learner)
            load.fill(max_size)
            rates = {INSERTING: (UNLIMITED, 0.0), SAMPLING: (0.0, UNLIMITED)}
            rates[BOTH] = (UNLIMITED, UNLIMITED)
            for share in SHARES:
                inserts = share * PAPER_INSERTS
                rates[f"{inserts:,.0f}/s and learner"] = (inserts, UNLIMITED)
            loads = measure_in_turn(
                {name: functools.partial(load.measure, *pair) for name, pair in rates.items()},
                rounds,
            )
        full = sum(resident_bytes(server.pid) for server in servers)
        return loads, (full - empty) / replay_size(addresses)


def make_inserting(
    builder: ApexDQNBuilder, game: str, seed: int, address: str
) -> Callable[[], None]:
    """Make what adds one step of a recorded game, from the beginning again after its end."""
    environment = make_vector_environment(EnvironmentConfig(task=game), 1, seed)
    steps = itertools.cycle(record(environment, STEPS, seed))
    (adder,) = builder.make_adders(reverb.Client(address), environment.spec)
    return lambda: adder.add(*next(steps))


def make_rows(game: str, loads: Rounds) -> list[Row]:
    """Make the rows of one game."""
    both = loads[best_of_both(loads)]
    inserts = spread([t.inserts / PAPER_INSERTS for t in both])
    samples = spread([t.samples / PAPER_SAMPLES for t in both])
    adding, sampling = loads[INSERTING], loads[SAMPLING]
    network = {
        "added": [t.network_bytes / t.inserts for t in adding],
        "sampled": [t.network_bytes / t.samples for t in sampling],
    }
    rows = [
        Row(f"{game}: added/s, writers alone", spread([t.inserts for t in adding])),
        Row(f"{game}: sampled/s, learner alone", spread([t.samples for t in sampling])),
        at_least(f"{game}: added/s while sampling, share of the paper's", inserts, 1.0),
        at_least(f"{game}: sampled/s while adding, share of the paper's", samples, 1.0),
    ]
    for what, microseconds in costs(loads).items():
        rows.append(Row(f"{game}: CPU per {what}", spread(microseconds), "us"))
    for what, amounts in network.items():
        rows.append(Row(f"{game}: network per transition {what}", spread(amounts), "bytes"))
    for group, cores in cores_for_paper(loads).items():
        rows.append(Row(f"{game}: the paper's load, {group}", spread(cores), "cores"))
    return rows


def best_of_both(loads: Rounds) -> str:
    """Return the kind of load with the largest share of the paper's that both rates reached."""

    def share(name: str) -> float:
        rounds = loads[name]
        inserts = np.median([t.inserts for t in rounds]) / PAPER_INSERTS
        return float(min(inserts, np.median([t.samples for t in rounds]) / PAPER_SAMPLES))

    return max(loads, key=share)


def costs(loads: Rounds) -> dict[str, list[float]]:
    """Return CPU microseconds per transition, from loads that only add or only sample."""
    adding, sampling = loads[INSERTING], loads[SAMPLING]
    return {
        "transition added, server": [1e6 * t.cores["server"] / t.inserts for t in adding],
        "transition added, writer": [1e6 * t.cores["writers"] / t.inserts for t in adding],
        "transition sampled, server": [1e6 * t.cores["server"] / t.samples for t in sampling],
        "transition sampled, learner": [1e6 * t.cores["learner"] / t.samples for t in sampling],
    }


def cores_for_paper(loads: Rounds) -> dict[str, list[float]]:
    """Return how many cores the paper's load would take at those costs."""
    adding_server, writers, sampling_server, learner = [
        np.array(microseconds) / 1e6 for microseconds in costs(loads).values()
    ]
    cores = {
        "server": PAPER_INSERTS * adding_server + PAPER_SAMPLES * sampling_server,
        "writers": PAPER_INSERTS * writers,
        "learner": PAPER_SAMPLES * learner,
    }
    return {group: list(values) for group, values in cores.items()}


if __name__ == "__main__":
    run_and_leave(main)
