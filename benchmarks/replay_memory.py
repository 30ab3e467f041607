"""What transitions of a control task cost in the replay server's memory, and how fast they move.

Fills the table of `configs/apex_dpg_control.py` through real adders, several times over, since
removal by priority frees memory in random order and the first filling says little. Memory is the
resident memory of a server in a process of its own, less what it had while empty.

  python benchmarks/replay_memory.py
  python benchmarks/replay_memory.py --max_size 100000 --eviction_policy fifo
"""

import argparse
import dataclasses
import time

import reverb
from measuring import resident_bytes, run_and_leave
from recording import RecordedSteps, record
from serving import ReplayServer, replay_server

from apex_agents import ApexDPGBuilder, ApexDPGConfig, EnvironmentConfig, make_vector_environment


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="humanoid:stand")
    parser.add_argument("--max_size", type=int, default=1_000_000, help="transitions")
    parser.add_argument("--fillings", type=int, default=4, help="times that many are added")
    parser.add_argument("--eviction_policy", default="prioritized", choices=("prioritized", "fifo"))
    arguments = parser.parse_args()

    config = ApexDPGConfig()
    config.replay = dataclasses.replace(
        config.replay,
        max_size=arguments.max_size,
        min_size=1,
        eviction_policy=arguments.eviction_policy,
    )
    builder = ApexDPGBuilder(config)
    try:
        environment = make_vector_environment(
            EnvironmentConfig("control", arguments.task), 1, seed=0
        )
    except ValueError as error:
        parser.error(str(error))
    estimate = builder.estimate_replay_bytes(environment.spec) / arguments.max_size
    print(
        f"{arguments.task}, {arguments.max_size} transitions, "
        f"eviction policy {arguments.eviction_policy}"
    )
    print(f"estimated: {estimate:.0f} bytes/transition")
    with replay_server(builder.make_replay_tables, environment.spec) as server:
        fill(builder, record(environment, num_steps=4000), server, arguments.fillings)


def fill(
    builder: ApexDPGBuilder, steps: RecordedSteps, server: ReplayServer, fillings: int
) -> None:
    """Fill the replay several times over, and print what it takes each time."""
    max_size, empty = builder.config.replay.max_size, resident_bytes(server.pid)
    adder = builder.make_adder(reverb.Client(server.address))
    print(f"{'added':>9} {'MB':>7} {'bytes/transition':>17} {'added/s':>8}")
    for filling in range(1, fillings + 1):
        started = time.monotonic()
        while adder.num_transitions < filling * max_size:
            for timestep, output in steps:
                adder.add(timestep, output)
        rate = max_size / (time.monotonic() - started)
        used = resident_bytes(server.pid) - empty
        print(
            f"{adder.num_transitions:>9} {used / 1e6:>7.0f} {used / max_size:>17.0f} {rate:>8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    run_and_leave(main)
