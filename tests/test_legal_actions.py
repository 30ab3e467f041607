"""Tests of agents in environments where some actions are not legal."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sonnet as snt
import tensorflow as tf
from gymnasium import spaces, vector
from gymnasium.vector.utils import batch_space
from tiny_runs import make_run

from apex_agents.acting.actor import ApexActor, run_in_lock_step
from apex_agents.acting.policy import EpsilonGreedy
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.actor_critic.learning import ActorCriticUpdate, Rollout
from apex_agents.actor_critic.networks import make_network as make_actor_critic
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.dqn.policy import EpsilonGreedyPolicy
from apex_agents.environments import (
    EnvironmentConfig,
    EnvironmentSpec,
    MaskedObservationSpec,
    make_vector_environment,
    restart_batch,
)
from apex_agents.environments.actions import DiscreteActions
from apex_agents.environments.conversion import convert_observations
from apex_agents.export import (
    ExportError,
    check_difference,
    describe,
    export_onnx,
    export_saved_model,
    record_observations,
)
from apex_agents.legal_actions import ILLEGAL, drop_masks, mask_values, mean_of_legal
from apex_agents.loading import load
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.transitions import Transition
from tests.r2d2.sequences import make_config as make_r2d2_config

NUM_ACTIONS = 4
REPLAY = ReplayConfig(max_size=100, min_size=1)


def make_spec(space: spaces.Space | None = None) -> EnvironmentSpec:
    """Make the spec of an environment with masks in `info`."""
    space = space or spaces.Box(-1.0, 1.0, (2,), np.float32)
    actions = DiscreteActions(spaces.Discrete(NUM_ACTIONS))
    unmasked, _ = convert_observations(space)
    return EnvironmentSpec(
        MaskedObservationSpec(unmasked, actions, "action_mask", True, space), actions
    )


SPEC = make_spec()


def observe(*masks: list[int]) -> np.ndarray:
    """Return an observation with each of the masks, `[B, 2 + A]`."""
    return np.array([[0.5, -0.5, *mask] for mask in masks], np.float32)


def make_dqn(**settings: Any) -> ApexDQNBuilder:
    settings = {"torso": "mlp", "mlp_hidden_sizes": (8,), "stream_hidden_size": 8, **settings}
    return ApexDQNBuilder(ApexDQNConfig(frame_stack=0, batch_size=2, replay=REPLAY, **settings))


def test_values_of_illegal_actions_are_replaced():
    values = tf.constant([[1.0, 2.0, 3.0, 4.0]] * 3)
    observations = observe([1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0])
    masked = mask_values(values, observations, SPEC)
    expected = [[1, ILLEGAL, ILLEGAL, 4], [ILLEGAL, ILLEGAL, 3, ILLEGAL], [1, 2, 3, 4]]
    np.testing.assert_array_equal(masked, np.float32(expected))
    quantiles = tf.stack([values, values + 10], axis=2)
    masked = mask_values(quantiles, observations, SPEC)
    expected = [[1, 11], [ILLEGAL] * 2, [ILLEGAL] * 2, [4, 14]]
    np.testing.assert_array_equal(masked[0], np.float32(expected))
    assert float(mean_of_legal(masked)) == pytest.approx((1 + 11 + 4 + 14 + 3 + 13 + 60) / 14)
    np.testing.assert_array_equal(drop_masks(observations, SPEC), [[0.5, -0.5]] * 3)


class TableOfValues(snt.Module):
    """Action values that do not depend on the observation."""

    def __init__(self, values: list[float]):
        super().__init__()
        self.values = tf.Variable(values)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        rows = tf.tile(self.values[tf.newaxis], [tf.shape(observation)[0], 1])
        return mask_values(rows, observation, SPEC)

    return_distribution = __call__


def test_double_q_learning_selects_and_bootstraps_among_the_legal_actions():
    builder = make_dqn()
    update = builder.make_update(SPEC)
    # Online the greatest value is that of 3, then of 1; the target's greatest one is that of 0.
    update.network = TableOfValues([0.0, 5.0, 2.0, 9.0])
    update.target_network = TableOfValues([7.0, 3.0, 1.0, 4.0])
    transitions = Transition(
        observation=tf.constant(observe([1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0])),
        action=tf.constant([0, 2, 2]),
        n_step_return=tf.constant([1.0, 1.0, 1.0]),
        n_step_discount=tf.constant([0.5, 0.5, 0.0]),
        next_observation=tf.constant(observe([1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0])),
        learner_steps=tf.zeros([3]),
    )
    loss, _ = update.compute_loss(transitions)
    # 1 + 0.5 * 3 - 0; online 2 is greater than 0, so 1 + 0.5 * 1 - 2; 1 - 2 at the end.
    np.testing.assert_allclose(loss.td_error, [2.5, -0.5, -1.0])


@pytest.mark.parametrize("head", ["dueling", "quantile"])
def test_illegal_actions_leave_values_of_the_usual_size(head):
    builder = make_dqn(head=head)
    update = builder.make_update(SPEC)
    observations = tf.constant(observe([1, 0, 0, 1], [0, 1, 0, 0]))
    transitions = Transition(
        observation=observations,
        action=tf.constant([3, 1]),
        n_step_return=tf.ones([2]),
        n_step_discount=tf.constant([0.9, 0.0]),
        next_observation=tf.constant(observe([0, 0, 1, 0], [0, 0, 0, 0])),
        learner_steps=tf.zeros([2]),
    )
    computed = update.compute(transitions, tf.ones([2]))
    assert np.all(np.abs(computed.priorities) < 100)
    assert abs(float(computed.metrics["q_value"])) < 100
    norm = tf.linalg.global_norm(computed.gradients)
    assert 0 < float(norm) < 1e4
    greedy = builder.make_greedy_policy(SPEC)
    best = np.argmax(greedy.evaluate(observations)[0], axis=1)
    assert best[0] in (0, 3) and best[1] == 1


def test_drawn_actions_are_legal_and_equally_likely():
    num_actions, num_envs = 20, 50_000
    policy = EpsilonGreedy(TableOfValues([0.0] * NUM_ACTIONS), np.ones(num_envs), seed=0)
    values = np.full([num_envs, num_actions], ILLEGAL, np.float32)
    values[:, 3], values[:, 17] = 1.0, -50.0
    for _ in range(2):
        actions, q_taken = policy._choose(values)
        counts = np.bincount(actions, minlength=num_actions)
        assert counts[3] + counts[17] == num_envs
        # The standard deviation of the count is 112.
        assert abs(counts[3] - num_envs / 2) < 560
        assert set(q_taken) == {1.0, -50.0}


@pytest.mark.parametrize("num_quantiles", [32, 80, 1000])
def test_a_mean_of_quantiles_is_as_illegal_as_they_are(num_quantiles):
    builder = make_dqn(head="quantile", num_quantiles=num_quantiles)
    policy = EpsilonGreedyPolicy(builder.make_networks(SPEC), np.ones(200), 0)
    step = policy(restart_batch(observe(*200 * [[0, 1, 0, 1]])))
    assert set(step.action.tolist()) == {1, 3}
    assert np.all(np.abs(step.q_taken) < 100)
    mean = np.full(2, np.mean(np.full(num_quantiles, ILLEGAL), dtype=np.float32))
    for_onnx = [(np.stack([mean, [1.0, 2.1]]), np.stack([[ILLEGAL] * 2, [1.0, 2.0]]))]
    with pytest.raises(ExportError, match=r"by up to 1.0e-01"):
        check_difference("q_values", for_onnx, 1e-4, 1e-6)


def make_policies() -> dict[str, Any]:
    """Make policies of two environments, which explore as much as they can."""
    dqn, r2d2 = make_dqn(), R2D2Builder(make_r2d2_config())
    actor_critic = make_actor_critic(A2CConfig(torso="mlp", frame_stack=0), SPEC)
    ones = np.ones(2)
    return {
        "dqn": EpsilonGreedyPolicy(dqn.make_networks(SPEC), ones, 0),
        "greedy dqn": EpsilonGreedyPolicy(dqn.make_networks(SPEC), 0 * ones, 0),
        "r2d2": r2d2.make_policy(SPEC, [0, 1], 2, 0),
        "a2c": SoftmaxPolicy(actor_critic, 0),
        "greedy a2c": SoftmaxPolicy(actor_critic, 0, is_greedy=True),
    }


@pytest.mark.parametrize("name", ["dqn", "greedy dqn", "r2d2", "a2c", "greedy a2c"])
def test_no_policy_takes_an_illegal_action(name):
    policy, random = make_policies()[name], np.random.default_rng(0)
    for _ in range(500):
        masks = np.eye(NUM_ACTIONS)[random.integers(NUM_ACTIONS, size=2)]
        masks[:, random.integers(NUM_ACTIONS)] = 1
        output = policy(restart_batch(observe(*masks.astype(int).tolist())))
        assert masks[[0, 1], output.action].all()
        assert np.all(np.abs(output.value) < 100) and np.all(np.abs(output.q_taken) < 100)


class Mostly(vector.VectorEnv):
    """Of 20 actions two are legal in a state, drawn anew; an illegal one is an error."""

    def __init__(self, num_envs: int):
        self.num_envs, self._random = num_envs, np.random.default_rng(0)
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Discrete(20)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(self, *, seed=None, options=None):
        return self._observe()

    def step(self, actions):
        assert self._masks[np.arange(self.num_envs), actions].all()
        observation, info = self._observe()
        never = np.zeros(self.num_envs, bool)
        return observation, np.ones(self.num_envs), never, never, info

    def _observe(self):
        ranks = self._random.random([self.num_envs, 20]).argsort(axis=1)
        self._masks = (ranks < 2).astype(np.int8)
        observation = self._random.uniform(-1, 1, [self.num_envs, 2]).astype(np.float32)
        return observation, {"action_mask": self._masks}


@pytest.mark.parametrize("name", ["dqn", "r2d2", "a2c"])
def test_of_100_000_actions_not_one_is_illegal(name):
    num_envs = 500
    config = EnvironmentConfig("function", "mostly")
    environment = make_vector_environment(config, num_envs, 0, environment_fn=Mostly)
    spec = environment.spec
    if name == "a2c":
        network = make_actor_critic(A2CConfig(torso="mlp", frame_stack=0), spec)
        policy: Any = SoftmaxPolicy(network, 0)
    else:
        builder = make_dqn() if name == "dqn" else R2D2Builder(make_r2d2_config())
        policy = builder.make_policy(spec, range(num_envs), num_envs, 0)
    actor = ApexActor(policy)
    for _ in itertools.islice(run_in_lock_step(environment, actor), 100_000 // num_envs):
        pass


def test_entropy_and_probabilities_are_over_the_legal_actions():
    config = A2CConfig(torso="mlp", frame_stack=0, hidden_size=0)
    network = make_actor_critic(config, SPEC)
    policy_layer = network._policy
    policy_layer.w.assign(tf.zeros_like(policy_layer.w))
    policy_layer.b.assign([0.0, 0.0, 50.0, 0.0])  # Illegal, whatever its logit.
    rows = observe([1, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0])
    rollout = Rollout(
        observation=tf.constant(rows[:, np.newaxis]),
        action=tf.constant([[1], [3]]),
        reward=tf.constant([[1.0], [1.0]]),
        discount=tf.constant([[0.9], [0.0]]),
        is_step=tf.constant([[True], [True]]),
    )
    computed = ActorCriticUpdate(network, config).compute(rollout)
    assert float(computed.metrics["entropy"]) == pytest.approx((np.log(2) + np.log(3)) / 2)
    pairs = zip(network.trainable_variables, computed.gradients, strict=True)
    (of_logits,) = [gradient for v, gradient in pairs if v.name.endswith("policy/b:0")]
    assert np.isfinite(of_logits).all() and of_logits[2] == 0


def test_sequences_learn_among_the_legal_actions():
    builder = R2D2Builder(make_r2d2_config(measure_staleness=True))
    layout = builder.make_layout(SPEC)
    random = np.random.default_rng(0)
    length, columns = layout.padded_shapes["steps"]
    steps = random.normal(size=[2, length, columns]).astype(np.float32)
    masks = np.eye(NUM_ACTIONS)[random.integers(NUM_ACTIONS, size=[2, length])]
    steps[..., 2 : 2 + NUM_ACTIONS] = masks
    steps[:, 1:, 2 + NUM_ACTIONS] = masks.argmax(axis=-1)[:, :-1]
    steps[..., -2] = 1.0
    head_size = layout.padded_shapes["head"][0]
    heads = np.zeros([2, head_size], np.float32)
    heads[:, :3] = [[length, 4, 8], [length - 3, 4, 5]]
    steps[1, length - 3 :] = 0.0  # Padding, without any legal action.
    batch = layout.unpack({"head": tf.constant(heads), "steps": tf.constant(steps)})
    update = builder.make_update(SPEC)
    computed = update.compute(batch, tf.ones([2]))
    assert np.all(computed.priorities < 100)
    for name, value in computed.metrics.items():
        assert abs(float(value)) < 100, name
    assert float(computed.metrics["delta_q_last"]) > 1e-4
    # With one legal action in each state, the value to bootstrap from is that of this action.
    values, _ = update.network.unroll(batch.steps, update._burn_in(batch)[0])
    legal = np.asarray(batch.steps.observation)[..., -NUM_ACTIONS:] > 0
    is_real = np.asarray(batch.is_real)
    assert np.array_equal(np.asarray(values)[is_real] > ILLEGAL, legal[is_real])


def test_images_with_masks_pass_convolutions():
    spec = make_spec(spaces.Box(0, 255, (20, 20, 1), np.uint8))
    builder = make_dqn(torso="auto")
    builder.check_environment(spec)
    network = builder.make_networks(spec)
    observations = np.zeros([2, 400 + NUM_ACTIONS], np.uint8)
    observations[0, 401] = observations[1, 403] = 1
    assert np.argmax(network(observations), axis=1).tolist() == [1, 3]
    assert any("conv_1" in variable.name for variable in network.variables)


def test_observations_with_masks_may_be_normalized():
    builder = make_dqn(normalize_observations=True)
    network = builder.make_networks(SPEC)
    values = network(tf.constant(observe([0, 1, 0, 0])))
    assert np.argmax(values) == 1 and np.isfinite(values).all()


def test_an_own_torso_sees_no_mask():
    seen = []

    def make_torso(spec: EnvironmentSpec, config: Any) -> snt.Module:
        seen.append(spec.observations.shape)
        return snt.Sequential([snt.Linear(3), tf.nn.relu])

    config = ApexDQNConfig(frame_stack=0, stream_hidden_size=8)
    ApexDQNBuilder(config, make_torso).make_networks(SPEC)
    assert seen == [(2,)]


MASKED = "tests.environments.test_masks:Masked"
SMALL = {"torso": "mlp", "mlp_hidden_sizes": (8,), "frame_stack": 0}
AGENTS = {
    "dqn": ApexDQNConfig(stream_hidden_size=8, **SMALL),
    "r2d2": make_r2d2_config(),
    "a2c": A2CConfig(hidden_size=8, **SMALL),
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_policy_acts_by_the_mask_that_it_is_given(name, tmp_path):
    make_run(tmp_path, AGENTS[name], EnvironmentConfig("function", MASKED))
    policy = load(tmp_path)
    observation, rewards = np.float32([0.5, 0.5]), (0.0,) if name == "r2d2" else ()
    for legal in range(3):
        mask = np.eye(3, dtype=np.int8)[legal]
        assert policy.act(observation, *rewards, action_mask=mask) == legal + 5
    batch = np.stack([observation] * 3)
    policy.reset()
    actions = policy.act(batch, *rewards, action_mask=np.eye(3))
    assert actions.tolist() == [5, 6, 7]
    output = policy.greedy.output_name
    values = policy.output(output, batch, *rewards, action_mask=np.eye(3))
    assert np.array_equal(values == ILLEGAL, np.eye(3) == 0)
    for mask, words in (
        (None, "action_mask is None; it has to be what info has as 'action_mask'"),
        ([1, 0], "each of the 3 actions"),
        ([0, 0, 0], "it has to be 1 for an action"),
    ):
        with pytest.raises(ValueError, match=words):
            policy.act(observation, *rewards, action_mask=mask)
    for masks, number in ((np.eye(3)[:2], 2), (1, 0)):
        with pytest.raises(ValueError, match=f"is {number}; .* one for each of the 3 observations"):
            policy.act(batch, *rewards, action_mask=masks)
    environment = policy.make_environment(num_envs=2, seed=0)
    timestep = environment.reset()
    for _ in range(20):  # Its environments take legal actions only, and end otherwise.
        timestep = environment.step(policy.act_at(timestep))
    assert environment.num_failures == 0
    environment.close()


def test_a_policy_without_masks_takes_none(tmp_path):
    environment = EnvironmentConfig("function", MASKED, action_mask=None)
    make_run(tmp_path, AGENTS["dqn"], environment)
    policy = load(tmp_path)
    with pytest.raises(ValueError, match=r"action_mask is .* it has to be left out"):
        policy.act(np.zeros(2, np.float32), action_mask=[1, 0, 1])


@pytest.mark.parametrize("name", AGENTS)
def test_the_mask_is_an_input_of_exports(name, tmp_path):
    make_run(tmp_path / "run", AGENTS[name], EnvironmentConfig("function", MASKED))
    policy = load(tmp_path / "run")
    observations = record_observations(policy, num_steps=50)
    assert export_saved_model(policy, tmp_path / "saved_model", observations) == 0
    assert export_onnx(policy, tmp_path / "policy.onnx", observations) < 1e-5
    described = describe(policy)
    assert described["observation"] == {"shape": [2], "dtype": "float32"}
    assert described["action_mask"] == {"shape": [3], "dtype": "int8"}
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    rest, masks = policy.spec.observations.split(observations)
    memory = {
        part: np.repeat(np.array([x["initial"]], x["dtype"]), len(rest), axis=0)
        for part, x in described["memory"].items()
    }
    inputs = {"observation": rest, "action_mask": masks, **memory}
    (actions,) = session.run(["action"], inputs)
    has_legal = masks.any(axis=1)
    assert has_legal.any() and masks[has_legal, actions[has_legal] - 5].all()


def test_a_difference_counts_whatever_stands_for_illegal_actions():
    expected = np.array([[1.0, ILLEGAL], [ILLEGAL, 2.0]], np.float32)
    assert check_difference("q_values", [(expected, expected)], 1e-4, 1e-6) == 0
    with pytest.raises(ExportError, match=r"by up to 1.0e-01"):
        found = np.where(expected == 2.0, np.float32(2.1), expected)
        check_difference("q_values", [(found, expected)], 1e-4, 1e-6)
    with pytest.raises(ExportError):
        check_difference("q_values", [(np.zeros_like(expected), expected)], 1e-4, 1e-6)


def test_a_run_from_before_there_were_masks_is_read_without(tmp_path):
    environment = EnvironmentConfig("function", MASKED, action_mask=None)
    make_run(tmp_path, AGENTS["dqn"], environment)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["environment"]["action_mask"]
    path.write_text(json.dumps(values))
    assert load(tmp_path).act(np.zeros(2, np.float32)) in (5, 6, 7)
