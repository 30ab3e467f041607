"""Measures acting on Atari: one actor on one core against the emulator alone on the same core.

The actor has everything it has in a run: the dueling network (in bfloat16 if the CPU has it),
adders, a replay server (in a process of its own, on another core) that takes its transitions, and
parameters that it pulls, which another process publishes as often as a learner at the paper's
speed. Its time ends when the server has all transitions. The emulator alone is the native vector
environment with as many lanes and random actions.

Example:
  python benchmarks/acting.py --lanes 1 8 32
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import reverb
import tensorflow as tf
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from measuring import (
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
from apex_agents.acting.loop import run_lanes
from apex_agents.environments import (
    AtariConfig,
    EnvironmentConfig,
    EnvironmentSpec,
    make_lanes,
)
from apex_agents.learning.precision import compute_dtype
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.parameters import ParameterSource, publish_parameters, to_arrays

LANES = (1, 4, 8, 16, 32)
SECONDS = 2.5
# Horgan et al. 2018, section 4.1: 19 learner steps per second; published, here, every 20.
PUBLICATIONS_PER_SECOND = 19 / 20
ACTOR_CORE, REPLAY_CORE = 0, 1


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--lanes", type=int, nargs="+", default=LANES, help="of the actor")
    parser.add_argument("--game", default="pong")
    parser.add_argument("--one", action="store_true", help="measure here, and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.game, arguments.lanes[0], arguments.rounds)))
        return
    print(f"The network computes in {compute_dtype(True).name}.")
    rows, shares, rates = [], {}, {}
    for lanes in arguments.lanes:
        options = ["--one", "--lanes", str(lanes), "--rounds", str(arguments.rounds)]
        numbers = run_self(__file__, [*options, "--game", arguments.game])
        shares[lanes] = ratios(numbers["actor"], numbers["emulator"])
        rates[lanes] = spread(numbers["actor"])
        rows.append(Row(f"agent steps/s, {lanes} lanes", rates[lanes]))
        share = f"share of the emulator alone, {lanes} lanes"
        rows.append(
            at_least(share, shares[lanes], 0.16) if lanes == 1 else Row(share, shares[lanes])
        )
    best = max(shares, key=lambda lanes: shares[lanes].median)
    rows.append(at_least(f"share of the emulator alone, best ({best} lanes)", shares[best], 0.50))
    report(
        "acting", arguments.out, rows, {"lanes": arguments.lanes, "share": shares, "rate": rates}
    )


def measure(game: str, num_lanes: int, rounds: int) -> dict[str, list[float]]:
    """Measure both, in turn, on one core; agent steps per second by name."""
    pin_to_core(ACTOR_CORE)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    builder = make_builder()
    spec = make_lanes(EnvironmentConfig(task=game), 1, 0).spec
    with (
        replay_server(builder.make_replay_tables, spec, core=REPLAY_CORE) as server,
        workers((make_publishing, spec, server.address)) as (publisher,),
    ):
        publisher.set_rate(PUBLICATIONS_PER_SECOND)
        actor = Actor(game, num_lanes, server.address)
        step_emulator = make_emulator(game, num_lanes)
        measurements: dict[str, Callable[[], float]] = {
            "actor": lambda: num_lanes * actor.steps_per_second(),
            "emulator": lambda: num_lanes * calls_per_second(step_emulator, SECONDS),
        }
        return measure_in_turn(measurements, rounds)


def make_publishing(spec: EnvironmentSpec, address: str) -> Callable[[], None]:
    """Make what publishes new parameters."""
    pin_to_core(REPLAY_CORE)
    client, learner_steps = reverb.Client(address), itertools.count()
    arrays = to_arrays(make_builder().make_evaluation_policy(spec, 1, 0).variables)

    def publish() -> None:
        publish_parameters(client, arrays, next(learner_steps))

    publish()
    return publish


def make_builder() -> ApexDQNBuilder:
    replay = ReplayConfig(max_size=50_000, min_size=1_000)
    return ApexDQNBuilder(ApexDQNConfig(bfloat16=True, replay=replay))


class Actor:
    """An actor, put together as in `program._act`."""

    def __init__(self, game: str, num_lanes: int, address: str):
        """Begin games in so many lanes; parameters have to be published by then."""
        builder, client = make_builder(), reverb.Client(address)
        environment = EnvironmentConfig(task=game, atari=AtariConfig(num_threads=1))
        lanes = make_lanes(environment, num_lanes, seed=0)
        policy = builder.make_policy(lanes.spec, range(num_lanes), num_lanes, seed=0)
        source = ParameterSource(client)
        self._adders = [
            builder.make_adder(client, learner_steps_fn=lambda: source.learner_steps)
            for _ in range(num_lanes)
        ]
        self._steps = run_lanes(lanes, builder.make_actor(policy, self._adders, source))

    def steps_per_second(self) -> float:
        """Act for a while, and return the lock-steps per second until all is sent."""
        count, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            next(self._steps)
            count += 1
        for adder in self._adders:
            adder.flush()
        return count / (time.perf_counter() - started)


def make_emulator(game: str, num_lanes: int) -> Callable[[], Any]:
    """Make the environment that the lanes use, alone, with random actions."""
    native = AtariVectorEnv(game, num_lanes, num_threads=1)
    native.reset(seed=np.arange(num_lanes))
    rng = np.random.default_rng(0)
    num_actions = cast(spaces.Discrete, native.single_action_space).n
    actions = itertools.cycle(rng.integers(num_actions, size=(1000, num_lanes)))
    return lambda: native.step(next(actions))


if __name__ == "__main__":
    run_and_leave(main)
