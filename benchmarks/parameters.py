"""Measures how parameters travel from the learner to the actors, through the replay server.

The dueling Atari network is published, and fetched by processes that do nothing else, as fast as
they can. What that costs an actor and the server follows for the rhythm in which the paper's actors
pull.

Example:
  python benchmarks/parameters.py --readers 1 4
"""

import functools
import time
from collections.abc import Callable, Sequence

import reverb
from acme.tf import variable_utils
from acting import make_builder
from actors import Publisher
from measuring import Row, at_most, make_parser, measure_in_turn, report, run_and_leave, spread
from serving import replay_server
from traffic import UNLIMITED, Traffic, watch, workers

from apex_agents import ApexDQNBuilder
from apex_agents.environments import EnvironmentConfig, EnvironmentSpec, make_vector_environment
from apex_agents.replay.messages import PARAMETERS, ParameterSource

READERS = (1, 4)
SETTLE_SECONDS, SECONDS = 0.5, 2.0

# Horgan et al. 2018, section 4.1: an actor plays 139 frames per second and pulls every 400 frames.
PAPER_ACTORS = 360
PAPER_PULL_SECONDS = 400 / 139


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--readers", type=int, nargs="+", default=READERS, help="processes")
    arguments = parser.parse_args()
    publish, fetch = measure(arguments.readers, arguments.rounds)
    rows = [Row("publish", spread(publish), "ms")]
    for count, rounds in fetch.items():
        milliseconds = spread([1e3 * count / traffic.samples for traffic in rounds])
        rows.append(Row(f"fetch, processes at once: {count}", milliseconds, "ms"))
    report("parameters", arguments.out, rows + make_share_rows(fetch[max(fetch)]))


def measure(counts: Sequence[int], rounds: int) -> tuple[list[float], dict[int, list[Traffic]]]:
    """Measure publishing, and fetching by several numbers of processes, in turn.

    Returns:
      Milliseconds of each publication, and what happened in every round by number of processes.
    """
    builder = make_builder()
    spec = make_vector_environment(EnvironmentConfig(), 1, seed=0).spec
    with replay_server(builder.make_replay_tables, spec) as server:
        publisher = Publisher(builder, spec, server.address)
        tasks = [(make_fetching, builder, spec, server.address)] * max(counts)
        with workers(*tasks) as readers:

            def fetch(count: int) -> Traffic:
                active = readers[:count]
                for reader in active:
                    reader.set_rate(UNLIMITED)
                time.sleep(SETTLE_SECONDS)
                pids = {"server": [server.pid], "readers": [reader.pid for reader in active]}
                traffic = watch([server.address], pids, SECONDS, PARAMETERS)
                for reader in active:
                    reader.set_rate(0.0)
                return traffic

            publish = measure_in_turn({"publish": publisher.publish}, rounds)["publish"]
            fetches = {str(count): functools.partial(fetch, count) for count in counts}
            measured = measure_in_turn(fetches, rounds)
    return publish, {int(count): traffic for count, traffic in measured.items()}


def make_fetching(
    builder: ApexDQNBuilder, spec: EnvironmentSpec, address: str
) -> Callable[[], None]:
    """Make what fetches parameters into a network, even if they are those fetched before."""
    client = reverb.Client(address)
    variables = builder.make_evaluation_policy(spec, 1, seed=0).variables

    def fetch() -> None:
        variable_utils.VariableClient(ParameterSource(client), variables).update_and_wait()

    return fetch


def make_share_rows(rounds: Sequence[Traffic]) -> list[Row]:
    """Make the rows on what pulling costs one actor, and the server with the paper's actors."""
    reader_cpu, server_cpu = [
        [1e3 * traffic.cores[group] / traffic.samples for traffic in rounds]
        for group in ("readers", "server")
    ]
    share = spread([100 * milliseconds / 1e3 / PAPER_PULL_SECONDS for milliseconds in reader_cpu])
    fetches_per_second = PAPER_ACTORS / PAPER_PULL_SECONDS
    cores = spread([fetches_per_second * milliseconds / 1e3 for milliseconds in server_cpu])
    return [
        Row("CPU of the actor per fetch", spread(reader_cpu), "ms"),
        Row("CPU of the server per fetch", spread(server_cpu), "ms"),
        at_most("an actor's time for pulling, paper's rhythm", share, 2.0, "%"),
        Row(f"server, {PAPER_ACTORS} actors that pull", cores, "cores"),
    ]


if __name__ == "__main__":
    run_and_leave(main)
