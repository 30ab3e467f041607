"""Tests of the whole agent in one process, with a real server."""

from __future__ import annotations

import collections
import dataclasses
import functools

import dm_env
import numpy as np
import pytest
import reverb
import sonnet as snt
import tensorflow as tf
from dm_env import specs
from small_actor_critic import SPEC, T, make_config, make_network

from apex_agents.actor_critic.acting_learner import ActingLearner
from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.actor_critic.learning import ActorCriticUpdate, Rollout
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, restart_batch
from apex_agents.experiment import Experiment, make_experiment
from apex_agents.local import run_local
from apex_agents.networks import RunningNormalization
from apex_agents.replay.messages import ParameterSource

NUM_UPDATES = 100
NUM_ENVS = 4


def make_cartpole(is_synchronous: bool) -> Experiment:
    agent = make_config(is_synchronous)
    run = RunConfig(
        num_actors=1, num_envs_per_actor=NUM_ENVS, max_learner_steps=NUM_UPDATES, seed=3
    )
    environment = EnvironmentConfig(suite="gymnasium", task="CartPole-v1")
    return make_experiment(ExperimentConfig(agent=agent, environment=environment, run=run))


def learn_in_one_process(experiment: Experiment) -> list[np.ndarray]:
    """Do what one worker and the learner do, without server, queue and copies of parameters."""
    builder, run = experiment.builder, experiment.run
    environment = experiment.make_vector_environment(
        NUM_ENVS, run.node_seed("actor"), evaluation=False
    )
    network = builder.make_networks(environment.spec, run.node_seed("learner"))
    policy = SoftmaxPolicy(network, run.node_seed("policy"))
    update = ActorCriticUpdate(network, builder.config)
    steps, actions = [environment.reset()], []
    for _ in range(NUM_UPDATES):
        for _ in range(T):
            actions.append(policy(steps[-1]).action)
            steps.append(environment.step(actions[-1]))
        rollout = Rollout(
            observation=np.stack([step.observation for step in steps]),
            action=np.stack(actions),
            reward=np.stack([step.reward for step in steps[1:]]),
            discount=np.stack([0.99 * step.discount for step in steps[1:]]).astype(np.float32),
            is_step=np.stack([step.step_type != dm_env.StepType.FIRST for step in steps[1:]]),
        )
        tensors = Rollout(*map(tf.convert_to_tensor, rollout))
        update.apply(update.compute(tensors).gradients)
        steps, actions = steps[-1:], []
    environment.close()
    return [variable.numpy() for variable in network.variables]


class Sending(ActorCriticBuilder):
    """Its worker sends gradients to the learner, as several workers do."""

    def make_actor(self, *args, **options):
        return super().make_actor(*args, **options)


@pytest.mark.parametrize("is_synchronous", [True, False], ids=["A2C", "A3C"])
@pytest.mark.parametrize("builder_class", [ActorCriticBuilder, Sending])
def test_one_worker_equals_updates_in_one_process(is_synchronous, builder_class):
    experiment = make_cartpole(is_synchronous)
    experiment = dataclasses.replace(experiment, builder=builder_class(experiment.config.agent))
    learner = run_local(experiment)
    assert isinstance(learner, ActingLearner) == (builder_class is ActorCriticBuilder)
    assert learner.num_steps == NUM_UPDATES
    expected = learn_in_one_process(experiment)
    for variable, array in zip(learner.get_all_variables()["network"], expected, strict=True):
        np.testing.assert_allclose(variable, array, atol=1e-5)


@pytest.mark.parametrize("base", [ActorCriticBuilder, Sending])
def test_a_loss_of_ones_own_is_the_loss_of_each_rollout(base):
    class Zero(ActorCriticUpdate):
        def compute(self, batch, weights=None):
            computed = super().compute(batch, weights)
            return computed._replace(gradients=[0.0 * part for part in computed.gradients])

    class Builder(base):
        def make_network_update(self, network):
            return Zero(network, self.config)

    experiment = make_cartpole(is_synchronous=True)
    experiment.run.max_learner_steps = 5
    experiment = dataclasses.replace(experiment, builder=Builder(experiment.config.agent))
    learner = run_local(experiment)
    initial = experiment.builder.make_networks(
        experiment.environment_spec(), experiment.run.node_seed("learner")
    )
    for array, variable in zip(
        learner.get_variables(["network"])[0], initial.variables, strict=True
    ):
        np.testing.assert_array_equal(array, variable)
    assert learner.num_steps == 5


def test_a_run_in_one_process_needs_a_rollout_of_all_environments():
    experiment = make_cartpole(is_synchronous=True)
    run = experiment.run
    run.num_actors, run.max_learner_steps = 2, None
    # Between a rollout of one actor and of both, and as long as the latter.
    run.max_actor_steps = 2 * NUM_ENVS * T - 1
    with pytest.raises(ValueError, match=f"max_actor_steps is {run.max_actor_steps}"):
        run_local(experiment)
    run.max_actor_steps += 1
    assert run_local(experiment).num_steps == 1


def test_the_learner_starts_at_one_rollout():
    flow = ActorCriticBuilder(make_config()).data_flow(8)
    assert (flow.min_size, flow.min_steps, flow.items_per_step) == (1, T * 8, 1)


@pytest.mark.parametrize(("greedy_evaluation", "num_actions"), [(True, 1), (False, 2)])
def test_evaluations_are_greedy_where_the_config_says_so(greedy_evaluation, num_actions):
    builder = ActorCriticBuilder(make_config(greedy_evaluation=greedy_evaluation))
    spec = SPEC._replace(actions=specs.DiscreteArray(2, np.int32))
    policy = builder.make_evaluation_policy(spec, 200, seed=0)
    observations = np.zeros([200, *SPEC.observations.shape], np.float32)
    actions = policy(restart_batch(observations)).action
    assert len(set(actions)) == num_actions


def test_a_policy_begins_close_to_uniform():
    observations = np.random.default_rng(0).uniform(-1, 1, [100, *SPEC.observations.shape])
    for seed in range(5):
        network = ActorCriticBuilder(make_config()).make_networks(SPEC, seed)
        assert np.ptp(network(observations.astype(np.float32)).logits) < 0.05


def test_a_server_that_has_moved_gets_the_parameters_at_once(serve):
    builder = ActorCriticBuilder(make_config())
    servers = [serve(*builder.make_replay_tables(SPEC)) for _ in range(2)]
    clients = collections.UserList(servers[:1])
    learner = builder.make_learner(SPEC, clients)
    learner.publish()
    clients[0] = servers[1]
    (published,) = ParameterSource(servers[1]).get_variables(["network"])  # Workers wait for them.
    for array, expected in zip(published, learner.get_variables(["network"])[0], strict=True):
        np.testing.assert_array_equal(array, expected)
    learner.close()


def test_an_actor_without_adders_only_acts():
    builder = ActorCriticBuilder(make_config())
    policy = builder.make_evaluation_policy(SPEC, 1, seed=0)
    actor = builder.make_actor(policy)
    observation = np.zeros([1, *SPEC.observations.shape], np.float32)
    actor.observe_first(restart_batch(observation))
    assert actor.select_action(observation).shape == (1,)


def test_other_agents_settings_are_refused():
    with pytest.raises(ValueError, match="agent is 'ApexDQNConfig'; it has to be an A2CConfig"):
        ActorCriticBuilder(ApexDQNConfig())  # type: ignore[arg-type]


def make_normalizing_torso(spec, config):
    return snt.Sequential([RunningNormalization(spec.observations.shape), snt.Linear(8)])


@pytest.mark.parametrize(
    ("settings", "torso_fn", "actions", "message"),
    [
        ({}, None, specs.BoundedArray((2,), np.float32, -1, 1), r"discrete actions.*apex-dpg"),
        ({"torso": "atari"}, None, SPEC.actions, r"set agent\.torso='auto', agent\.frame_stack=0"),
        # The learner would have to see observations.
        ({}, make_normalizing_torso, SPEC.actions, "A2C and A3C cannot normalize observations"),
    ],
)
def test_environments_and_networks_that_do_not_fit_are_refused(
    settings, torso_fn, actions, message
):
    builder = ActorCriticBuilder(make_config(**settings), torso_fn)
    with pytest.raises(ValueError, match=message):
        builder.check_environment(SPEC._replace(actions=actions))


class Centering(snt.Module):
    """A torso that subtracts the running mean of its inputs, or a constant."""

    def __init__(self):
        super().__init__()
        self.mean = tf.Variable(0.0, trainable=False, name="mean")
        self.frozen = tf.Variable(1.0, trainable=False, name="frozen")
        self.is_learning = True

    def __call__(self, observations: tf.Tensor) -> tf.Tensor:
        if self.is_learning:
            self.mean.assign_add(0.1 * (tf.reduce_mean(observations) - self.mean))
        return (observations - self.mean) * self.frozen


def test_a_torso_that_changes_its_variables_is_refused():
    def make_torso(spec, config, is_learning: bool) -> snt.Module:
        torso = Centering()
        torso.is_learning = is_learning
        return torso

    for is_learning in (False, True):
        torso_fn = functools.partial(make_torso, is_learning=is_learning)
        builder = ActorCriticBuilder(make_config(), torso_fn)
        if is_learning:
            with pytest.raises(ValueError, match=r"torso changes its variables \[.*mean:0'\]"):
                builder.check_environment(SPEC)
        else:  # Parameters that are not trained are no state.
            builder.check_environment(SPEC)


def test_networks_of_a_seed_are_equal():
    builder = ActorCriticBuilder(make_config())
    first, second, other = (
        [variable.numpy().tolist() for variable in builder.make_networks(SPEC, seed).variables]
        for seed in (1, 1, 2)
    )
    assert first == second != other
    assert len({v.name for v in make_network().variables}) == len(make_network().variables)


def test_a_worker_without_parameters_to_follow_is_refused(serve):
    builder = ActorCriticBuilder(make_config())
    policy = builder.make_policy(SPEC, range(1), 1, seed=0)
    client = serve(*builder.make_replay_tables(SPEC))
    adders = builder.make_adders(client, SPEC, learner_steps_fn=lambda: 0)
    with pytest.raises(ValueError, match="variable_source"):
        builder.make_actor(policy, adders)


def test_workers_of_a2c_need_the_learner_steps():
    with pytest.raises(ValueError, match="A2C's make_adders needs learner_steps_fn"):
        ActorCriticBuilder(make_config()).make_adders(reverb.Client("localhost:1"), SPEC)
    (sender,) = ActorCriticBuilder(make_config(is_synchronous=False)).make_adders(
        reverb.Client("localhost:1"), SPEC
    )
    assert sender.version == 0
