"""Steps per second of CartPoles that come many at once, beside as many that are stepped one by one.

Both are stepped by random actions, through what actors step them by; nothing acts or learns. Those
that come at once are gymnasium's own batched CartPole.

  python benchmarks/batched_environments.py --num_envs 256
"""

import argparse
import statistics
import time

import gymnasium
import numpy as np

from apex_agents import EnvironmentConfig, make_vector_environment
from apex_agents.environments import VectorEnvironment


def make_cartpoles(num_envs: int) -> gymnasium.vector.VectorEnv:
    """Make environments that one array computation steps."""
    return gymnasium.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")


def measure(environment: VectorEnvironment, seconds: float) -> float:
    """Return the steps per second of all environments together."""
    random, num_envs = np.random.default_rng(0), environment.num_envs
    environment.reset()
    started, steps = time.monotonic(), 0
    while time.monotonic() < started + seconds:
        environment.step(random.integers(2, size=num_envs).astype(np.int32))
        environment.finished_episodes()
        steps += num_envs
    return steps / (time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--num_envs", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    arguments = parser.parse_args()
    num_envs = arguments.num_envs
    single = make_vector_environment(EnvironmentConfig("gymnasium", "CartPole-v1"), num_envs, 0)
    config = EnvironmentConfig("function", "cartpoles")
    batched = make_vector_environment(config, num_envs, 0, environment_fn=make_cartpoles)
    rates = [
        [measure(environment, arguments.seconds) for environment in (single, batched)]
        for _ in range(arguments.rounds)
    ]
    for name, values in zip(("one by one", "at once"), zip(*rates, strict=True), strict=True):
        print(f"{name}: {statistics.median(values):,.0f} steps/s")
    ratios = [at_once / one_by_one for one_by_one, at_once in rates]
    print(f"ratio: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
