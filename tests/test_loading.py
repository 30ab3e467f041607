"""Tests of policies that are loaded from the folder of a run, against those that were saved."""

import dataclasses
import pathlib

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tiny_runs import Mirror, make_run, registered_mirror

import apex_agents
from apex_agents.acting.policy import restart_batch
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
    np.testing.assert_array_equal(q_values.max(axis=1), saved(restart_batch(observations)).value)
    actions = policy.act(observations)
    assert actions.dtype == np.int32
    assert [row[a] for row, a in zip(q_values, actions, strict=True)] == q_values.max(1).tolist()


@pytest.mark.parametrize("name", ["point_mass", "two critics"])
def test_dpg_has_the_actions_and_values_of_the_networks_that_were_saved(policies, name):
    saved, policy = policies[name]
    observations = observe(policy)
    expected = saved(restart_batch(observations))  # Without noise.
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


BOX = spaces.Box(np.float64([0, -1]), np.float64([3, 10]), dtype=np.float64)
NUMBERS = spaces.Discrete(3, start=1)
DICT = spaces.Dict({"speed": spaces.Box(-1, 1, [2]), "room": spaces.Discrete(3, start=2)})
NESTED = spaces.Tuple([spaces.MultiDiscrete([2, 3]), DICT])
IMAGE = spaces.Box(0, 255, [2, 3], np.uint8)


def load_mirror(folder, observation_space, action_space):
    """Return the policy of a run in an environment with these spaces, and the environment."""
    agent = DPG if isinstance(action_space, spaces.Box) else MLP
    with registered_mirror(observation_space, action_space) as task:
        make_run(folder / "run", agent, EnvironmentConfig("gymnasium", task))
        return load(folder / "run"), Mirror(observation_space, action_space)


@pytest.mark.parametrize("action_space", [BOX, NUMBERS], ids=["box", "discrete"])
@pytest.mark.parametrize(
    "observation_space",
    [DICT, NESTED, NUMBERS, spaces.MultiDiscrete([2, 3]), spaces.Box(0, 9, (), np.int64), IMAGE],
    ids=["dict", "tuple", "discrete", "multi_discrete", "number", "image"],
)
def test_a_plain_loop_over_the_environment(tmp_path, observation_space, action_space):
    policy, environment = load_mirror(tmp_path, observation_space, action_space)
    observation, _ = environment.reset(seed=0)
    seen = []
    for _ in range(5):
        seen.append(observation)
        observation, *_ = environment.step(policy.act(observation))
    if action_space is NUMBERS:
        best = np.stack([policy.q_values(observation) for observation in seen]).argmax(axis=1)
        assert [policy.act(observation) for observation in seen] == (best + 1).tolist()


@pytest.mark.parametrize("action_space", [BOX, NUMBERS], ids=["box", "discrete"])
def test_environments_of_the_run_take_what_act_returns(tmp_path, action_space):
    policy, _ = load_mirror(tmp_path, DICT, action_space)
    environment = policy.make_environment(num_envs=4)
    timestep = environment.reset()
    for _ in range(3):  # Mirrors refuse actions of other units, which then are failures.
        timestep = environment.step(policy.act(timestep.observation))
    assert environment.num_failures == 0


def test_a_batch_has_the_rows_of_each_part(tmp_path):
    policy, environment = load_mirror(tmp_path, NESTED, NUMBERS)
    places, parts = zip(*[environment.observation_space.sample() for _ in range(4)], strict=True)
    batch = np.stack(places), {name: np.stack([p[name] for p in parts]) for name in DICT}
    rows = [policy.q_values(row) for row in zip(places, parts, strict=True)]
    np.testing.assert_allclose(policy.q_values(batch), rows, rtol=1e-5)
    assert policy.act(batch).shape == (4,)


def test_actions_of_dpg_are_scaled_to_the_bounds(tmp_path):
    policy, _ = load_mirror(tmp_path, spaces.Box(-1, 1, [2]), BOX)
    observations = observe(policy)
    output = policy.network(observations).numpy()  # In [-1, 1].
    expected = np.stack([1.5 + 1.5 * output[:, 0], 4.5 + 5.5 * output[:, 1]], axis=1)
    np.testing.assert_allclose(policy.act(observations), expected, rtol=1e-6)
    # The critic has the value of that action.
    values = policy._critic(observations, output).numpy()
    np.testing.assert_allclose(policy.value(observations, policy.act(observations)), values, 1e-4)


def test_a_converted_observation_is_the_same_one(tmp_path):
    policy, environment = load_mirror(tmp_path, DICT, NUMBERS)
    observation, _ = environment.reset(seed=3)
    flat = gymnasium.spaces.flatten(DICT, observation)
    np.testing.assert_array_equal(policy.q_values(flat), policy.q_values(observation))
    np.testing.assert_array_equal(policy.q_values([flat])[0], policy.q_values(observation))


@pytest.mark.parametrize(
    ("space", "value", "given"),
    [
        (DICT, {"speed": [0.5, -0.5]}, "a dict"),
        (DICT, {"speed": [[0.5, -0.5]], "room": 2}, "a dict"),
        (DICT, (np.zeros([3]), np.zeros([2])), "a tuple"),
        (DICT, 1, "int64 []"),
        (DICT, {"speed": np.zeros(2), "room": 1}, "observation['room'] holds 1"),
        (NUMBERS, 4, "observation holds 4"),
        (NUMBERS, 1.5, "float64 []"),
    ],
)
def test_what_is_no_observation_of_the_environment(tmp_path, space, value, given):
    policy, _ = load_mirror(tmp_path, space, NUMBERS)
    with pytest.raises(ValueError) as error:
        policy.act(value)
    assert given in str(error.value)


@pytest.mark.parametrize("name", ["catch", "point_mass"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(policies, name, number):
    _, policy = policies[name]
    observations = np.zeros([2, *policy.spec.observations.shape])
    observations[1].flat[0] = number
    for observation in (observations, observations[1], observations.astype(np.float32)):
        with pytest.raises(ValueError, match="not finite"):
            policy.act(observation)


def test_fractions_do_not_become_the_bytes_of_an_image(policies):
    _, policy = policies["pong"]
    with pytest.raises(ValueError, match=r"0\.5"):
        policy.act(np.full([4, 84, 84], 0.5))


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
