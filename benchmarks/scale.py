"""Measures how far a run grows on this machine: environments, and transitions in the replay.

Environments: they only wait, as if each had a core elsewhere, for as long as a step takes one of
the paper's actors (Horgan et al. 2018, figure 11). What is measured is the least that an
environment costs beside its own work: actors with a network of two small layers, adders, and a
replay server, with observations of eight numbers and without a learner. `acting.py` has frames and
the network for them. Transitions in the replay: a table of that size, in which 20 transitions share
their content.

Example:
  python benchmarks/scale.py --actors 1 2 4 8 --sizes 10000 100000 1000000
"""

import functools
import math
import statistics
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

from apex_agents.environments import Episode, VectorEnvironment
from apex_agents.environments.vector_environment import restart_batch

ACTORS = (1, 2, 4, 6, 8)
ENVS_PER_ACTOR = 45  # Eight actors have the paper's 360 environments.
MAX_SIZE = 100_000  # Transitions in the replay of these actors.
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
FULL_CORES = num_cores() - 0.5  # With more load than this, processes wait for each other.


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS, help="processes")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the replay")
    arguments = parser.parse_args()
    traffic = measure_actors(arguments.actors, arguments.rounds)
    costs = table_sizes.measure(arguments.sizes, arguments.rounds)
    series = {
        "num_envs": {count: [t._asdict() for t in rounds] for count, rounds in traffic.items()},
        "sizes": {size: [c._asdict() for c in rounds] for size, rounds in costs.items()},
    }
    rows = [*make_env_rows(traffic), *make_size_rows(costs)]
    report("scale", arguments.out, rows, series)


def measure_actors(counts: Sequence[int], rounds: int) -> dict[int, list[Traffic]]:
    """Measure several numbers of actors in turn.

    Returns:
      What happened in every round, by the number of environments of all actors.
    """
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
                traffic = watch([server.address], pids, SECONDS)
                for actor in actors:
                    actor.set_rate(0.0)
                return traffic

            measurements = {str(n): functools.partial(act, n) for n in counts}
            measured = measure_in_turn(measurements, rounds)
        return {int(name) * ENVS_PER_ACTOR: rounds for name, rounds in measured.items()}


class WaitingEnvironments(VectorEnvironment):
    """A vector of environments that only wait.

    A step ends a fixed time after the previous one: what the actor does in between is part of that
    time, unless it takes longer.
    """

    num_failures = 0
    frames_per_second = 1 / PAPER_STEP_SECONDS
    spec = SPEC

    def __init__(self, num_envs: int, clock: Any = time):
        """Make environments whose observation never changes.

        Args:
          num_envs: number of environments.
          clock: has `perf_counter` and `sleep`.
        """
        self.num_envs = num_envs
        self._clock = clock
        self._observation = np.ones((num_envs, *SPEC.observations.shape), np.float32)
        self._due = 0.0

    def reset(self) -> dm_env.TimeStep:
        """Start episodes that never end."""
        self._due = self._clock.perf_counter()
        return restart_batch(self._observation)

    def step(self, actions: np.ndarray) -> dm_env.TimeStep:
        """Wait for the end of the step."""
        self._due = max(self._due + PAPER_STEP_SECONDS, self._clock.perf_counter())
        self._clock.sleep(max(self._due - self._clock.perf_counter(), 0.0))
        step_type = np.full(self.num_envs, dm_env.StepType.MID, np.int32)
        return restart_batch(self._observation)._replace(step_type=step_type)

    def finished_episodes(self) -> list[Episode]:
        """Return none."""
        return []

    def current_episode(self, env_index: int) -> Episode:
        """Return one without a length."""
        return Episode(env_index, 0.0, 0.0, 0)

    def render(self, env_index: int) -> np.ndarray:
        """Raise: there is nothing to see."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""


def make_acting(address: str, index: int, num_actors: int) -> Callable[[], Any]:
    """Make what takes one lock-step of an actor."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    indices = range(index * ENVS_PER_ACTOR, (index + 1) * ENVS_PER_ACTOR)
    num_envs = num_actors * ENVS_PER_ACTOR
    environment = WaitingEnvironments(ENVS_PER_ACTOR)
    return Actor(make_builder(MAX_SIZE), environment, address, indices, num_envs).step


def make_env_rows(
    traffic: Mapping[int, Sequence[Traffic]], full_cores: float = FULL_CORES
) -> list[Row]:
    """Make the rows on the number of environments."""
    rows = []
    for num_envs, rounds in traffic.items():
        inserts = spread([t.inserts for t in rounds])
        rows.append(Row(f"transitions/s, {num_envs} environments", inserts))
    num_envs = most_envs_with_free_cores(traffic, full_cores)
    growth = [t.inserts * PAPER_STEP_SECONDS / num_envs for t in traffic[num_envs]]
    what = f"transitions/s, {num_envs} environments, the most with a free core, of linear"
    rows.append(at_least(what, spread(growth), 0.95))
    for group in ("actors", "replay"):
        microseconds = spread([1e6 * t.cores[group] / t.inserts for t in traffic[num_envs]])
        rows.append(Row(f"CPU of the {group} per environment and step", microseconds, "us"))
    return rows


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


def most_envs_with_free_cores(traffic: Mapping[int, Sequence[Traffic]], full_cores: float) -> int:
    """Return the largest number of environments with cores to spare, or the smallest number."""
    taken = {
        num_envs: statistics.median(sum(t.cores.values()) for t in rounds)
        for num_envs, rounds in traffic.items()
    }
    free = [num_envs for num_envs, cores in taken.items() if cores < full_cores]
    return max(free, default=min(traffic))


if __name__ == "__main__":
    run_and_leave(main)
