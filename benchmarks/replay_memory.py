"""What agent steps cost in the replay server's memory, and how fast they move.

Fills the table of a config through real adders, several times over, since removal by priority frees
memory in random order and the first filling says little. Memory is the resident memory of a server
in a process of its own, less what it had while empty. Actions are random.

  python benchmarks/replay_memory.py
  python benchmarks/replay_memory.py --max_size 100000 --eviction_policy fifo
  python benchmarks/replay_memory.py --config apex_dqn_atari --max_size 50000 --fillings 2
  python benchmarks/replay_memory.py --config r2d2_atari --max_size 1250 --fillings 2
"""

import argparse
import dataclasses
import time
from typing import Any

import numpy as np
import reverb
from measuring import resident_bytes, run_and_leave
from recording import record
from serving import replay_server

from apex_agents import load_config, make_vector_environment
from apex_agents.registry import make_builder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="apex_dpg_control")
    parser.add_argument("--task", help="another task than the config's")
    parser.add_argument("--max_size", type=int, default=1_000_000, help="items")
    parser.add_argument("--fillings", type=int, default=4, help="times that many are added")
    parser.add_argument("--eviction_policy", choices=("prioritized", "fifo"))
    arguments = parser.parse_args()
    config, max_size = load_config(arguments.config), arguments.max_size
    replay = config.agent.replay
    policy = arguments.eviction_policy or replay.eviction_policy
    config.agent.replay = dataclasses.replace(
        replay, max_size=max_size, min_size=1, samples_per_insert=None, eviction_policy=policy
    )
    config.environment.task = arguments.task or config.environment.task
    builder: Any = make_builder(config.agent)
    environment = make_vector_environment(config.environment, 1, seed=0)
    estimate = builder.estimate_replay_bytes(environment.spec) / max_size
    print(f"{arguments.config}, {config.environment.task}, {max_size} items, {policy}")
    print(f"estimated: {estimate:.0f} bytes/item")
    print(
        f"{'items':>9} {'steps':>9} {'MB':>7} {'bytes/item':>11} {'bytes/step':>11} {'steps/s':>8}"
    )
    # The state of a policy with memory, which takes as much room whatever it holds.
    acting = builder.make_policy(environment.spec, [0], 1, seed=0)
    state = acting(environment.reset()).select(0).state
    drawn = np.random.default_rng(0)
    steps = [
        (timestep, output._replace(state=tuple(_draw(part, drawn) for part in state)))
        for timestep, output in record(environment, num_steps=4000)
    ]
    with replay_server(builder.make_replay_tables, environment.spec) as server:
        empty = resident_bytes(server.pid)
        (adder,) = builder.make_adders(reverb.Client(server.address), environment.spec)
        for filling in range(1, arguments.fillings + 1):
            started, num_steps, num_items = time.monotonic(), adder.num_steps, adder.num_items
            while adder.num_items < filling * max_size:
                for timestep, output in steps:
                    adder.add(timestep, output)
            num_steps, num_items = adder.num_steps - num_steps, adder.num_items - num_items
            rate = num_steps / (time.monotonic() - started)
            used = resident_bytes(server.pid) - empty
            per_item = used / max_size
            print(
                f"{adder.num_items:>9} {adder.num_steps:>9} {used / 1e6:>7.0f} {per_item:>11.0f} "
                f"{per_item * num_items / num_steps:>11.0f} {rate:>8.0f}",
                flush=True,
            )


def _draw(part: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return random.normal(size=part.shape).astype(part.dtype)


if __name__ == "__main__":
    run_and_leave(main)
