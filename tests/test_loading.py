"""Tests of policies that are loaded from the folder of a run, against those that were saved."""

import dataclasses
import pathlib

import gymnasium
import numpy as np
import pytest
from tiny_runs import make_run

import apex_agents
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig
from apex_agents.loading import TrainedDPG, TrainedDQN, load

MLP = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)
A2C = A2CConfig(torso="mlp", mlp_hidden_sizes=(8,), hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))
RUNS = {
    "catch": (MLP, EnvironmentConfig("toy", "catch")),
    "pong": (ApexDQNConfig(stream_hidden_size=8), EnvironmentConfig(task="pong")),
    "point_mass": (DPG, EnvironmentConfig("toy", "point_mass")),
    "two critics": (
        dataclasses.replace(DPG, num_critics=2),
        EnvironmentConfig("toy", "point_mass"),
    ),
    "catch by A2C": (A2C, EnvironmentConfig("toy", "catch")),
}


@pytest.fixture(scope="session")
def policies(tmp_path_factory):
    """The policies that were saved and the same ones loaded, by the name of their run."""
    folder = tmp_path_factory.mktemp("runs")
    saved = {name: make_run(folder / name, *RUNS[name]) for name in RUNS}
    return {name: (saved[name], load(folder / name)) for name in RUNS}


def observe(policy: TrainedDQN | TrainedDPG, num_envs: int = 5) -> np.ndarray:
    """Return observations that differ, `[num_envs, ...]`."""
    spec = policy.spec.observations
    random = np.random.default_rng(0)
    if spec.dtype == np.uint8:
        return random.integers(256, size=[num_envs, *spec.shape]).astype(np.uint8)
    return random.uniform(-1, 1, [num_envs, *spec.shape]).astype(np.float32)


@pytest.mark.parametrize("name", ["catch", "pong"])
def test_dqn_has_the_values_of_the_network_that_was_saved(policies, name):
    saved, policy = policies[name]
    observations = observe(policy)
    q_values = policy.q_values(observations)
    assert (q_values.shape, q_values.dtype) == ((5, policy.spec.actions.num_values), np.float32)
    np.testing.assert_array_equal(q_values.max(axis=1), saved(observations).value)
    actions = policy.act(observations)
    assert actions.dtype == np.int32
    assert [row[a] for row, a in zip(q_values, actions, strict=True)] == q_values.max(1).tolist()


@pytest.mark.parametrize("name", ["point_mass", "two critics"])
def test_dpg_has_the_actions_and_values_of_the_networks_that_were_saved(policies, name):
    saved, policy = policies[name]
    observations = observe(policy)
    expected = saved(observations)  # Without noise.
    np.testing.assert_allclose(policy.action(observations), expected.action, rtol=1e-6)
    np.testing.assert_array_equal(policy.act(observations), policy.action(observations))
    np.testing.assert_allclose(
        policy.value(observations, expected.action), expected.value, rtol=1e-5
    )
    # The value is that of the action given, not that of the policy's.
    others = policy.value(observations, -np.ones_like(expected.action))
    assert np.all(others != policy.value(observations, expected.action))


def test_actor_critic_has_the_policy_and_the_values_that_were_saved(policies):
    saved, policy = policies["catch by A2C"]
    observations = observe(policy)
    expected = saved.network(observations)
    np.testing.assert_allclose(policy.logits(observations), expected.logits, atol=1e-6)
    np.testing.assert_allclose(policy.value(observations), expected.value, atol=1e-6)
    likeliest = expected.logits.numpy().argmax(axis=1)
    np.testing.assert_array_equal(policy.act(observations), likeliest)
    assert policy.act(observations).dtype == np.int32
    assert policy.value(observations[0]) == pytest.approx(float(expected.value[0]), abs=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_one_observation_is_a_row_of_a_batch(policies, name):
    _, policy = policies[name]
    observations = observe(policy)
    actions = policy.act(observations)
    assert np.shape(actions) == (5, *policy.spec.actions.shape)
    for observation, action in zip(observations, actions, strict=True):
        one = policy.act(observation)
        assert np.shape(one) == policy.spec.actions.shape
        np.testing.assert_allclose(one, action, rtol=1e-5)
    if name == "point_mass":
        one_value = policy.value(observations[0], actions[0])
        assert np.shape(one_value) == ()
        assert one_value == pytest.approx(policy.value(observations, actions)[0])
    else:
        output = getattr(policy, policy.output_name)
        one_row = output(observations[0])
        np.testing.assert_allclose(one_row, output(observations)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("catch", np.zeros([49], np.float32), "float32 [49]"),
        ("catch", np.zeros([1, 2, 50], np.float32), "float32 [1, 2, 50]"),
        ("catch", "left", "<U4 []"),
        ("pong", np.zeros([4, 84, 84]), "float64 [4, 84, 84]"),  # Would be 0 or 1 as bytes.
        ("pong", np.zeros([84, 84, 4], np.uint8), "uint8 [84, 84, 4]"),
    ],
)
def test_observations_that_do_not_fit(policies, name, value, given):
    _, policy = policies[name]
    spec = policy.spec.observations
    with pytest.raises(ValueError) as error:
        policy.act(value)
    assert given in str(error.value)
    assert f"{spec.dtype} {list(spec.shape)}" in str(error.value)


@pytest.fixture
def dict_policy(tmp_path):
    gymnasium.register("Dicts-v0", entry_point=Dicts)
    make_run(tmp_path / "run", MLP, EnvironmentConfig("gymnasium", "Dicts-v0"))
    yield load(tmp_path / "run")
    del gymnasium.registry["Dicts-v0"]


class Dicts(gymnasium.Env):
    """Observes a dict, whose parts have other names than their order."""

    observation_space = gymnasium.spaces.Dict(
        {"speed": gymnasium.spaces.Box(-1, 1, [2]), "room": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"speed": np.array([0.5, -0.5], np.float32), "room": 1}, {}


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ({"speed": [0.5, -0.5], "room": 1}, "a dict"),
        ((np.zeros([3]), np.zeros([2])), "a tuple"),
        (1, "int64 []"),
    ],
)
def test_observations_that_have_to_be_flattened(dict_policy, value, given):
    with pytest.raises(ValueError, match=r"gymnasium\.spaces\.flatten") as error:
        dict_policy.act(value)
    assert f"observation is {given}; it has to be float32 [5]" in str(error.value)


def test_a_flattened_observation_is_that_of_the_run(dict_policy):
    environment = Dicts()
    observation, _ = environment.reset()
    flat = gymnasium.spaces.flatten(environment.observation_space, observation)
    ours = dict_policy.make_environment().reset().observation
    np.testing.assert_array_equal(flat, ours[0])
    np.testing.assert_array_equal(dict_policy.q_values(flat), dict_policy.q_values(ours)[0])


def test_numbers_of_other_kinds_become_floats(policies):
    _, policy = policies["catch"]
    ones = np.ones([50], np.float32)
    for value in ([1] * 50, ones.astype(np.float64), ones.astype(bool)):
        np.testing.assert_array_equal(policy.q_values(value), policy.q_values(ones))


def test_values_need_one_action_for_each_observation(policies):
    _, policy = policies["point_mass"]
    observations = observe(policy)
    with pytest.raises(ValueError, match="3 actions"):
        policy.value(observations, policy.act(observations[:3]))
    with pytest.raises(ValueError, match="action is"):
        policy.value(observations, np.zeros([5, 7]))


def test_an_episode_in_the_environment_of_the_run(policies):
    _, policy = policies["catch"]
    environment = policy.make_environment(num_envs=3, seed=1)
    timestep = environment.reset()
    while not (episodes := environment.finished_episodes()):
        timestep = environment.step(policy.act(timestep.observation))
    assert [episode.length for episode in episodes] == [9, 9, 9]
    environment.close()


def test_atari_is_made_by_the_rules_of_evaluation(tmp_path):
    rules = AtariConfig(evaluation_max_frames=20, max_noops=0)
    make_run(tmp_path / "run", RUNS["pong"][0], EnvironmentConfig(task="pong", atari=rules))
    environment = load(tmp_path / "run").make_environment()
    environment.reset()
    lengths = []
    while not lengths:
        environment.step(np.zeros([1], np.int32))
        lengths = [episode.length for episode in environment.finished_episodes()]
    assert lengths == [5]


def test_what_is_known_of_a_loaded_policy(tmp_path, monkeypatch):
    path = tmp_path / "run"
    make_run(path, *RUNS["catch"], "learner-000000005678/parameters.npz")
    best = apex_agents.load(path)
    assert isinstance(best, TrainedDQN)
    assert (best.config.agent, best.config.environment) == RUNS["catch"]
    assert (best.learner_steps, best.path) == (1234, path / "checkpoints" / "best.npz")
    assert load(path, "last").learner_steps == 5678
    assert load(str(path), checkpoint=path / "checkpoints" / "best.npz").learner_steps == 1234
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("~/run", "~/run/checkpoints/best.npz").learner_steps == 1234


@pytest.mark.parametrize(
    ("folder", "checkpoint", "message"),
    [
        ("gone", "best", "gone is no folder"),
        (".", "best", "holds no run"),
        ("catch", "newest", "checkpoint=newest does not exist; there are best"),
        ("catch", "point_mass/checkpoints/best.npz", "does not fit the networks"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, folder, checkpoint, message):
    monkeypatch.chdir(tmp_path)
    for name in ("catch", "point_mass"):
        make_run(tmp_path / name, *RUNS[name])
    with pytest.raises(ValueError, match=message):
        load(pathlib.Path(folder), checkpoint)


def test_a_config_of_an_environment_that_does_not_exist(tmp_path):
    path = tmp_path / "run"
    make_run(path, *RUNS["catch"])
    config = path / "config.json"
    config.write_text(config.read_text().replace('"catch"', '"cacth"'))
    with pytest.raises(ValueError, match="cacth"):
        load(path)
