"""Measures how far a run grows on this machine: environments, and transitions in the replay.

Environments: their environment only waits, as if each had a core elsewhere, for the time that a
  step took
one of the paper's actors (Horgan et al. 2018, figure 11). What is left is what an environment
takes besides
its environment, at the least: actors with a network of two small layers, adders, and a replay
server, with observations of eight numbers and nobody who learns. `acting.py` has frames and the
network for them. Transitions in the replay: a table with so many of them, twenty of which share
their content.

Example:
  python benchmarks/scale.py --actors 1 2 4 8 --sizes 10000 100000 1000000
"""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import table_sizes
import tensorflow as tf
from actors import Actor, Publisher
from measuring import (
    Row,
    at_least,
    at_most,
    make_parser,
    measure_in_turn,
    num_cores,
    ratios,
    report,
    run_and_leave,
    spread,
)
from serving import replay_server
from table_sizes import SPEC, Costs, make_builder
from traffic import UNLIMITED, Traffic, watch, workers

from apex_agents.environments import Episode

ACTORS = (1, 2, 4, 6, 8)
ENVS_PER_ACTOR = 45  # Of 8 actors: the paper's 360.
MAX_SIZE = 100_000  # Of the replay for them.
SIZES = (10_000, 100_000, 1_000_000)
# Horgan et al. 2018, section 4.1: 139 frames per second, 4 of them per step.
PAPER_STEP_SECONDS = 4 / 139
SETTLE_SECONDS, SECONDS = 1.0, 2.0
COSTS = {
    "sample": "time per sample",
    "sample_cpu": "CPU of the server per sample",
    "update": "time per new priority",
    "update_cpu": "CPU of the server per new priority",
}
NUM_CORES = num_cores()
FULL_CORES = NUM_CORES - 0.5  # From there on processes wait for each other.


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS, help="processes")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the replay")
    arguments = parser.parse_args()
    traffic = measure_actors(arguments.actors, arguments.rounds)
    tell(traffic)
    costs = table_sizes.measure(arguments.sizes, arguments.rounds)
    series = {
        "environment": {
            environment: [t._asdict() for t in rounds] for environment, rounds in traffic.items()
        },
        "sizes": {size: [c._asdict() for c in rounds] for size, rounds in costs.items()},
    }
    rows = [*make_env_rows(traffic), *make_size_rows(costs)]
    report("scale", arguments.out, rows, series)


def measure_actors(counts: Sequence[int], rounds: int) -> dict[int, list[Traffic]]:
    """Measure several numbers of actors in turn; return each round's results by environments."""
    builder = make_builder(MAX_SIZE)
    with replay_server(builder.make_replay_tables, SPEC) as server:
        Publisher(builder, SPEC, server.address)
        num_actors = max(counts)
        tasks = [(make_acting, server.address, index, num_actors) for index in range(num_actors)]
        with workers(*tasks) as actors:
            pids = {"actors": [actor.pid for actor in actors], "replay": [server.pid]}

            def act(count: int) -> Traffic:
                for actor in actors[:count]:
                    actor.set_rate(UNLIMITED)
                time.sleep(SETTLE_SECONDS)
                traffic = watch(server.address, pids, SECONDS)
                for actor in actors:
                    actor.set_rate(0.0)
                return traffic

            measurements = {str(n): functools.partial(act, n) for n in counts}
            measured = measure_in_turn(measurements, rounds)
        return {int(name) * ENVS_PER_ACTOR: rounds for name, rounds in measured.items()}


class WaitingEnvironments:
    """Environments that only wait, all at once; see `environments.VectorEnvironment`.

    A step is over so long after the one before, whatever the actor did meanwhile: that is a part of
    the time, unless it took longer.
    """

    num_failures = 0
    frames_per_second = 1 / PAPER_STEP_SECONDS
    spec = SPEC

    def __init__(self, num_envs: int):
        """Initialize the environments, which all show the same all the time."""
        self.num_envs = num_envs
        self._observation = np.ones((num_envs, *SPEC.observations.shape), np.float32)
        self._due = 0.0

    def reset(self) -> dm_env.TimeStep:
        """Begin episodes that never end."""
        self._due = time.perf_counter()
        return self._make_timestep(dm_env.StepType.FIRST)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Wait for the end of the step."""
        self._due = max(self._due + PAPER_STEP_SECONDS, time.perf_counter())
        time.sleep(max(self._due - time.perf_counter(), 0.0))
        return self._make_timestep(dm_env.StepType.MID)

    def finished_episodes(self) -> list[Episode]:
        """Return none."""
        return []

    def current_episode(self, env_index: int) -> Episode:
        """Return one without a length."""
        return Episode(env_index, 0.0, 0.0, 0)

    def render(self, env_index: int) -> np.ndarray:
        """Refuse."""
        raise ValueError("there is nothing to be seen")

    def close(self) -> None:
        """Do nothing."""

    def _make_timestep(self, step_type: dm_env.StepType) -> dm_env.TimeStep:
        return dm_env.TimeStep(
            step_type=np.full(self.num_envs, step_type, np.int32),
            reward=np.zeros(self.num_envs, np.float32),
            discount=np.ones(self.num_envs, np.float32),
            observation=self._observation,
        )


def make_acting(address: str, index: int, num_actors: int) -> Callable[[], Any]:
    """Make what takes one lock-step of an actor, put together as in a run."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    indices = range(index * ENVS_PER_ACTOR, (index + 1) * ENVS_PER_ACTOR)
    num_envs = num_actors * ENVS_PER_ACTOR
    environment = WaitingEnvironments(ENVS_PER_ACTOR)
    return Actor(make_builder(MAX_SIZE), environment, address, indices, num_envs).step


def make_env_rows(traffic: Mapping[int, Sequence[Traffic]]) -> list[Row]:
    """Make the rows on the number of environments."""
    environment = most_envs_with_free_cores(traffic)
    per_step = {
        group: [1e6 * t.cores[group] / t.inserts for t in traffic[environment]]
        for group in ("actors", "replay")
    }
    growth = [t.inserts * PAPER_STEP_SECONDS / environment for t in traffic[environment]]
    what = f"transitions/s, {environment} environments, the most with a free core, of linear"
    return [
        *[
            Row(f"transitions/s, {environment} environments", spread([t.inserts for t in rounds]))
            for environment, rounds in traffic.items()
        ],
        at_least(what, spread(growth), 0.95),
        *[
            Row(f"CPU of the {group} per environment and step", spread(microseconds), "us")
            for group, microseconds in per_step.items()
        ],
    ]


def make_size_rows(costs: Mapping[int, Sequence[Costs]]) -> list[Row]:
    """Make the rows on the number of transitions in the replay."""
    smallest, largest = min(costs), max(costs)
    limit = math.log(largest) / math.log(smallest)
    rows = []
    for field, what in COSTS.items():
        values = {size: [getattr(c, field) for c in rounds] for size, rounds in costs.items()}
        rows += [Row(f"{what}, {size:,} there", spread(v), "us") for size, v in values.items()]
        growth = ratios(values[largest], values[smallest])
        rows.append(at_most(f"{what}, {largest:,} against {smallest:,}", growth, round(limit, 2)))
    return rows


def most_envs_with_free_cores(traffic: Mapping[int, Sequence[Traffic]]) -> int:
    """Return the largest number of environments with cores to spare, or the smallest number."""
    free = [
        environment
        for environment, rounds in traffic.items()
        if cores_taken(rounds).sum() < FULL_CORES
    ]
    return max(free, default=min(traffic))


def cores_taken(rounds: Sequence[Traffic]) -> np.ndarray:
    """Return the cores that actors and replay took, `[2]`."""
    return np.median([[t.cores["actors"], t.cores["replay"]] for t in rounds], axis=0)


def tell(traffic: Mapping[int, Sequence[Traffic]]) -> None:
    """Print what every number of environments takes, what is short first, and what would help."""
    print(f"{'envs':>6} {'transitions/s':>14} {'actors':>8} {'replay':>8}   cores of {NUM_CORES}")
    rates = {
        environment: np.median([t.inserts for t in rounds])
        for environment, rounds in traffic.items()
    }
    taken = {environment: cores_taken(rounds) for environment, rounds in traffic.items()}
    for environment, rate in rates.items():
        actors, replay = taken[environment]
        print(f"{environment:>6} {rate:>14,.0f} {actors:>8.2f} {replay:>8.2f}")
    if sum(taken[environment]) < FULL_CORES:
        print(f"With {environment} environments there is still a part of a core free.")
    else:
        most = "actors" if actors > replay else "replay"
        print(f"With {environment} environments all cores are taken, most of them by the {most}.")
    best = max(rates, key=lambda environment: rates[environment])
    actors, replay = taken[best] / rates[best]
    print(
        f"A transition takes {1e6 * actors:.0f} us of the actors and {1e6 * replay:.0f} us of the "
        f"replay: these cores do {NUM_CORES / (actors + replay):,.0f} transitions/s, with a second "
        f"machine for the actors {NUM_CORES / max(actors, replay):,.0f}, with as many as it takes "
        f"{NUM_CORES / replay:,.0f}.",
        flush=True,
    )


if __name__ == "__main__":
    run_and_leave(main)
