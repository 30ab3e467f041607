"""Every file in configs/ describes a run that can start; the paper's values are the paper's."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.config import ExperimentConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import make_vector_environment
from apex_agents.networks.torsos import DQN_CONVOLUTIONS
from apex_agents.presets import load_config, preset_names
from apex_agents.registry import make_builder
from apex_agents.replay.messages import ParameterSource
from apex_agents.replay.sequences import Sequences

NAMES = preset_names()


@pytest.mark.parametrize("name", NAMES)
def test_config_is_valid(name):
    config = load_config(name)
    assert isinstance(config, ExperimentConfig)
    config.validate()
    assert load_config(name) is not config


@pytest.mark.parametrize("name", NAMES)
def test_parts_fit_each_other(name, serve):
    config = load_config(name)
    environment = make_vector_environment(config.environment, num_envs=2, seed=0)
    timestep = environment.reset()
    builder = make_builder(config.agent)
    builder.check_environment(environment.spec)
    client = serve(*builder.make_replay_tables(environment.spec))
    learner = builder.make_learner(environment.spec, client)
    learner.publish()
    source = ParameterSource(client)
    num_envs = config.run.num_envs
    policy = builder.make_policy(environment.spec, [0, num_envs - 1], num_envs, seed=1)
    adders = builder.make_adders(
        client, environment.spec, range(2), 2, learner_steps_fn=lambda: source.learner_steps
    )
    actor = builder.make_actor(policy, adders, source)
    actor.observe_first(timestep)
    action = actor.select_action(timestep.observation)
    for i in range(2):
        environment.spec.actions.validate(action[i])

    # The actor has pulled the parameters that the learner published, which had another seed.
    for name, variables in policy.variables.items():
        (published,) = learner.get_variables([name])
        for variable, array in zip(variables, published, strict=True):
            rounded = tf.cast(array, variable.dtype)
            np.testing.assert_array_equal(variable.numpy(), rounded.numpy())
    if not isinstance(builder, ActorCriticBuilder):  # Gradients hold no observations.
        dataset = builder.make_dataset(client, environment.spec)
        data = dataset.element_spec.data
        observation = (data.steps if isinstance(data, Sequences) else data).observation
        sample_size = config.agent.batch_size * config.agent.num_sgd_steps_per_step
        shape = environment.spec.observations.shape
        assert observation.shape[0] in (None, sample_size)
        assert tuple(observation.shape[-len(shape) :]) == shape
        assert observation.dtype == tf.as_dtype(environment.spec.observations.dtype)
    environment.close()
    learner.close()


def test_atari_has_the_values_of_the_paper():
    config = load_config("apex_dqn_atari")
    agent, replay, atari = config.agent, config.agent.replay, config.environment.atari
    # Horgan et al. 2018, section 4.1.
    assert config.run.num_actors == 360
    assert config.run.num_envs_per_actor == 1
    assert agent.batch_size == 512
    assert replay.max_size == 2_000_000
    assert replay.priority_exponent == 0.6
    assert replay.importance_sampling_exponent == 0.4
    assert replay.eviction_policy == "fifo"
    assert replay.prefetch_batches == 16
    assert replay.replicas == 1
    assert replay.samples_per_insert is None
    assert agent.exploration.epsilon == 0.4
    assert agent.exploration.alpha == 7
    assert agent.exploration.num_distinct_epsilons is None
    assert agent.variable_update_period * atari.action_repeat == 400  # Frames.
    # Appendix C.
    assert agent.torso == "atari"
    assert agent.n_step == 3
    assert agent.learning_rate == 0.0000625  # 0.00025 / 4
    assert agent.rmsprop_decay == 0.95
    assert agent.rmsprop_epsilon == 0.00000015
    assert agent.max_gradient_norm == 40
    assert agent.target_update_period == 2500
    assert replay.min_size == 50_000
    assert atari.action_repeat == 4
    assert atari.clip_rewards is True
    assert atari.max_frames == 50_000
    # Appendix B and table 2.
    assert agent.exploration.evaluation_epsilon == 0.00164
    assert atari.evaluation_max_frames == 108_000
    # Mnih et al. 2015 and Wang et al. 2016, as the paper has no other values.
    assert agent.discount == 0.99
    assert agent.frame_stack == atari.frame_stack == 4
    assert atari.frame_size == 84
    assert atari.max_noops == 30
    assert atari.sticky_action_probability == 0
    assert agent.stream_hidden_size == 512
    # Nothing ends the run.
    assert config.environment.suite == "atari"
    assert config.run.max_learner_steps is None
    assert config.run.max_actor_steps is None
    assert config.run.target_return is None


def test_control_has_the_values_of_the_paper():
    config = load_config("apex_dpg_control")
    agent, replay = config.agent, config.agent.replay
    # Horgan et al. 2018, sections 4.1 and 4.2.
    assert config.run.num_actors == 64
    assert config.run.num_envs_per_actor == 1
    assert agent.batch_size == 256
    assert replay.samples_per_insert is None
    assert replay.importance_sampling_exponent == 0.4
    # Appendix D.
    assert agent.critic_hidden_sizes == (400, 300)
    assert agent.policy_hidden_sizes == (300, 200)
    assert agent.learning_rate == 0.0001
    assert agent.max_action_gradient == 1
    assert agent.target_update_period == 100
    assert agent.exploration.noise_scale == 0.3
    assert replay.max_size == 1_000_000
    assert replay.priority_exponent == 0.6
    assert replay.eviction_policy == "prioritized"
    assert replay.eviction_exponent == -0.4
    # "Hyperparameters are otherwise as per DQN."
    dqn = load_config("apex_dqn_atari").agent
    for field in ("n_step", "discount", "max_gradient_norm", "variable_update_period"):
        assert getattr(agent, field) == getattr(dqn, field), field
    for field in ("min_size", "prefetch_batches", "replicas"):
        assert getattr(replay, field) == getattr(dqn.replay, field), field
    assert (config.environment.suite, config.environment.task) == ("control", "humanoid:stand")
    assert config.run.max_learner_steps is None
    assert config.run.max_actor_steps is None
    assert config.run.target_return is None


@pytest.mark.parametrize(
    "task", ["humanoid:stand", "humanoid:walk", "humanoid:run", "manipulator:bring_ball"]
)
def test_control_takes_the_four_tasks_of_the_paper(task):
    config = load_config("apex_dpg_control")
    config.environment.task = task
    config.validate()
    environment = make_vector_environment(config.environment, num_envs=1, seed=0)
    ApexDPGBuilder(config.agent).check_environment(environment.spec)
    environment.close()


def test_single_host_differs_from_the_paper_in_scale_only():
    paper, small = load_config("apex_dqn_atari"), load_config("apex_dqn_atari_single_host_paper")
    # Its evaluator shares the machine, and an untrained player may never end a game.
    assert small.environment.atari.evaluation_max_frames == 18_000
    small.environment.atari.evaluation_max_frames = paper.environment.atari.evaluation_max_frames
    assert small.environment == paper.environment
    fields = ("torso", "head", "optimizer", "frame_stack", "n_step", "discount", "exploration")
    for field in (*fields, "rmsprop_decay"):
        assert getattr(small.agent, field) == getattr(paper.agent, field), field
    for field in ("priority_exponent", "importance_sampling_exponent", "replicas"):
        assert getattr(small.agent.replay, field) == getattr(paper.agent.replay, field), field
    assert small.run.num_envs == 16


def test_single_host_settings_change_only_what_they_say():
    paper, better = (
        load_config("apex_dqn_atari_single_host_paper"),
        load_config("apex_dqn_atari_single_host"),
    )
    changes = {
        *("agent.head", "agent.optimizer", "agent.learning_rate", "agent.torso"),
        *("agent.conv_channels", "agent.conv_kernel_sizes", "agent.conv_strides"),
        *("agent.mlp_hidden_sizes", "agent.stream_hidden_size"),
        *("agent.learning_rate_steps", "agent.target_update_period"),
        "environment.atari.life_loss_ends_episode",
    }
    before = dict(leaves(paper))
    assert {name for name, value in leaves(better) if value != before[name]} == changes


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names of all fields of a config, and their values."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def test_single_host_network_is_that_of_dqn_at_half_its_width():
    agent = load_config("apex_dqn_atari_single_host").agent
    channels = [2 * number for number in agent.conv_channels]
    layers = zip(channels, agent.conv_kernel_sizes, agent.conv_strides, strict=True)
    assert tuple(layers) == DQN_CONVOLUTIONS
    assert 2 * agent.stream_hidden_size == ApexDQNConfig().stream_hidden_size


def test_cartpole_ends_at_the_return_that_counts_as_solved():
    config = load_config("apex_dqn_cartpole")
    assert config.environment.task == "CartPole-v1"
    assert config.run.target_return == 475  # gymnasium's reward threshold.
    assert config.agent.exploration.evaluation_epsilon == 0
