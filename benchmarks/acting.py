"""Measures acting on Atari: one actor on one core against the emulator alone on the same core.

The actor has everything it has in a run: the dueling network (in bfloat16 if the CPU has it),
adders, a replay server (in a process of its own, on another core) that takes its transitions, and
parameters that it pulls, which another process publishes as often as a learner at the paper's
speed. Its time ends when the server has all transitions. The emulator alone is the native vector
environment with as many environments and random actions.

Example:
  python benchmarks/acting.py --environments 1 8 32
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import tensorflow as tf
from actors import Actor, Publisher
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from measuring import (
    PAPER_PUBLISH_SECONDS,
    Row,
    at_least,
    calls_per_second,
    make_parser,
    measure_in_turn,
    pin_to_core,
    ratios,
    report,
    run_and_leave,
    run_self,
    spread,
)
from serving import replay_server
from traffic import workers

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import (
    AtariConfig,
    EnvironmentConfig,
    EnvironmentSpec,
    make_vector_environment,
)
from apex_agents.nodes.host import keep_freed_memory
from apex_agents.precision import compute_dtype
from apex_agents.replay.config import ReplayConfig

NUM_ENVS = (1, 4, 8, 16, 32)
SECONDS = 2.5
ACTOR_CORE, REPLAY_CORE = 0, 1


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--environments", type=int, nargs="+", default=NUM_ENVS, help="of the actor"
    )
    parser.add_argument("--game", default="pong")
    parser.add_argument("--one", action="store_true", help="measure here, and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.game, arguments.environments[0], arguments.rounds)))
        return
    print(f"The network computes in {compute_dtype(True).name}.")
    rows, shares, rates = [], {}, {}
    for num_envs in arguments.environments:
        options = ["--one", "--environments", str(num_envs), "--rounds", str(arguments.rounds)]
        numbers = run_self(__file__, [*options, "--game", arguments.game])
        shares[num_envs] = ratios(numbers["actor"], numbers["emulator"])
        rates[num_envs] = spread(numbers["actor"])
        rows.append(Row(f"agent steps/s, {num_envs} environments", rates[num_envs]))
        share = Row(f"share of the emulator alone, {num_envs} environments", shares[num_envs])
        rows.append(at_least(share.what, share.value, 0.16) if num_envs == 1 else share)
    best = max(shares, key=lambda num_envs: shares[num_envs].median)
    what = f"share of the emulator alone, best ({best} environments)"
    rows.append(at_least(what, shares[best], 0.50))
    series = {"num_envs": arguments.environments, "share": shares, "rate": rates}
    report("acting", arguments.out, rows, series)


def measure(game: str, num_envs: int, rounds: int) -> dict[str, list[float]]:
    """Measure both, in turn, on one core; return agent steps per second by name."""
    pin_to_core(ACTOR_CORE)
    keep_freed_memory()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    builder = make_builder()
    environment = EnvironmentConfig(task=game, atari=AtariConfig(num_threads=1))
    vector_environment = make_vector_environment(environment, num_envs, seed=0)
    spec = vector_environment.spec
    with (
        replay_server(builder.make_replay_tables, spec, core=REPLAY_CORE) as server,
        workers((make_publishing, spec, server.address)) as (publisher,),
    ):
        publisher.set_rate(1 / PAPER_PUBLISH_SECONDS)
        actor = Actor(builder, vector_environment, server.address, range(num_envs), num_envs)
        step_emulator = make_emulator(game, num_envs)
        measurements: dict[str, Callable[[], float]] = {
            "actor": lambda: num_envs * count_steps(actor),
            "emulator": lambda: num_envs * calls_per_second(step_emulator, SECONDS),
        }
        return measure_in_turn(measurements, rounds)


def make_publishing(spec: EnvironmentSpec, address: str) -> Callable[[], float]:
    """Make what publishes new parameters."""
    pin_to_core(REPLAY_CORE)
    return Publisher(make_builder(), spec, address).publish


def make_builder() -> ApexDQNBuilder:
    replay = ReplayConfig(max_size=50_000, min_size=1_000)
    return ApexDQNBuilder(ApexDQNConfig(bfloat16=True, replay=replay))


def count_steps(actor: Actor) -> float:
    """Act for a while, and return the lock-steps per second until all is sent."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        actor.step()
        count += 1
    actor.flush()
    return count / (time.perf_counter() - started)


def make_emulator(game: str, num_envs: int) -> Callable[[], Any]:
    """Make what steps the emulator alone, with random actions."""
    native = AtariVectorEnv(game, num_envs, num_threads=1)
    native.reset(seed=np.arange(num_envs))
    rng = np.random.default_rng(0)
    num_actions = cast(spaces.Discrete, native.single_action_space).n
    actions = itertools.cycle(rng.integers(num_actions, size=(1000, num_envs)))
    return lambda: native.step(next(actions))


if __name__ == "__main__":
    run_and_leave(main)
