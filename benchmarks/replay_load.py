"""Measures the paper's load on one replay server, with everything on this machine.

Several processes add real frames of a game, recorded beforehand, through adders; another one
samples batches and writes priorities back, as a learner does. Neither an emulator nor a network
takes part. The paper: 12,500 transitions are added and 9,700 sampled per second, at the same time.

Example:
  python benchmarks/replay_load.py --games pong ms_pacman
"""

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
    num_cores,
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
STEPS = 2000  # Of the game, recorded by each writer.
SETTLE_SECONDS, SECONDS, REST_SECONDS = 0.5, 2.0, 0.5

# Kinds of load besides those with a share.
INSERTING, SAMPLING, BOTH = "4 writers", "learner", "4 writers and learner"
Rounds = Mapping[str, Sequence[Traffic]]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--games", nargs="+", default=("pong", "ms_pacman"))
    parser.add_argument("--max_size", type=int, default=200_000, help="transitions in the replay")
    arguments = parser.parse_args()
    rows: list[Row] = []
    series = {}
    for game in arguments.games:
        loads, bytes_each = measure(game, arguments.max_size, arguments.rounds)
        tell(game, loads)
        rows += make_rows(game, loads)
        what = f"{game}: memory of the server per transition"
        memory = spread([bytes_each])
        rows.append(
            at_most(what, memory, 2000, "bytes") if game == "pong" else Row(what, memory, "bytes")
        )
        series[game] = {name: [t._asdict() for t in rounds] for name, rounds in loads.items()}
    report("replay_load", arguments.out, rows, series)


class Site(NamedTuple):
    """A server, and who keeps it busy."""

    address: str
    pids: dict[str, list[int]]
    writers: list[Worker]
    learner: Worker

    def load(self, num_writers: int, inserts: float, batches: float = 0.0) -> Traffic:
        """Let writers and learner work, at such rates per second at most."""
        for writer in self.writers[:num_writers]:
            writer.set_rate(inserts / num_writers)
        self.learner.set_rate(batches)
        time.sleep(SETTLE_SECONDS)
        traffic = watch(self.address, self.pids, SECONDS)
        self.rest()
        return traffic

    def rest(self) -> None:
        """Stop everybody, and wait until what is read ahead is complete."""
        for worker in (*self.writers, self.learner):
            worker.set_rate(0.0)
        while any(watch(self.address, {}, REST_SECONDS)[:2]):
            pass

    def fill(self, size: int) -> None:
        """Let the writers add transitions until there are so many."""
        for writer in self.writers:
            writer.set_rate(UNLIMITED)
        while replay_size(self.address) < size:
            time.sleep(SETTLE_SECONDS)
        self.rest()


def measure(game: str, max_size: int, rounds: int) -> tuple[dict[str, list[Traffic]], float]:
    """Measure all kinds of load in turn, on a full replay.

    Returns:
      What happened in every round, by kind of load; and bytes per transition in the end.
    """
    replay = ReplayConfig(max_size=max_size, min_size=1_000)
    builder = ApexDQNBuilder(ApexDQNConfig(replay=replay))
    spec = make_vector_environment(EnvironmentConfig(task=game), 1, seed=0).spec
    with replay_server(builder.make_replay_tables, spec) as server:
        empty = resident_bytes(server.pid)
        tasks: list[Any] = [
            (make_inserting, builder, game, seed, server.address) for seed in range(NUM_WRITERS)
        ]
        tasks.append((make_learning, builder, spec, server.address))
        with workers(*tasks) as (*writers, learner):
            pids = {
                "server": [server.pid],
                "writers": [writer.pid for writer in writers],
                "learner": [learner.pid],
            }
            site = Site(server.address, pids, writers, learner)
            site.fill(max_size)
            loads = measure_in_turn(make_loads(site), rounds)
        return loads, (resident_bytes(server.pid) - empty) / replay_size(server.address)


def make_loads(site: Site) -> dict[str, Callable[[], Traffic]]:
    loads: dict[str, Callable[[], Traffic]] = {
        "1 writer": lambda: site.load(1, UNLIMITED),
        "2 writers": lambda: site.load(2, UNLIMITED),
        INSERTING: lambda: site.load(NUM_WRITERS, UNLIMITED),
        SAMPLING: lambda: site.load(0, 0.0, UNLIMITED),
        BOTH: lambda: site.load(NUM_WRITERS, UNLIMITED, UNLIMITED),
    }
    for share in SHARES:
        inserts = share * PAPER_INSERTS
        load = functools.partial(site.load, NUM_WRITERS, inserts, UNLIMITED)
        loads[f"{inserts:,.0f}/s and learner"] = load
    return loads


def make_inserting(
    builder: ApexDQNBuilder, game: str, seed: int, address: str
) -> Callable[[], None]:
    """Make what adds one step of a recorded game, from the beginning again after its end."""
    steps = itertools.cycle(
        record(make_vector_environment(EnvironmentConfig(task=game), 1, seed), STEPS, seed)
    )
    adder = builder.make_adder(reverb.Client(address))
    return lambda: adder.add(*next(steps))


def make_rows(game: str, loads: Rounds) -> list[Row]:
    """Make the rows of one game."""
    alone = {
        name: [t.inserts for t in loads[name]] for name in ("1 writer", "2 writers", INSERTING)
    }
    both = loads[best_of_both(loads)]
    inserts = spread([t.inserts / PAPER_INSERTS for t in both])
    samples = spread([t.samples / PAPER_SAMPLES for t in both])
    return [
        *[Row(f"{game}: added/s, {name} alone", spread(rates)) for name, rates in alone.items()],
        Row(f"{game}: sampled/s, learner alone", spread([t.samples for t in loads[SAMPLING]])),
        at_least(f"{game}: added/s while sampling, share of the paper's", inserts, 1.0),
        at_least(f"{game}: sampled/s while adding, share of the paper's", samples, 1.0),
        *[Row(f"{game}: CPU per {what}", spread(us), "us") for what, us in costs(loads).items()],
        *[
            Row(f"{game}: network per transition {what}", spread(amounts), "bytes")
            for what, amounts in network_bytes(loads).items()
        ],
        *[
            Row(f"{game}: the paper's load, {group}", spread(cores), "cores")
            for group, cores in cores_for_paper(loads).items()
        ],
    ]


def best_of_both(loads: Rounds) -> str:
    """Return the kind of load with the largest share of the paper's that both rates reached."""

    def share(name: str) -> float:
        rounds = loads[name]
        inserts = np.median([t.inserts for t in rounds]) / PAPER_INSERTS
        return float(min(inserts, np.median([t.samples for t in rounds]) / PAPER_SAMPLES))

    return max(loads, key=share)


def costs(loads: Rounds) -> dict[str, list[float]]:
    """Return CPU microseconds per transition, each from the load that is nothing else."""
    adding, sampling = loads[INSERTING], loads[SAMPLING]
    return {
        "transition added, server": [1e6 * t.cores["server"] / t.inserts for t in adding],
        "transition added, writer": [1e6 * t.cores["writers"] / t.inserts for t in adding],
        "transition sampled, server": [1e6 * t.cores["server"] / t.samples for t in sampling],
        "transition sampled, learner": [1e6 * t.cores["learner"] / t.samples for t in sampling],
    }


def network_bytes(loads: Rounds) -> dict[str, list[float]]:
    """Return what goes over the network per transition, each from the load that is nothing else."""
    return {
        "added": [t.network_bytes / t.inserts for t in loads[INSERTING]],
        "sampled": [t.network_bytes / t.samples for t in loads[SAMPLING]],
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


def tell(game: str, loads: Rounds) -> None:
    """Print what every process took, and what the paper's load would take."""
    print(f"{game:<24} {'added/s':>8} {'sampled/s':>10}   cores of {num_cores()} taken")
    for name, rounds in loads.items():
        inserts, samples = [np.median([t[i] for t in rounds]) for i in (0, 1)]
        cores = {group: np.median([t.cores[group] for t in rounds]) for group in rounds[0].cores}
        taken = "  ".join(f"{group} {value:.2f}" for group, value in cores.items())
        print(f"  {name:<22} {inserts:>8,.0f} {samples:>10,.0f}   {taken}")
    needed = {group: np.median(cores) for group, cores in cores_for_paper(loads).items()}
    listed = ", ".join(f"{group} {value:.1f}" for group, value in needed.items())
    print(
        f"  The paper's load would take {sum(needed.values()):.1f} cores: {listed}. On a machine "
        f"of its own, one core of the server would do {1 / needed['server']:.1f} times that load.",
        flush=True,
    )


if __name__ == "__main__":
    run_and_leave(main)
