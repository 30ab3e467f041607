"""Measures the learner: updates per second with data flowing against a bare loop.

The learner is that of a run: it samples a real replay server (in another process, filled by a real
actor beforehand), writes priorities back and publishes parameters. It reads fewer batches ahead
than a run's, so that those read before the measurement are soon used up. The bare loop calls a
compiled update on one batch in memory and does nothing else. Where each of the learner's calls does
several updates, there are two such loops: of calls with one update, as people write them, and of
the learner's own calls. For Atari, the floating-point rate of the loop is also compared with the
machine's rate of matrix products of the same type, and the loop with a quantile head with that of
the dueling head.

Example:
  python benchmarks/learner.py --agents atari cartpole
"""

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import reverb
import tensorflow as tf
from measuring import (
    Row,
    at_least,
    calls_per_second,
    make_parser,
    measure_in_turn,
    ratios,
    report,
    run_and_leave,
    run_self,
    spread,
)
from serving import replay_server

from apex_agents.acting.actor import run_in_lock_step
from apex_agents.config import ExperimentConfig
from apex_agents.dqn import networks as dqn_networks
from apex_agents.environments import EnvironmentSpec, VectorEnvironment, make_vector_environment
from apex_agents.experiment import make_experiment
from apex_agents.learning.learner import ApexLearner, make_update_on_sample
from apex_agents.nodes.host import keep_freed_memory
from apex_agents.precision import compute_dtype, cpu_has_bfloat16
from apex_agents.presets import load_config
from apex_agents.r2d2 import networks as r2d2_networks
from apex_agents.r2d2.config import R2D2Config

# Settings, and the fields of the agent that are changed.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "atari": ("apex_dqn_atari", {}),
    "atari_bfloat16": ("apex_dqn_atari", {"bfloat16": True}),
    "atari_quantile": (
        "apex_dqn_atari_single_host_paper",
        {"head": "quantile", "optimizer": "adam"},
    ),
    "atari_single_host": ("apex_dqn_atari_single_host", {}),
    "atari_r2d2": ("r2d2_atari", {}),
    "atari_r2d2_single_host": ("r2d2_atari_single_host", {}),
    "cartpole": ("apex_dqn_cartpole", {}),
    "cartpole_r2d2": ("r2d2_cartpole", {}),
    "pendulum": ("apex_dpg_pendulum", {}),
}
NUM_ENVS = 8
NUM_TRANSITIONS, NUM_SEQUENCES = 2_000, 200
MAX_IN_FLIGHT = 40 * NUM_ENVS
PREFETCH_BATCHES = 4
ATARI_SECONDS, OTHER_SECONDS = 6.0, 2.0
MATMUL_SIZE = 2048


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--agents", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--one", action="store_true", help="measure here, and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.agents[0], arguments.rounds)))
        return
    rows, series = [], {}
    for agent in arguments.agents:
        if agent == "atari_bfloat16" and not cpu_has_bfloat16():
            print("This CPU does not compute in bfloat16.")
            continue
        options = ["--one", "--agents", agent, "--rounds", str(arguments.rounds)]
        numbers = run_self(__file__, options)
        share = ratios(numbers["learner"], numbers["bare"])
        rows.append(Row(f"{agent}: updates/s with data flowing", spread(numbers["learner"])))
        is_atari = agent.startswith("atari")
        what = f"{agent}: share of a bare loop of single updates"
        rows.append(at_least(what, share, 0.9 if is_atari else 0.7))
        if (num_updates := get_config(agent).agent.num_sgd_steps_per_step) > 1:
            what = f"{agent}: share of a bare loop of calls with {num_updates} updates"
            rows.append(Row(what, ratios(numbers["learner"], numbers["bare_calls"])))
        if agent == "atari_quantile":
            what = f"{agent}: bare loop's share of the dueling head's"
            rows.append(at_least(what, ratios(numbers["bare"], numbers["bare_dueling"]), 0.9))
        if is_atari:
            of_matmul = ratios(numbers["bare_flops"], numbers["matmul"])
            rows.append(at_least(f"{agent}: bare loop's share of the matmul rate", of_matmul, 0.45))
        series[agent] = share
    report("learner", arguments.out, rows, series)


def measure(agent: str, rounds: int) -> dict[str, list[float]]:
    """Measure learner, bare loops and products in turn; updates or operations per second."""
    keep_freed_memory()
    builder = make_builder(agent)
    environment = make_vector_environment(get_config(agent).environment, NUM_ENVS, seed=0)
    with replay_server(builder.make_replay_tables, environment.spec) as server:
        client = reverb.Client(server.address)
        fill(builder, environment, client)
        learner = builder.make_learner(environment.spec, client)
        num_updates = builder.config.num_sgd_steps_per_step
        bare = make_bare_step(agent, environment.spec, client)
        matmul = make_matmul(compute_dtype(getattr(builder.config, "bfloat16", False)))
        seconds = ATARI_SECONDS if agent.startswith("atari") else OTHER_SECONDS
        measurements = {
            "learner": lambda: count_updates(learner, seconds),
            "bare": lambda: calls_per_second(bare.run, seconds),
            "matmul": lambda: 2 * MATMUL_SIZE**3 * calls_per_second(matmul, 1.0),
        }
        if num_updates > 1:
            changes = {"num_sgd_steps_per_step": num_updates}
            bare_calls = make_bare_step(agent, environment.spec, client, **changes)
            measurements["bare_calls"] = lambda: (
                num_updates * calls_per_second(bare_calls.run, seconds)
            )
        if agent == "atari_quantile":
            dueling = make_bare_step(agent, environment.spec, client, head="dueling")
            measurements["bare_dueling"] = lambda: calls_per_second(dueling.run, seconds)
        numbers = measure_in_turn(measurements, rounds)
        if agent.startswith("atari"):
            flops = count_flops(builder, environment.spec)
            numbers["bare_flops"] = [flops * rate for rate in numbers["bare"]]
    return numbers


def get_config(agent: str) -> ExperimentConfig:
    """Return the settings of an agent."""
    name, changes = CONFIGS[agent]
    config = load_config(name)
    return dataclasses.replace(config, agent=dataclasses.replace(config.agent, **changes))


def make_builder(agent: str, **changes: Any) -> Any:
    """Make the builder of a config, with some fields of the agent replaced."""
    config = get_config(agent)
    replay = dataclasses.replace(
        config.agent.replay,
        min_size=num_items(config.agent),
        samples_per_insert=None,
        prefetch_batches=PREFETCH_BATCHES,
    )
    changed = dataclasses.replace(config.agent, replay=replay, **changes)
    return make_experiment(dataclasses.replace(config, agent=changed)).builder


def num_items(config: Any) -> int:
    """Return how many items the replay of an agent holds."""
    return NUM_SEQUENCES if isinstance(config, R2D2Config) else NUM_TRANSITIONS


def fill(builder: Any, environment: VectorEnvironment, client: reverb.Client) -> None:
    """Fill the replay with items of an untrained policy."""
    policy = builder.make_policy(environment.spec, range(NUM_ENVS), NUM_ENVS, seed=0)
    adders = builder.make_adders(client, environment.spec, range(NUM_ENVS), NUM_ENVS)
    for _ in run_in_lock_step(environment, builder.make_actor(policy, adders)):
        if sum(adder.num_items for adder in adders) > num_items(builder.config) + MAX_IN_FLIGHT:
            return


class BareStep(NamedTuple):
    """A compiled update and the one batch that it is called on."""

    function: Any
    batch: reverb.ReplaySample

    def run(self) -> None:
        self.function(self.batch).priorities.numpy()


def make_bare_step(
    agent: str, spec: EnvironmentSpec, client: reverb.Client, **changes: Any
) -> BareStep:
    """Compile a function that does one update, or as many as `changes` say."""
    builder = make_builder(agent, **{"num_sgd_steps_per_step": 1, **changes})
    dataset = builder.make_dataset(client, spec)
    update_on_sample = make_update_on_sample(builder.make_update(spec), builder.config)
    return BareStep(update_on_sample, next(iter(dataset)))


def count_updates(learner: ApexLearner, seconds: float) -> float:
    """Return the updates per second of a learner, once it has used up what was read ahead."""
    end = learner.num_steps + 2 * PREFETCH_BATCHES
    while learner.num_steps < end:
        learner.step()
    before, started = learner.num_steps, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        learner.step()
    return (learner.num_steps - before) / elapsed


def make_matmul(dtype: tf.DType) -> Callable[[], Any]:
    """Compile the product of two matrices."""
    matrix = tf.cast(tf.random.normal([MATMUL_SIZE, MATMUL_SIZE]), dtype)
    product = tf.function(lambda: tf.reduce_sum(matrix @ matrix))
    return lambda: product().numpy()


def count_flops(builder: Any, spec: EnvironmentSpec) -> int:
    """Return the floating-point operations of the products and convolutions of one update.

    An update of DQN has three forward passes and one backward pass, which costs two forward passes,
    less the gradients of the pixels. One of R2D2 has two forward passes over all steps, and a
    backward pass over those behind the burn-in.
    """
    config, observations = builder.config, spec.observations
    is_recurrent = isinstance(config, R2D2Config)
    make = r2d2_networks.make_network if is_recurrent else dqn_networks.make_network
    network, num_rows = make(config, spec), config.batch_size
    inputs = [tf.TensorSpec((num_rows, *observations.shape), observations.dtype)]
    if is_recurrent:
        steps = [tf.TensorSpec([num_rows], dtype) for dtype in (tf.int32, tf.float32)]
        state = [tf.TensorSpec(part.shape) for part in network.initial_state(num_rows)]
        inputs += [*steps, *state]
    evaluate = tf.function(network, autograph=False).get_concrete_function(*inputs)
    layers = [
        2 * op.outputs[0].shape.num_elements() * op.inputs[1].shape[:-1].num_elements()
        for op in evaluate.graph.get_operations()
        if op.type in ("Conv2D", "MatMul")
    ]
    if not is_recurrent:
        return 5 * sum(layers) - layers[0]
    num_trained = config.sequence_length + config.n_step
    without_gradients = 2 * (config.burn_in_length + num_trained) * sum(layers)
    return without_gradients + num_trained * (2 * sum(layers) - layers[0])


if __name__ == "__main__":
    run_and_leave(main)
