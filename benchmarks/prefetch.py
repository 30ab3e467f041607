"""Measures how many batches a learner should read ahead: its speed, and how stale they become.

The learner is a run's, with the settings for one machine. Beside it a process keeps a core busy, as
actors do. Batches wait in line when the learner is what takes longest: a batch was sampled as many
learner steps before its update as are in that line, and its priorities are that old.

Example:
  python benchmarks/prefetch.py --agents cartpole --depths 8 16 32
"""

import functools
import json
import time
from collections.abc import Callable, Sequence

import reverb
from learner import NUM_ENVS, count_updates, fill, get_config, make_builder
from measuring import (
    Row,
    make_parser,
    measure_in_turn,
    ratios,
    report,
    run_and_leave,
    run_self,
    spread,
)
from serving import replay_server
from traffic import UNLIMITED, count_sampled, workers

from apex_agents.environments import make_vector_environment

AGENTS = ("atari_single_host", "cartpole")
DEPTHS = (1, 2, 4, 8, 16)
SECONDS = 3.0
POLL_SECONDS = 0.3


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="batches read ahead")
    parser.add_argument("--one", action="store_true", help="measure here, and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.agents[0], arguments.depths, arguments.rounds)))
        return
    rows, depths = [], [str(depth) for depth in arguments.depths]
    for agent in arguments.agents:
        options = ["--agents", agent, "--depths", *depths, "--rounds", str(arguments.rounds)]
        rates, ahead = run_self(__file__, ["--one", *options])
        for depth in depths:
            what = f"{agent}: prefetch_batches={depth}"
            share = ratios(rates[depth], rates[depths[-1]])
            rows.append(Row(f"{what}, speed of that with {depths[-1]}", share))
            rows.append(Row(f"{what}, staleness", spread(ahead[depth]), "learner steps"))
    report("prefetch", arguments.out, rows)


def measure(
    agent: str, depths: Sequence[int], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measure learners that read ahead so far, in turn.

    Returns:
      Updates per second of each round, and batches that were sampled but not yet used, by depth.
    """
    environment = make_vector_environment(get_config(agent).environment, NUM_ENVS, seed=0)
    builder = make_builder(agent)
    with (
        replay_server(builder.make_replay_tables, environment.spec) as server,
        workers((make_busy,)) as (busy,),
    ):
        client = reverb.Client(server.address)
        fill(builder, environment, client)
        learners = {}
        for depth in depths:
            builder = make_builder(agent, depth)
            dataset = builder.make_dataset(client, environment.spec)
            learners[depth] = builder.make_learner(environment.spec, dataset, client)
        sampled = dict.fromkeys(depths, 0)

        def learn(depth: int) -> tuple[float, float]:
            before = count_sampled(server.address)
            rate = count_updates(learners[depth], SECONDS, depth)
            sampled[depth] += wait_until_full(server.address) - before
            used = learners[depth].num_steps
            return rate, sampled[depth] / builder.config.batch_size - used

        busy.set_rate(UNLIMITED)
        measured = measure_in_turn(
            {str(depth): functools.partial(learn, depth) for depth in depths}, rounds
        )
    rates = {depth: [rate for rate, _ in numbers] for depth, numbers in measured.items()}
    return rates, {depth: [ahead for _, ahead in numbers] for depth, numbers in measured.items()}


def wait_until_full(address: str) -> int:
    """Wait until nothing more is read ahead; return the transitions sampled so far."""
    count = count_sampled(address)
    while True:
        time.sleep(POLL_SECONDS)
        before, count = count, count_sampled(address)
        if count == before:
            return count


def make_busy() -> Callable[[], int]:
    """Make something that takes a while."""
    return lambda: sum(range(100_000))


if __name__ == "__main__":
    run_and_leave(main)
