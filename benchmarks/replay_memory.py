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
from recording import record
from serving import replay_server

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
    max_size = arguments.max_size
    replay = dataclasses.replace(
        ApexDPGConfig().replay,
        max_size=max_size,
        min_size=1,
        eviction_policy=arguments.eviction_policy,
    )
    builder = ApexDPGBuilder(ApexDPGConfig(replay=replay))
    environment = make_vector_environment(EnvironmentConfig("control", arguments.task), 1, seed=0)
    estimate = builder.estimate_replay_bytes(environment.spec) / max_size
    print(f"{arguments.task}, {max_size} transitions, {arguments.eviction_policy}")
    print(f"estimated: {estimate:.0f} bytes/transition")
    print(f"{'added':>9} {'MB':>7} {'bytes/transition':>17} {'added/s':>8}")
    steps = record(environment, num_steps=4000)
    with replay_server(builder.make_replay_tables, environment.spec) as server:
        empty = resident_bytes(server.pid)
        (adder,) = builder.make_adders(reverb.Client(server.address), environment.spec)
        for filling in range(1, arguments.fillings + 1):
            started = time.monotonic()
            while adder.num_items < filling * max_size:
                for timestep, output in steps:
                    adder.add(timestep, output)
            rate = max_size / (time.monotonic() - started)
            used = resident_bytes(server.pid) - empty
            numbers = f"{used / 1e6:>7.0f} {used / max_size:>17.0f} {rate:>8.0f}"
            print(f"{adder.num_items:>9} {numbers}", flush=True)


if __name__ == "__main__":
    run_and_leave(main)
