"""Tests of whole runs in one process: values worked out by hand, and what breaks them.

The broken variants replace one part through the builder. Each must miss the values that the healthy
agent reaches: a check that cannot fail would show nothing. Sampling in the replay is not seeded:
values differ by some hundredths from run to run, and by 0.3 or more from variant to variant.
"""

import collections
import dataclasses
import functools
import io
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
import reverb
import sonnet as snt
import tensorflow as tf
from dm_env import specs
from experiments import NUM_ENVS, assign_learned, learn, make_dqn_config
from gymnasium import spaces
from waiting import wait_for

from apex_agents import launcher, program
from apex_agents.acting.policy import PolicyOutput
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.checks import (
    check_environment,
    check_experiment,
    check_limits,
    check_own_networks,
    check_own_update,
)
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.networks import DPGNetworks
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.dqn.networks import make_network
from apex_agents.environments import (
    EnvironmentConfig,
    EnvironmentSpec,
    Episode,
    make_vector_environment,
)
from apex_agents.experiment import (
    Experiment,
    Progress,
    make_experiment,
)
from apex_agents.launcher import check_metrics
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.losses import TDLoss
from apex_agents.learning.update import Computed, Update
from apex_agents.local import run_local
from apex_agents.presets import load_config
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import TRANSITIONS, DataFlow, make_data_flow
from apex_agents.replay.transitions import Transition

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Chain(dm_env.Environment):
    """Four states in a row; whatever is done, the step out of the last one gives 8 and terminates.

    With a discount of 1/2 the values are 1, 2, 4 and 8. For n = 3 only the first state bootstraps:
    its target is 0 + 0.5^3 * 8.
    """

    VALUES = (1.0, 2.0, 4.0, 8.0)

    def __init__(self):
        self._state = 4

    def reset(self) -> dm_env.TimeStep:
        self._state = 0
        return dm_env.restart(self._observe())

    def step(self, action: int) -> dm_env.TimeStep:
        if self._state == 4:
            return self.reset()
        self._state += 1
        if self._state == 4:
            return dm_env.termination(8.0, self._observe())
        return dm_env.transition(0.0, self._observe())

    def observation_spec(self) -> specs.Array:
        return specs.Array((4,), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2, dtype=np.int32)

    def _observe(self) -> np.ndarray:
        return np.eye(5, 4, dtype=np.float32)[self._state]


class Choice(dm_env.Environment):
    """One state forever: action 1 gives 1, action 0 gives 0; truncated every 5 steps.

    With a discount of 1/2, q(1) = 1 / (1 - 0.5) = 2 and q(0) = 0 + 0.5 * 2 = 1.
    """

    ACTION_VALUES = (1.0, 2.0)
    LENGTH = 5

    def __init__(self):
        self._num_steps = self.LENGTH

    def reset(self) -> dm_env.TimeStep:
        self._num_steps = 0
        return dm_env.restart(np.ones(1, np.float32))

    def step(self, action: int) -> dm_env.TimeStep:
        if self._num_steps == self.LENGTH:
            return self.reset()
        self._num_steps += 1
        make = dm_env.truncation if self._num_steps == self.LENGTH else dm_env.transition
        return make(float(action), np.ones(1, np.float32))

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2, dtype=np.int32)


CONFIG = make_dqn_config()


@dataclasses.dataclass
class Result:
    """What a run left behind."""

    learner: ApexLearner
    episodes: list[Episode]
    config: ApexDQNConfig

    def q_values(self, observations: np.ndarray) -> np.ndarray:
        """Evaluate the learned network, `[B, ...]` to `[B, 2]`."""
        vector = specs.Array(observations.shape[1:], np.float32)
        spec = EnvironmentSpec(vector, specs.DiscreteArray(2), rewards=None, discounts=None)
        network = make_network(self.config, spec)
        assign_learned({"network": network.variables}, self.learner)
        return network(tf.constant(observations, tf.float32)).numpy()


def run(
    builder: ApexDQNBuilder,
    environment: Callable[[], dm_env.Environment],
    max_learner_steps: int = 500,
) -> Result:
    episodes: list[Episode] = []
    learner = learn(builder, environment, max_learner_steps, episodes.append)
    return Result(learner, episodes, builder.config)


class ChangedAdder:
    """An adder that sees something else than what happened."""

    def __init__(self, adder: Any, change: Callable[..., dm_env.TimeStep]):
        self._adder = adder
        self._change = change

    @property
    def num_steps(self) -> int:
        return self._adder.num_steps

    @property
    def num_items(self) -> int:
        return self._adder.num_items

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        self._adder.add(self._change(timestep), output)

    def flush(self) -> None:
        self._adder.flush()

    def close(self) -> None:
        self._adder.close()


class ScaledDiscountBuilder(ApexDQNBuilder):
    """Multiplies D with a constant: 1 / gamma makes it gamma^(n-1), gamma makes it gamma^(n+1)."""

    def __init__(self, config: ApexDQNConfig, factor: float):
        super().__init__(config)
        self._factor = factor

    def make_dataset(self, client, spec):
        def scale(sample: reverb.ReplaySample) -> reverb.ReplaySample:
            discount = sample.data.n_step_discount * self._factor
            return sample._replace(data=sample.data._replace(n_step_discount=discount))

        return super().make_dataset(client, spec).map(scale)


class TruncationTerminatesBuilder(ApexDQNBuilder):
    """Takes the end of an episode for a termination, always."""

    def make_adders(self, *args, **kwargs):
        def terminate(timestep: dm_env.TimeStep) -> dm_env.TimeStep:
            return timestep._replace(discount=0.0) if timestep.last() else timestep

        return [ChangedAdder(adder, terminate) for adder in super().make_adders(*args, **kwargs)]


class OneEpsilonBuilder(ApexDQNBuilder):
    """Lets all environments explore alike."""

    def make_policy(self, spec, env_indices, num_envs, seed):
        policy = super().make_policy(spec, env_indices, num_envs, seed)
        policy.exploration["epsilon"][:] = self.config.exploration.epsilon
        return policy


def chain_values(builder: ApexDQNBuilder) -> np.ndarray:
    """Learn the chain and return `[4, 2]`, the values of its states and actions."""
    return run(builder, Chain).q_values(np.eye(4))


def both_actions(values: tuple[float, ...]) -> np.ndarray:
    return np.repeat(np.array(values)[:, None], 2, axis=1)


def test_values_of_the_chain():
    values = chain_values(ApexDQNBuilder(CONFIG))
    np.testing.assert_allclose(values, both_actions(Chain.VALUES), atol=0.15)


def test_without_copies_to_the_target_network_nothing_is_bootstrapped():
    values = chain_values(ApexDQNBuilder(make_dqn_config(target_update_period=10**9)))
    # The initial target network says about 0 of the last state instead of 8.
    np.testing.assert_allclose(values[1:], both_actions(Chain.VALUES[1:]), atol=0.15)
    assert np.abs(values[0]).max() < 0.5


@pytest.mark.parametrize(
    ("factor", "first_value"),
    [(1 / 0.5, 0.5**2 * 8.0), (0.5, 0.5**4 * 8.0)],
    ids=["gamma^(n-1)", "gamma^(n+1)"],
)
def test_a_discount_that_is_off_by_one_step_shows(factor, first_value):
    values = chain_values(ScaledDiscountBuilder(CONFIG, factor))
    np.testing.assert_allclose(values, both_actions((first_value, 2.0, 4.0, 8.0)), atol=0.15)


ONE_STEP_CONFIG = make_dqn_config(n_step=1)


@pytest.fixture(scope="module")
def choice_result() -> Result:
    return run(ApexDQNBuilder(ONE_STEP_CONFIG), Choice)


def test_a_truncated_episode_has_the_value_of_an_endless_one(choice_result):
    (values,) = choice_result.q_values(np.ones([1, 1]))
    np.testing.assert_allclose(values, Choice.ACTION_VALUES, atol=0.1)


def test_a_truncation_taken_for_a_termination_shows():
    result = run(TruncationTerminatesBuilder(ONE_STEP_CONFIG), Choice)
    (values,) = result.q_values(np.ones([1, 1]))
    # One step in five bootstraps nothing; if all were sampled alike, q(1) were 1 / (1 - 0.4).
    assert values[1] < 1.85


def returns_per_env(result: Result) -> list[float]:
    """Return each environment's mean return over the second half of its episodes."""
    returns = collections.defaultdict(list)
    for episode in result.episodes:
        returns[episode.env_index].append(episode.episode_return)
    return [float(np.mean(returns[i][len(returns[i]) // 2 :])) for i in range(NUM_ENVS)]


# The greediest environment chooses action 0 with probability 0.5^7 / 2 = 0.004, the other end of
# the ladder with 0.5 / 2. Mean returns of 5 steps are thus 4.98 and 3.75; over 10 episodes the
# latter has a standard deviation of sqrt(5 * 0.25 * 0.75 / 10) = 0.31, and 4.6 is more than two of
# them away from it and fifteen from the former. Averages over 4 environments are twice as sharp.
# The seed of the exploration is fixed, and action 1 is the greedy one after the first few episodes:
# these returns do not change from run to run.
def test_every_env_explores_with_its_own_epsilon(choice_result):
    returns = returns_per_env(choice_result)
    assert np.mean(returns[4:]) > 4.6 > returns[0]


def test_envs_that_explore_alike_show():
    returns = returns_per_env(run(OneEpsilonBuilder(ONE_STEP_CONFIG), Choice))
    assert np.mean(returns[4:]) < 4.6


class RecordingBuilder(ApexDQNBuilder):
    """Keeps adders, learner, its client and the actor's source of parameters within reach."""

    def make_adders(self, *args, **kwargs):
        self.adders = super().make_adders(*args, **kwargs)
        return self.adders

    def make_learner(self, spec, client, *args, **kwargs):
        self.client = client
        self.learner = super().make_learner(spec, client, *args, **kwargs)
        return self.learner

    def make_actor(self, policy, adders=(), variable_source=None):
        self.source = variable_source
        return super().make_actor(policy, adders, variable_source)


@pytest.mark.parametrize("num_sgd_steps_per_step", [1, 3])
def test_learner_steps_per_transition_are_fixed(num_sgd_steps_per_step):
    config = make_dqn_config(n_step=1, num_sgd_steps_per_step=num_sgd_steps_per_step)
    builder = RecordingBuilder(config)
    moments = set()

    def record() -> None:
        transitions = sum(adder.num_items for adder in builder.adders)
        moments.add((transitions, builder.learner.num_steps))

    class RecordingChoice(Choice):
        def reset(self) -> dm_env.TimeStep:
            if hasattr(builder, "learner"):  # The first ones are made before it.
                record()
            return super().reset()

        def step(self, action: int) -> dm_env.TimeStep:
            record()
            return super().step(action)

    run(builder, RecordingChoice, max_learner_steps=200)

    # 8 samples per insert in batches of 16: a learner step for every 2 transitions since learning
    # could begin, as far as these make whole calls.
    def expected_steps(transitions: int, first: int) -> int:
        due = max(transitions - first, 0) // 2
        return due - due % num_sgd_steps_per_step

    assert len({num_steps for _, num_steps in moments}) > 40
    assert any(
        all(steps == expected_steps(transitions, first) for transitions, steps in moments)
        for first, _ in moments
    )


def test_no_step_beyond_max_learner_steps_and_parameters_straight_from_the_learner():
    # Sampling from a server of the same process that has been stopped never returns, and the pool
    # of Acme's variable client keeps the process from ending for as long as that lasts.
    builder = RecordingBuilder(ONE_STEP_CONFIG)
    result = run(builder, Choice, max_learner_steps=10)
    assert result.learner.num_steps == 10  # Four are due after every lock-step.
    assert builder.source is result.learner


def test_a_run_in_one_process_ends_after_max_seconds():
    started_at = time.monotonic()
    learn(ApexDQNBuilder(ONE_STEP_CONFIG), Choice, None, max_seconds=2.0)
    assert time.monotonic() - started_at >= 2.0


def test_nothing_is_left_of_a_run_that_fails():
    builder = RecordingBuilder(ONE_STEP_CONFIG)

    def fail(episode):
        raise KeyError("colour")

    before = set(threading.enumerate())
    with pytest.raises(KeyError, match="colour") as caught:
        learn(builder, Choice, 1000, fail)
    assert caught.tb  # It refers to all that the run has made, which therefore has to be closed.
    with pytest.raises((RuntimeError, reverb.errors.ReverbError)):
        builder.client.server_info(1)

    def find_left() -> set[str]:
        return {thread.name.partition("-")[0] for thread in set(threading.enumerate()) - before}

    # Acme's variable client leaves one after any run.
    wait_for(lambda: find_left() <= {"ThreadPoolExecutor"}, find_left)


def test_learns_catch():
    config = load_config("apex_dqn_catch")
    config.run.max_actor_steps = 10_000
    make = functools.partial(make_vector_environment, config.environment)
    builder = ApexDQNBuilder(config.agent)
    returns = []

    def record(episode: Episode) -> None:
        if episode.env_index == config.run.num_envs - 1:  # It explores least: epsilon 0.026.
            returns.append(episode.episode_return)

    run_local(Experiment(builder, make, config.run, workdir=""), on_episode=record)
    # The mean over half of the run, since single updates can spoil the greedy policy for a moment.
    # A random policy gets -0.6; the least of 24 runs was 0.91.
    assert np.mean(returns[len(returns) // 2 :]) >= 0.5


class Room(gymnasium.Env):
    """Rewards the row that the image shows, or the other one where the vector says so."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 4, 1), np.uint8), "turned": spaces.Box(-1, 1, (1,))}
    )
    action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.turned = self.np_random.integers(2, size=2)
        return self.observe(), {}

    def observe(self):
        image = np.zeros((4, 4, 1), np.uint8)
        image[2 * self.row + 1] = 255
        return {"image": image, "turned": np.float32([2 * self.turned - 1])}

    def step(self, action):
        is_right = action - 1 == (self.row + self.turned) % 2
        return self.observe(), float(is_right), True, False, {}


def test_learns_from_an_image_and_a_vector_together():
    config = load_config("apex_dqn_cartpole")
    config.run.max_actor_steps = 8_000
    returns = []
    experiment = make_experiment(config, environment_fn=Room)
    run_local(experiment, on_episode=lambda episode: returns.append(episode.episode_return))
    # Either part alone says nothing: such a policy gets 0.5. Environments explore in up to half of
    # their steps, at random in 14 % on average.
    assert np.mean(returns[-1000:]) >= 0.8


def test_the_torso_that_fits_is_recorded():
    experiment = make_experiment(load_config("apex_dqn_cartpole"), environment_fn=Room)
    assert experiment.config.agent.torso == "auto"
    recorded = experiment.with_spec(experiment.environment_spec()).config.agent
    assert (recorded.torso, recorded.conv_channels) == ("conv", (16,))


def test_a_run_without_a_limit_is_refused():
    experiment = Experiment(
        ApexDQNBuilder(CONFIG), make_vector_environment, RunConfig(target_return=1.0), workdir=""
    )
    with pytest.raises(ValueError, match=r"run\.max_learner_steps"):
        run_local(experiment)


def test_an_agent_that_does_not_fit_the_environment_is_refused():
    config, made = load_config("apex_dqn_catch"), []

    def make(*args: Any, **kwargs: Any) -> Any:
        made.append(make_vector_environment(config.environment, *args, **kwargs))
        made[-1].close = lambda: made.append("closed")
        return made[-1]

    experiment = Experiment(
        builder=ApexDQNBuilder(dataclasses.replace(config.agent, frame_stack=4)),
        make_vector_environment=make,
        run=config.run,
        workdir="",
    )
    for check in (run_local, check_environment):
        with pytest.raises(ValueError, match=r"agent\.frame_stack"):
            check(experiment)
        assert made.pop() == "closed"


def test_a_spec_that_is_known_needs_no_environment():
    experiment = make_experiment(load_config("apex_dqn_catch"))
    spec = experiment.environment_spec()
    assert spec == make_vector_environment(EnvironmentConfig("toy", "catch"), 1, 0).spec
    known = dataclasses.replace(experiment, spec=spec, make_vector_environment=None)
    assert known.environment_spec() is spec


class NormalizedOverBatch(snt.Module):
    def __init__(self, spec: EnvironmentSpec, config: Any):
        super().__init__()
        self._layers = [snt.Linear(8), snt.BatchNorm(True, True)]

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        linear, normalize = self._layers
        return normalize(linear(snt.Flatten()(observations)), is_training=True)


class Noisy(snt.Module):
    def __init__(self, spec: EnvironmentSpec, config: Any):
        super().__init__()
        self._linear = snt.Linear(8)

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        features = self._linear(snt.Flatten()(observations))
        return features + tf.random.normal(tf.shape(features))


class WithoutDtype(ApexDQNBuilder):
    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> Any:
        return super().make_networks(spec, seed)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"torso_fn": NormalizedOverBatch}, "when the others of its batch change"),
        ({"torso_fn": Noisy}, None),
        ({"builder_fn": WithoutDtype}, r"cannot act: TypeError: .*make_networks\(\) got"),
        ({"builder_fn": ApexDQNBuilder}, None),
    ],
)
def test_networks_of_users_act_once_before_a_run(own, message):
    experiment = make_experiment(load_config("apex_dqn_catch"), **own)
    spec = experiment.environment_spec()
    if message is None:
        return check_own_networks(experiment.builder, spec)
    with pytest.raises(ValueError, match=message) as caught:
        check_own_networks(experiment.builder, spec)
    assert "\n" not in str(caught.value)


def make_normalized_over_batch(spec: EnvironmentSpec, config: Any) -> snt.Module:
    return NormalizedOverBatch(spec, config)


def test_torsos_of_parts_act_once_before_a_run():
    config = load_config("apex_dqn_catch")
    config.environment = EnvironmentConfig("function", "mine")
    config.agent.torso, config.agent.frame_stack = "mlp", 0
    config.agent.part_torsos = {"a": f"{__name__}:make_normalized_over_batch"}
    vector = spaces.Box(-1, 1, (2,))
    space = spaces.Dict({"a": vector, "b": vector})

    def make() -> gymnasium.Env:
        environment = gymnasium.make("CartPole-v1")
        return gymnasium.wrappers.TransformObservation(
            environment, lambda x: {"a": x[:2], "b": x[2:]}, space
        )

    with pytest.raises(ValueError, match="when the others of its batch change"):
        check_experiment(make_experiment(config, environment_fn=make))


def make_embedding(spec: EnvironmentSpec, config: Any) -> snt.Module:
    layers = [lambda x: tf.cast(x, tf.int32), snt.Embed(5, 3), snt.Flatten(), snt.Linear(8)]
    return snt.Sequential(layers)


@pytest.mark.parametrize(
    ("settings", "torso_fn", "observations", "actions"),
    [
        (
            "apex_dpg_control_single_host",
            lambda spec, config: snt.Linear(8),
            specs.Array((3,), np.float32),
            specs.BoundedArray((1,), np.float32, -1, 1),
        ),
        (
            "apex_dqn_catch",
            make_embedding,
            specs.BoundedArray((7,), np.uint8, 0, 4),
            specs.DiscreteArray(2, np.int32),
        ),
    ],
    ids=["without bounds", "small numbers"],
)
def test_they_act_on_what_an_environment_may_show(settings, torso_fn, observations, actions):
    experiment = make_experiment(load_config(settings), torso_fn=torso_fn)
    check_own_networks(experiment.builder, EnvironmentSpec(observations, actions, None, None))


class WithMetric(DQNUpdate):
    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        computed = super().compute(batch, weights)
        return computed._replace(metrics={**computed.metrics, "beta": 0.5, "gamma": 3})


class WithCall(DQNUpdate):
    def __call__(self, transitions: Transition, weights: tf.Tensor) -> Any:
        raise NotImplementedError


class WithColumns(DQNUpdate):
    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        computed = super().compute(batch, weights)
        return computed._replace(priorities=computed.priorities[:, tf.newaxis])


class WithBatchSize(DQNUpdate):
    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        return super().compute(batch, weights * tf.random.uniform([weights.shape[0]]))


class WithTwoPriorities(DQNUpdate):
    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        computed = super().compute(batch, weights)
        return computed._replace(priorities=computed.priorities[:2])


class WithPythonIf(DQNUpdate):
    def compute(self, batch: Transition, weights: tf.Tensor) -> Computed:
        return super().compute(batch, weights * 2 if weights[0] > 1 else weights)


class WithVariables(DQNUpdate):
    def compute_loss(self, transitions: Transition) -> Any:
        (loss, td_error), values = super().compute_loss(transitions)
        return TDLoss(loss * tf.Variable(2.0), td_error), values


@pytest.mark.parametrize("num_updates", [1, 4])
@pytest.mark.parametrize(
    ("update_class", "message"),
    [
        (WithMetric, None),
        (WithBatchSize, None),
        (WithColumns, "ValueError: priorities has shape"),
        (WithTwoPriorities, "ValueError: priorities has shape"),
        (WithCall, "TypeError: WithCall has __call__; an update overrides compute"),
        (WithPythonIf, "OperatorNotAllowedInGraphError: "),
        (WithVariables, "ValueError: tf.function only supports"),
    ],
)
def test_updates_of_users_are_compiled_before_a_run(update_class, message, num_updates):
    class WithUpdate(ApexDQNBuilder):
        def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
            return update_class(*(self.make_networks(spec, seed) for _ in range(2)), self.config)

    config = load_config("apex_dqn_catch")
    config.agent.num_sgd_steps_per_step = num_updates
    experiment = make_experiment(config, builder_fn=WithUpdate)
    builder, spec = experiment.builder, experiment.environment_spec()
    if message is None:
        check_own_update(builder, spec)
        return
    with pytest.raises(
        ValueError, match=f"^The agent's update cannot be compiled: {message}"
    ) as caught:
        check_own_update(builder, spec)
    assert "\n" not in str(caught.value)
    is_named = f"({__file__}, line" in str(caught.value)
    # Only our own checks complain of the others.
    assert is_named is (update_class not in (WithCall, WithColumns, WithTwoPriorities))


class WithoutUpdate(ApexDQNBuilder):
    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        raise NotImplementedError


def test_the_check_before_a_run_compiles_the_update():
    experiment = make_experiment(load_config("apex_dqn_catch"), builder_fn=WithoutUpdate)
    with pytest.raises(ValueError, match="update cannot be compiled: NotImplementedError"):
        check_experiment(experiment)


class WithOwnLearner(ApexDQNBuilder):
    def make_update(self, spec: EnvironmentSpec, seed: int = 0) -> Update:
        raise NotImplementedError  # Its learner has none.

    def compile_update(self, spec: EnvironmentSpec) -> None:
        pass


class WithOwnDataset(ApexDQNBuilder):
    def make_dataset(self, client: reverb.Client, spec: EnvironmentSpec) -> tf.data.Dataset:
        assert TRANSITIONS in client.server_info()
        return super().make_dataset(client, spec)


def test_a_dataset_may_ask_the_server_before_a_run():
    experiment = make_experiment(load_config("apex_dqn_catch"), builder_fn=WithOwnDataset)
    check_own_update(experiment.builder, experiment.environment_spec())


def test_a_builder_answers_for_a_learner_of_its_own():
    check_experiment(make_experiment(load_config("apex_dqn_catch"), builder_fn=WithOwnLearner))


class CriticThatOnlyActs(snt.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = tf.Variable(1.0)

    def __call__(self, observations: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return self.scale * tf.reduce_sum(actions, axis=-1)


class WithCriticThatOnlyActs(ApexDPGBuilder):
    def make_networks(self, spec: EnvironmentSpec, seed: int = 0) -> DPGNetworks:
        return super().make_networks(spec, seed)._replace(critic=CriticThatOnlyActs())


def test_networks_of_users_with_which_the_learner_cannot_learn_are_refused():
    experiment = make_experiment(
        load_config("apex_dpg_control_single_host"), builder_fn=WithCriticThatOnlyActs
    )
    spec = experiment.environment_spec()
    check_own_networks(experiment.builder, spec)
    with pytest.raises(ValueError, match=r"compiled: AttributeError: .*return_distribution"):
        check_own_update(experiment.builder, spec)


def test_every_node_has_a_seed_of_its_own():
    def make_seeds(seed: int) -> list[int]:
        config = RunConfig(seed=seed)
        nodes = [config.node_seed(node) for node in ("learner", "policy", "evaluator")]
        return nodes + [config.node_seed("actor", index) for index in range(360)]

    seeds = make_seeds(0) + make_seeds(1)
    # A node that is restarted does not play the same episodes again.
    restarts = [RunConfig().node_seed("actor", 0, num_restarts) for num_restarts in range(4)]
    assert len({*seeds, *restarts[1:]}) == 2 * 363 + 3
    assert make_seeds(0) == seeds[:363]
    assert all(0 <= seed < 2**31 for seed in seeds)


class NoReplays:
    """Connections of an actor that ends before it needs one."""

    def connect(self, index: int) -> tuple[None]:
        return (None,)


def test_an_actor_of_a_resumed_run_does_not_play_the_same_episodes_again(monkeypatch):
    monkeypatch.setattr(program.lp, "stop_event", threading.Event)
    seeds: list[int] = []

    def make_environment(num_envs: int, seed: int, **settings: Any) -> None:
        seeds.append(seed)
        raise KeyError(seed)

    for learner_steps in (0, 5, 6):
        resumed_at = Progress(learner_steps, 0.0)
        experiment = Experiment(None, make_environment, RunConfig(), resumed_at=resumed_at)
        with pytest.raises(KeyError):
            program._act(experiment, NoReplays(), 0)
    assert len(set(seeds)) == 3


@pytest.mark.parametrize(
    ("agent", "num_actors", "message"),
    [
        (ApexDQNConfig(batch_size=64), 3, "a divisor of num_actors, 3"),
        (ApexDQNConfig(batch_size=65), 2, r"a divisor of agent.batch_size \(65\)"),
        (A2CConfig(), 2, "1: A2C and A3C have one queue"),
    ],
)
def test_replays_that_cannot_share_the_work_are_refused(agent, num_actors, message):
    run = RunConfig(num_actors=num_actors, num_replays=2)
    with pytest.raises(ValueError, match=f"run.num_replays is 2; it has to be {message}"):
        make_experiment(ExperimentConfig(agent, run=run))


def check_limit(limit: int | None, flow: DataFlow, refusal: str) -> None:
    """Check that a run with a limit is refused in these words; with none, that it is not."""
    run = RunConfig(max_actor_steps=limit)
    if not refusal:
        return check_limits(run, flow)
    with pytest.raises(ValueError, match=refusal):
        check_limits(run, flow)


@pytest.mark.parametrize(
    ("limit", "refusal"),
    [(None, ""), (100, ""), (99, r"max_actor_steps is 99, .* at 100 .*min_size")],
)
def test_a_limit_below_the_least_size_of_the_replay_is_refused(limit, refusal):
    flow = DataFlow(min_size=100, min_steps=100, min_size_field="agent.replay.min_size")
    check_limit(limit, flow, refusal)


@pytest.mark.parametrize(
    ("limit", "ratio", "refusal"),
    [
        (None, 0.001, ""),
        (64_000, 0.001, ""),
        (63_999, 0.001, r"is 63999, .* every 64,000 .*samples_per_insert"),
        (100, None, ""),
    ],
)
def test_a_limit_before_the_first_learner_step_is_refused(limit, ratio, refusal):
    replay = ReplayConfig(min_size=10, max_size=100, samples_per_insert=ratio)
    check_limit(limit, make_data_flow(ApexDQNConfig(batch_size=64, replay=replay)), refusal)


@pytest.mark.parametrize(
    ("names", "is_refused"), [(("x", "is_success"), False), (("x", "mean_return"), True)]
)
def test_numbers_of_info_do_not_replace_other_columns(names, is_refused):
    environment = EnvironmentConfig("gymnasium", "CartPole-v1", metrics=names)
    experiment = make_experiment(ExperimentConfig(ApexDQNConfig(torso="mlp"), environment))
    if not is_refused:
        return check_metrics(experiment)
    with pytest.raises(ValueError, match="names 'mean_return', which is another column"):
        check_metrics(experiment)


def test_a_line_is_printed_in_the_letters_that_the_output_has(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    launcher._print_line("Größe 1")
    assert output.buffer.getvalue() == b"Gr??e 1\n"
    output.close()
    launcher._print_line("Nobody sees it.")
