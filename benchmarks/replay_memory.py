"""What transitions of a control task cost in the replay server's memory, and how fast they move.

Fills the table of `configs/apex_dpg_control.py` through real adders, several times over, since
removal by priority frees memory in random order and the first filling says little. Memory is the
resident memory of a server in a process of its own, less what it had while empty.

  python benchmarks/replay_memory.py
  python benchmarks/replay_memory.py --max_size 100000 --remover fifo
"""

import argparse
import dataclasses
import multiprocessing
import os
import time
from multiprocessing import connection

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dm_env
import numpy as np
import psutil
import reverb

from apex_agents import ApexDPGBuilder, ApexDPGConfig, EnvironmentConfig, make_lanes
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import EnvironmentSpec, Lanes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="humanoid:stand")
    parser.add_argument("--max_size", type=int, default=1_000_000, help="transitions")
    parser.add_argument("--fillings", type=int, default=4, help="times that many are added")
    parser.add_argument("--remover", default="prioritized", choices=("prioritized", "fifo"))
    arguments = parser.parse_args()

    config = ApexDPGConfig()
    config.replay = dataclasses.replace(
        config.replay, max_size=arguments.max_size, min_size=1, remover=arguments.remover
    )
    builder = ApexDPGBuilder(config)
    try:
        lanes = make_lanes(EnvironmentConfig("control", arguments.task), 1, seed=0)
    except ValueError as error:
        parser.error(str(error))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(builder, lanes.spec, sender), daemon=True
    )
    server.start()
    sender.close()  # So that `recv` ends when the server does.
    port = receiver.recv()
    process = psutil.Process(server.pid)
    client = reverb.Client(f"localhost:{port}")
    empty = process.memory_info().rss

    steps = _record(lanes, num_steps=4000)
    adder = builder.make_adder(client)
    estimate = builder.estimate_replay_bytes(lanes.spec) / arguments.max_size
    print(f"{arguments.task}, {arguments.max_size} transitions, remover {arguments.remover}")
    print(f"estimated: {estimate:.0f} bytes/transition")
    print(f"{'added':>9} {'MB':>7} {'bytes/transition':>17} {'added/s':>8}")
    for filling in range(1, arguments.fillings + 1):
        started = time.monotonic()
        while adder.num_transitions < filling * arguments.max_size:
            for timestep, output in steps:
                adder.add(timestep, output)
        rate = arguments.max_size / (time.monotonic() - started)
        used = process.memory_info().rss - empty
        size = used / arguments.max_size
        print(
            f"{adder.num_transitions:>9} {used / 1e6:>7.0f} {size:>17.0f} {rate:>8.0f}", flush=True
        )
    server.kill()
    os._exit(0)  # Reverb's writer would try to reach the server.


def _serve(builder: ApexDPGBuilder, spec: EnvironmentSpec, sender: connection.Connection) -> None:
    server = reverb.Server(builder.make_replay_tables(spec))
    sender.send(server.port)
    server.wait()


def _record(lanes: Lanes, num_steps: int) -> list[tuple[dm_env.TimeStep, PolicyOutput]]:
    """Act at random; TD errors are log-normal."""
    random = np.random.default_rng(0)
    timestep = lanes.reset()
    steps = []
    for _ in range(num_steps):
        action = random.uniform(-1.0, 1.0, (1, *lanes.spec.actions.shape)).astype(np.float32)
        output = PolicyOutput(action[0], np.exp(random.normal(size=(), scale=1.5)), np.zeros(()))
        steps.append((dm_env.TimeStep(*[field[0] for field in timestep]), output))
        timestep = lanes.step(action)
    return steps


if __name__ == "__main__":
    main()
