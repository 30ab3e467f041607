"""Measures how parameters travel from the learner to the actors, through the replay server.

The dueling Atari network is published as often as the paper's learner would do it. Readers take it
into networks of their own: in turn, each once in the time between two pulls of one of the paper's
actors, and then all at the same moment.

Example:
  python benchmarks/parameters.py --readers 1 8 32
"""

import contextlib
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from multiprocessing.connection import Connection
from typing import NamedTuple

import acting
import reverb
from acme.tf import variable_utils
from actors import Publisher
from measuring import (
    PAPER_PUBLISH_SECONDS,
    Row,
    at_most,
    cpu_seconds,
    make_parser,
    measure_in_turn,
    report,
    run_and_leave,
    run_self,
    spread,
)
from serving import ReplayServer, leave_with_parent, replay_server

from apex_agents import ApexDQNBuilder
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec, make_vector_environment
from apex_agents.replay.parameters import ParameterSource

READERS = (1, 8, 32)
NUM_PROCESSES = 4  # For the readers.
OWN_ENVS = 8

# Horgan et al. 2018, section 4.1: an actor plays 139 frames per second and pulls every 400 frames.
PAPER_ACTORS = 360
PAPER_PULL_SECONDS = 400 / 139

IN_TURN, AT_ONCE = "in turn", "at once"


class Reading(NamedTuple):
    """What it took all readers to read once.

    Attributes:
      publish: milliseconds of every publication.
      fetch: milliseconds of every reader.
      reader_cpu: CPU milliseconds of the readers' processes, per reader.
      server_cpu: CPU milliseconds of the server, per reader.
    """

    publish: list[float]
    fetch: list[float]
    reader_cpu: float
    server_cpu: float


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--readers", type=int, nargs="+", default=READERS)
    arguments = parser.parse_args()
    readings, megabytes = measure(arguments.readers, arguments.rounds)
    options = ["--one", "--environments", str(OWN_ENVS), "--rounds", str(arguments.rounds)]
    rate = spread(run_self(acting.__file__, options)["actor"]).median
    rows = [row for count in readings for row in make_rows(count, readings[count])]
    rows += make_share_rows(readings[max(readings)][AT_ONCE], megabytes, rate)
    report("parameters", arguments.out, rows)


def measure(
    counts: Sequence[int], rounds: int
) -> tuple[dict[int, dict[str, list[Reading]]], float]:
    """Measure both ways to read, for several numbers of readers.

    Returns:
      The readings by number and way; and the megabytes that travel each time.
    """
    builder = acting.make_builder()
    spec = make_vector_environment(EnvironmentConfig(), 1, seed=0).spec
    readings = {}
    with replay_server(builder.make_replay_tables, spec) as server:
        publisher = Publisher(builder, spec, server.address)
        for count in counts:
            with start_readers(count, builder, spec, server.address) as connections:
                group = Readers(count, connections, server, publisher)
                ways = {IN_TURN: group.read_in_turn, AT_ONCE: group.read_at_once}
                readings[count] = measure_in_turn(ways, rounds)
    return readings, publisher.megabytes


class Readers(NamedTuple):
    """Readers in a few processes, and what they read from."""

    num_readers: int
    connections: list[Connection]
    server: ReplayServer
    publisher: Publisher

    def read_in_turn(self) -> Reading:
        """Let them read in the rhythm of the paper, while new versions are published."""
        started = time.monotonic()
        period = PAPER_PULL_SECONDS / self.num_readers
        return self._read([started + (i + 0.5) * period for i in range(self.num_readers)])

    def read_at_once(self) -> Reading:
        """Publish, then let all of them read."""
        return self._read([0.0] * self.num_readers)

    def _read(self, moments: Sequence[float]) -> Reading:
        publish = [self.publisher.publish()]
        server_cpu = cpu_seconds(self.server.pid)
        for index, connection in enumerate(self.connections):
            connection.send(moments[index :: len(self.connections)])
        due = time.monotonic() + PAPER_PUBLISH_SECONDS
        while due < moments[-1]:
            time.sleep(max(due - time.monotonic(), 0.0))
            publish.append(self.publisher.publish())
            due += PAPER_PUBLISH_SECONDS
        replies = [connection.recv() for connection in self.connections]
        server_cpu = cpu_seconds(self.server.pid) - server_cpu
        fetch = [milliseconds for reply, _ in replies for milliseconds in reply]
        reader_cpu = sum(cpu for _, cpu in replies) / self.num_readers
        return Reading(publish, fetch, reader_cpu, 1e3 * server_cpu / self.num_readers)


@contextlib.contextmanager
def start_readers(
    count: int, builder: ApexDQNBuilder, spec: EnvironmentSpec, address: str
) -> Iterator[list[Connection]]:
    """Start readers in a few processes; parameters have to be published by then.

    Yields:
      A connection to each process. It takes the moments at which its readers are to begin, by
      `time.monotonic()`, and gives the milliseconds of each and the CPU milliseconds of all.
    """
    context = multiprocessing.get_context("spawn")
    connections, processes = [], []
    num_processes = min(count, NUM_PROCESSES)
    for index in range(num_processes):
        here, there = context.Pipe()
        num_threads = len(range(index, count, num_processes))
        arguments = (there, builder, spec, address, num_threads)
        process = context.Process(target=_serve_readers, args=arguments, daemon=True)
        process.start()
        there.close()  # If the reader dies, nobody else holds the other end.
        connections.append(here)
        processes.append(process)
    try:
        for connection in connections:
            connection.recv()  # It is ready.
        yield connections
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve_readers(
    connection: Connection,
    builder: ApexDQNBuilder,
    spec: EnvironmentSpec,
    address: str,
    num_threads: int,
) -> None:
    leave_with_parent()
    client = reverb.Client(address)
    readers = []
    for _ in range(num_threads):
        variables = builder.make_evaluation_policy(spec, 1, seed=0).variables
        readers.append(variable_utils.VariableClient(ParameterSource(client), variables))
        readers[-1].update_and_wait()
    connection.send(None)
    with futures.ThreadPoolExecutor(num_threads) as pool:
        while True:
            moments = connection.recv()
            cpu = time.process_time()
            milliseconds = list(pool.map(_fetch_at, readers, moments))
            connection.send((milliseconds, 1e3 * (time.process_time() - cpu)))


def _fetch_at(reader: variable_utils.VariableClient, moment: float) -> float:
    time.sleep(max(moment - time.monotonic(), 0.0))
    started = time.perf_counter()
    reader.update_and_wait()
    return 1e3 * (time.perf_counter() - started)


def make_rows(count: int, readings: Mapping[str, Sequence[Reading]]) -> list[Row]:
    """Make the rows of one number of readers."""
    readers = "1 reader" if count == 1 else f"{count} readers"
    publish = [value for reading in readings[IN_TURN] for value in reading.publish]
    rows = [Row(f"publish, {readers} {IN_TURN}", spread(publish), "ms")]
    for way, rounds in readings.items():
        fetch = [value for reading in rounds for value in reading.fetch]
        rows.append(Row(f"fetch, {readers} {way}", spread(fetch), "ms"))
    return rows


def make_share_rows(rounds: Sequence[Reading], megabytes: float, own_rate: float) -> list[Row]:
    """Say what pulling costs an actor and, with the paper's number of actors, the server.

    Args:
      rounds: in which nothing was published while the server's CPU time was taken.
      megabytes: that travel each time.
      own_rate: agent steps per second of an actor with `OWN_ENVS` environments.
    """
    reader_cpu = [reading.reader_cpu for reading in rounds]
    server_cpu = [reading.server_cpu for reading in rounds]
    pull_steps = acting.make_builder().config.variable_update_period
    own_pull_seconds = pull_steps * OWN_ENVS / own_rate
    fetches_per_second = PAPER_ACTORS / PAPER_PULL_SECONDS
    print(
        f"The paper's {PAPER_ACTORS} actors pull {fetches_per_second:.0f} times per second, "
        f"{fetches_per_second * megabytes / 1e3:.2f} GB/s; an actor of {OWN_ENVS} envs makes "
        f"{own_rate:,.0f} agent steps per second and pulls every {own_pull_seconds:.2f} s."
    )
    paper_share, own_share = [
        spread([100 * milliseconds / 1e3 / seconds for milliseconds in reader_cpu])
        for seconds in (PAPER_PULL_SECONDS, own_pull_seconds)
    ]
    server_cores = spread([fetches_per_second * value / 1e3 for value in server_cpu])
    return [
        Row("CPU of the actor per fetch", spread(reader_cpu), "ms"),
        Row("CPU of the server per fetch", spread(server_cpu), "ms"),
        at_most("an actor's time for pulling, paper's rhythm", paper_share, 2.0, "%"),
        Row(f"an actor's time for pulling, {OWN_ENVS} environments on one core", own_share, "%"),
        Row(f"server, {PAPER_ACTORS} actors that pull", server_cores, "cores"),
    ]


if __name__ == "__main__":
    run_and_leave(main)
