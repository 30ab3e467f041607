"""Tests of policy and critic: sizes, activations, where the action enters."""

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from dm_env import specs

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dpg.networks import (
    CriticNetwork,
    PolicyNetwork,
    make_distribution,
    make_networks,
)
from apex_agents.environments import EnvironmentSpec
from apex_agents.networks.torsos import VectorTorso


def make_spec(observation_shape: tuple[int, ...], action_size: int) -> EnvironmentSpec:
    return EnvironmentSpec(
        observations=specs.Array(observation_shape, np.float32),
        actions=specs.BoundedArray((action_size,), np.float32, -1.0, 1.0),
        rewards=None,
        discounts=None,
    )


def test_sizes_for_the_humanoid():
    policy, critic = make_networks(ApexDPGConfig(), make_spec((67,), 21))
    assert sum(np.prod(v.shape) for v in policy.trainable_variables) == (
        67 * 300 + 300 + 300 * 200 + 200 + 200 * 21 + 21
    )
    assert sum(np.prod(v.shape) for v in critic.trainable_variables) == (
        67 * 400 + 400 + (400 + 21) * 300 + 300 + 300 + 1
    )


def assign(network: snt.Module, *arrays: list) -> None:
    """Set the variables of a network, which are told apart by their shapes."""
    values = {np.shape(array): array for array in arrays}
    for variable in network.variables:
        variable.assign(values.pop(tuple(variable.shape)))
    assert not values


def make_torso() -> VectorTorso:
    """Make the torso 'mlp' of two units over states of one number."""
    return VectorTorso([2], make_spec((1,), 1), activation=tf.tanh)


def test_policy_by_hand():
    policy = PolicyNetwork(make_torso(), hidden_sizes=[3], action_size=1)
    policy(tf.zeros([1, 1]))
    assign(
        policy,
        # First and second hidden layer, whose last unit is not used, and output layer.
        *([[1.0, -2.0]], [0.0, 0.5]),
        *([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0]], [0.1, 0.0, 0.0]),
        *([[2.0], [3.0], [4.0]], [-0.2]),
    )
    # s = 0.5: h1 = tanh(0.5, -0.5), of which the first second-layer unit sees 0 + 0.1 and the
    # second one -2 * tanh(0.5), cut off by the ReLU.
    expected = np.tanh(2.0 * 0.1 + 3.0 * 0.0 - 0.2)
    np.testing.assert_allclose(policy(tf.constant([[0.5]])), [[expected]], atol=1e-7)
    # s = 1: h1 = tanh(1, -1.5); h2 = relu(tanh(1) - tanh(1.5) + 0.1, -tanh(1) - tanh(1.5)).
    expected = np.tanh(2.0 * max(np.tanh(1.0) - np.tanh(1.5) + 0.1, 0.0) - 0.2)
    np.testing.assert_allclose(policy(tf.constant([[1.0]])), [[expected]], rtol=1e-5)


def make_critic() -> CriticNetwork:
    critic = CriticNetwork(make_torso(), hidden_sizes=[3])
    critic(tf.zeros([1, 1]), tf.zeros([1, 2]))
    assign(
        critic,
        # The last unit of each hidden layer is not used.
        *([[2.0, 0.0]], [0.5, 0.0]),
        # Rows: the state's features, then both elements of the action, not squashed.
        [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, -5.0, 0.0]],
        [0.0, 0.25, 0.0],
        *([[10.0], [1.0], [1.0]], [7.0]),
    )
    return critic


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_critic_by_hand(dtype):
    action = tf.constant([[0.4, -1.0], [-1.0, 1.0]], dtype)
    q_value = make_critic()(tf.constant([[0.25], [0.25]]), action)
    feature = np.tanh(2.0 * 0.25 + 0.5)
    expected = [10.0 * (feature + 3.0 * 0.4) + (5.0 + 0.25) + 7.0, 7.0]
    np.testing.assert_allclose(q_value, expected, rtol=1e-6)
    assert q_value.dtype == tf.float32


def test_first_layer_with_layer_norm_by_hand():
    torso = VectorTorso([2], make_spec((1,), 1), activation=tf.tanh, layer_norm=True)
    torso(tf.zeros([1, 1]))
    values = {"linear_1/w:0": [[1.0, 4.0]], "linear_1/b:0": [0.0, 1.0]}
    values |= {"layer_norm_1/scale:0": [2.0, 3.0], "layer_norm_1/offset:0": [0.0, 0.5]}
    for variable in torso.variables:
        variable.assign(values.pop("/".join(variable.name.split("/")[-2:])))
    assert not values
    # s = 1: (1, 5) has the mean 3 and the standard deviation 2, and becomes (-1, 1).
    expected = np.tanh([2.0 * -1.0, 3.0 * 1.0 + 0.5])
    np.testing.assert_allclose(torso(tf.ones([1, 1]))[0], expected, rtol=1e-5)


def test_second_layer_with_layer_norm_by_hand():
    policy = PolicyNetwork(lambda s: s, hidden_sizes=[3], action_size=1, layer_norm=True)
    policy(tf.zeros([1, 1]))
    values = {
        "hidden/w:0": [[1.0, 4.0, 7.0]],
        "hidden/b:0": [0.0, 0.0, 0.0],
        "hidden_layer_norm/scale:0": [1.0, 1.0, 2.0],
        "hidden_layer_norm/offset:0": [0.5, 0.5, 0.0],
        "output/w:0": [[100.0], [0.1], [0.1]],
        "output/b:0": [0.0],
    }
    for variable in policy.variables:
        variable.assign(values.pop("/".join(variable.name.split("/")[-2:])))
    assert not values
    # s = 1: (1, 4, 7) has the mean 4 and the standard deviation sqrt(6).
    expected = np.tanh(0.1 * 0.5 + 0.1 * 2.0 * 3.0 / np.sqrt(6.0))
    np.testing.assert_allclose(policy(tf.ones([1, 1])), [[expected]], rtol=1e-5)


@pytest.mark.parametrize("network", ["policy", "critic"])
def test_layer_norm_is_the_configs_choice(network):
    def count(config: ApexDPGConfig) -> int:
        made = getattr(make_networks(config, make_spec((3,), 1)), network)
        return sum("layer_norm" in variable.name for variable in made.trainable_variables)

    # Scales and offsets of two hidden layers.
    assert (count(ApexDPGConfig()), count(ApexDPGConfig(layer_norm=True))) == (0, 4)


def read_layers(network: snt.Module) -> dict[str, np.ndarray]:
    """Return weights and biases by the name of their layer, as in `hidden/w`."""
    return {"/".join(v.name[:-2].split("/")[-2:]): v.numpy() for v in network.variables}


def relu_layers(network: snt.Module, features: np.ndarray, *names: str) -> np.ndarray:
    """Compute hidden layers with ReLUs and the output layer."""
    layers = read_layers(network)
    for name in names:
        features = np.maximum(features @ layers[f"{name}/w"] + layers[f"{name}/b"], 0.0)
    return features @ layers["output/w"] + layers["output/b"]


def make_batch() -> tuple[np.ndarray, np.ndarray]:
    """Make observations of 3 numbers, and actions of 2."""
    random = np.random.default_rng(0)
    observation, action = random.normal(size=(5, 3)), random.uniform(-1.0, 1.0, size=(5, 2))
    return observation.astype(np.float32), action.astype(np.float32)


def test_the_papers_first_layers_have_tanh_and_the_critics_second_reads_the_action():
    policy, critic = make_networks(ApexDPGConfig(), make_spec((3,), 2))
    observation, action = make_batch()

    def first_layer(network: snt.Module) -> np.ndarray:
        layers = read_layers(network)
        return np.tanh(observation @ layers["linear_1/w"] + layers["linear_1/b"])

    expected = np.tanh(relu_layers(policy, first_layer(policy), "hidden"))
    np.testing.assert_allclose(policy(observation), expected, rtol=1e-4, atol=1e-6)
    features = np.concatenate([first_layer(critic), action], axis=1)
    expected = relu_layers(critic, features, "hidden")[:, 0]
    np.testing.assert_allclose(critic(observation, action), expected, rtol=1e-4, atol=1e-6)


def test_without_torsos_all_hidden_layers_have_relus_and_the_critics_first_reads_the_action():
    config = ApexDPGConfig(policy_torso="none", critic_torso="none")
    policy, critic = make_networks(config, make_spec((3,), 2))
    observation, action = make_batch()
    expected = np.tanh(relu_layers(policy, observation, "hidden_1", "hidden"))
    np.testing.assert_allclose(policy(observation), expected, rtol=1e-4, atol=1e-6)
    features = np.concatenate([observation, action], axis=1)
    expected = relu_layers(critic, features, "hidden_1", "hidden")[:, 0]
    np.testing.assert_allclose(critic(observation, action), expected, rtol=1e-4, atol=1e-6)
    shapes = [
        [tuple(v.shape) for v in network.variables if "/w" in v.name]
        for network in (policy, critic)
    ]
    assert sorted(shapes[0]) == [(3, 300), (200, 2), (300, 200)]
    assert sorted(shapes[1]) == [(5, 400), (300, 1), (400, 300)]


def test_actions_are_in_bounds_and_begin_close_to_zero():
    policy, critic = make_networks(ApexDPGConfig(), make_spec((3,), 2))
    observation = tf.constant(np.random.default_rng(0).normal(size=(100, 3)), tf.float32)
    action = policy(observation)
    assert np.abs(action).max() < 0.1
    assert np.abs(critic(observation, action)).max() < 0.2
    policy.trainable_variables[0].assign_add(tf.fill(policy.trainable_variables[0].shape, 100.0))
    assert np.abs(policy(1000.0 * observation)).max() <= 1.0


@pytest.mark.parametrize("shape", [(), (3, 4)])
def test_observations_of_any_shape_are_flattened(shape):
    policy, critic = make_networks(ApexDPGConfig(), make_spec(shape, 2))
    observation = tf.zeros([5, *shape])
    assert policy(observation).shape == (5, 2)
    assert critic(observation, policy(observation)).shape == (5,)


@pytest.mark.parametrize("num_critics", [1, 2])
def test_variables_have_names_of_their_own(num_critics):
    config = ApexDPGConfig(normalize_observations=True, num_critics=num_critics)
    networks = make_networks(config, make_spec((3,), 2))
    layers = ("torso/linear_1", "hidden", "output")
    for name, network in networks._asdict().items():
        scopes = [name, "critic_2"] if name == "critic" and num_critics == 2 else [name]
        expected = [f"{s}/{layer}/{array}:0" for s in scopes for layer in layers for array in "wb"]
        arrays = ("count", "mean", "variance")
        statistics = [f"{s}/normalization/{array}:0" for s in scopes for array in arrays]
        assert sorted(v.name for v in network.variables) == sorted(expected + statistics)
        assert sorted(v.name for v in network.trainable_variables) == sorted(expected)


def test_both_networks_see_normalized_observations():
    config = ApexDPGConfig(normalize_observations=True)
    networks = make_networks(config, make_spec((2,), 1))
    plain = make_networks(ApexDPGConfig(), make_spec((2,), 1))
    for network, other in zip(networks, plain, strict=True):
        for source, target in zip(network.trainable_variables, other.variables, strict=True):
            target.assign(source)
        for variable in network.variables:
            if "normalization/mean" in variable.name:
                variable.assign([1.0, 2.0])
    observation, centred = tf.constant([[3.0, 1.0]]), tf.constant([[2.0, -1.0]])
    action = networks.policy(observation)
    np.testing.assert_allclose(action, plain.policy(centred), rtol=1e-6)
    q_value = networks.critic(observation, action)
    np.testing.assert_allclose(q_value, plain.critic(centred, action), rtol=1e-6)


def make_own_torso(spec: EnvironmentSpec, config: ApexDPGConfig) -> snt.Module:
    return snt.Linear(7, name="own")


@pytest.mark.parametrize("name", ["mlp", "none"])
def test_a_torso_given_in_python_is_that_of_both_networks(name):
    config = ApexDPGConfig(policy_torso=name, critic_torso=name)
    networks = make_networks(config, make_spec((3,), 2), make_own_torso)
    for name, network in networks._asdict().items():
        shapes = {v.name: tuple(v.shape) for v in network.variables}
        assert shapes[f"{name}/torso/own/w:0"] == (3, 7)
        assert not any("linear_1" in variable for variable in shapes)
    # The second hidden layers, of 300 and 200 units, the critic's with two elements of an action.
    assert shapes["critic/hidden/w:0"] == (7 + 2, 300)


def test_each_network_has_the_torso_that_the_config_names(tmp_path, monkeypatch):
    (tmp_path / "dpg_nets_of_a_user.py").write_text(
        "import sonnet as snt\ndef make(spec, config):\n    return snt.Linear(7, name='own')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = ApexDPGConfig(critic_torso="dpg_nets_of_a_user:make")
    policy, critic = make_networks(config, make_spec((3,), 2))
    assert "policy/torso/linear_1/w:0" in [v.name for v in policy.variables]
    assert "critic/torso/own/w:0" in [v.name for v in critic.variables]


@pytest.mark.parametrize("critic", ["scalar", "quantile", "categorical"])
def test_a_critic_gives_out_the_mean_of_its_distribution(critic):
    config = ApexDPGConfig(critic=critic, num_atoms=3, min_return=-1.0, max_return=3.0)
    network = make_networks(config, make_spec((3,), 2)).critic
    inputs = (
        tf.constant([[1.0, -2.0, 3.0], [0.5, 0.0, 1.0]]),
        tf.constant([[0.5, 1.0], [0.0, -1.0]]),
    )
    outputs = network.return_distribution(*inputs).numpy()
    probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=-1, keepdims=True)
    expected = {
        "scalar": outputs,
        "quantile": outputs.mean(axis=-1),
        "categorical": probabilities @ [-1.0, 1.0, 3.0] if critic == "categorical" else None,
    }
    assert outputs.shape == {"scalar": (2,)}.get(critic, (2, 3))
    np.testing.assert_allclose(network(*inputs), expected[critic], rtol=1e-5)


def test_each_of_several_critics_has_parameters_of_its_own():
    one, several = [
        make_networks(ApexDPGConfig(num_critics=num_critics), make_spec((3,), 2)).critic
        for num_critics in (1, 3)
    ]
    assert len(several.trainable_variables) == 3 * len(one.trainable_variables)
    weights = [v.numpy() for v in several.trainable_variables if v.shape == (400 + 2, 300)]
    assert len({array.tobytes() for array in weights}) == 3


@pytest.mark.parametrize("critic", ["scalar", "quantile", "categorical"])
def test_the_smallest_value_of_several_critics_counts(critic):
    config = ApexDPGConfig(critic=critic, num_atoms=3, min_return=-1.0, max_return=3.0)
    config.num_critics = 2
    ensemble, mean = (
        make_networks(config, make_spec((3,), 2)).critic,
        make_distribution(config).mean,
    )
    inputs = tf.random.normal([20, 3]), tf.random.uniform([20, 2], -1.0)
    given_out = ensemble.return_distribution(*inputs)
    assert given_out.shape == {"scalar": (20, 2)}.get(critic, (20, 2, 3))
    np.testing.assert_array_equal(ensemble(*inputs), mean(given_out))

    outputs = np.random.default_rng(0).normal(size=given_out.shape).astype(np.float32)
    probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=-1, keepdims=True)
    values = {
        "scalar": outputs,
        "quantile": outputs.mean(axis=-1),
        "categorical": probabilities @ [-1.0, 1.0, 3.0] if critic == "categorical" else None,
    }[critic]
    # Neither critic is the smaller one everywhere.
    assert set(values.argmin(axis=1)) == {0, 1}
    np.testing.assert_allclose(mean(outputs), values.min(axis=1), rtol=1e-4, atol=1e-6)
