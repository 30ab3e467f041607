"""Tests of policies that are loaded from the folder of a run, against those that were saved."""

import contextlib
import dataclasses
import pathlib
import runpy

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from tiny_runs import Mirror, make_run, registered_mirror

import apex_agents
from apex_agents.acting.policy import GreedyPolicy
from apex_agents.actor_critic.config import A2CConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig, restart_batch
from apex_agents.loading import TrainedPolicy, load

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
EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "load_and_play.py"
BOX = spaces.Box(np.float64([0, -1]), np.float64([3, 10]), dtype=np.float64)
NUMBERS = spaces.Discrete(3, start=1)
DICT = spaces.Dict({"speed": spaces.Box(-1, 1, [2]), "room": spaces.Discrete(3, start=2)})
NESTED = spaces.Tuple([spaces.MultiDiscrete([2, 3]), DICT])
MIRRORS = {"dict": DICT, "tuple": NESTED, "numbers": NUMBERS}


@pytest.fixture(scope="session")
def policies(tmp_path_factory):
    """The policies that were saved and the same ones loaded, by the name of their run."""
    folder = tmp_path_factory.mktemp("runs")
    saved = {name: make_run(folder / name, *RUNS[name]) for name in RUNS}
    loaded = {name: (saved[name], load(folder / name)) for name in RUNS}
    for name, space in MIRRORS.items():
        loaded[name] = (None, load_mirror(folder / name, space, NUMBERS)[0])
    return loaded


def load_mirror(folder, observation_space, action_space):
    """Return the policy of a run in an environment with these spaces, and the environment."""
    agent = DPG if isinstance(action_space, spaces.Box) else MLP
    with registered_mirror(observation_space, action_space) as task:
        make_run(folder, agent, EnvironmentConfig("gymnasium", task))
        return load(folder), Mirror(observation_space, action_space)


def observe(policy: TrainedPolicy, num_envs: int = 5) -> np.ndarray:
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
    name = policy.greedy.output_name
    one_row, rows = policy.output(name, observations[0]), policy.output(name, observations)
    np.testing.assert_allclose(one_row, rows[0], rtol=1e-4, atol=1e-6)
    if policy.greedy.value is not None:
        arguments = (observations, actions) if name == "action" else (observations,)
        one_value = policy.value(*[argument[0] for argument in arguments])
        assert np.shape(one_value) == ()
        assert one_value == pytest.approx(policy.value(*arguments)[0], rel=1e-4)


class CountingBuilder(ApexDQNBuilder):
    """Builds a policy that takes action 0, 1, 2, 0, ... in an episode."""

    def make_greedy_policy(self, spec):
        def evaluate(observation, num_steps):
            return tf.one_hot(num_steps % 3, 3), (num_steps + 1,)

        return GreedyPolicy(
            *({"network": self.make_networks(spec)}, "q_values", evaluate),
            initial_state=lambda num_rows: (tf.zeros([num_rows], tf.int32),),
        )


class WithoutGreedyPolicy(ApexDQNBuilder):
    """Is a builder of a user, who did without."""

    @property
    def make_greedy_policy(self):
        raise AttributeError


class WithoutGreedyPolicyInItsAlgorithm(ApexDQNBuilder):
    """Has an algorithm that learns and is evaluated, and nothing else."""

    def __init__(self, config, torso_fn=None):
        super().__init__(config, torso_fn)
        self._algorithm = self._algorithm._replace(make_greedy_policy=None)


@pytest.mark.parametrize("builder", [WithoutGreedyPolicy, WithoutGreedyPolicyInItsAlgorithm])
def test_a_builder_that_makes_no_trained_policy_is_named(tmp_path, builder):
    agent = dataclasses.replace(MLP, builder=f"{__name__}:{builder.__name__}")
    make_run(tmp_path / "run", agent, EnvironmentConfig("toy", "catch"))
    with pytest.raises(ValueError, match=f"{builder.__name__} has no make_greedy_policy"):
        load(tmp_path / "run")


def test_a_policy_remembers_until_its_memory_begins_anew(tmp_path):
    agent = dataclasses.replace(MLP, builder=f"{__name__}:CountingBuilder")
    make_run(tmp_path / "run", agent, EnvironmentConfig("toy", "catch"))
    policy = load(tmp_path / "run")
    one = np.zeros([50], np.float32)
    assert [policy.act(one).item() for _ in range(4)] == [0, 1, 2, 0]
    assert [policy.q_values(one).argmax() for _ in range(2)] == [1, 1]
    policy.reset()
    assert [policy.act(one).item() for _ in range(2)] == [0, 1]
    two = np.zeros([2, 50], np.float32)
    assert [policy.act(two).tolist() for _ in range(2)] == [[0, 0], [1, 1]]
    policy.reset(np.array([False, True]))
    assert policy.q_values(one).argmax() == 0  # The batch is still remembered.
    assert policy.act(two).tolist() == [2, 0]


def test_the_example_resets_the_policy_where_episodes_begin(tmp_path, monkeypatch):
    make_run(tmp_path, MLP, EnvironmentConfig("toy", "catch"))
    resets: list[list[bool]] = []
    monkeypatch.setattr(TrainedPolicy, "reset", lambda _, rows: resets.append(rows.tolist()))
    runpy.run_path(str(EXAMPLE))["main"](str(tmp_path), 2)
    assert resets == [[step % 10 == 0] for step in range(19)]  # Episodes have nine steps.


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("catch", np.zeros([49], np.float32), "float32 [49] ... or float32 [50]"),
        ("catch", np.zeros([1, 2, 50], np.float32), "float32 [1, 2, 50]"),
        ("catch", "left", "<U4 []"),
        ("catch", np.full([50], np.nan), "not finite"),
        ("catch", np.full([2, 50], np.inf, np.float32), "not finite"),
        ("point_mass", np.array([[0], [np.nan]], np.float32), "not finite"),
        ("pong", np.zeros([84, 84, 4], np.uint8), "uint8 [84, 84, 4] ... or uint8 [4, 84, 84]"),
        ("pong", np.full([4, 84, 84], 0.5), "0.5"),
        ("dict", {"speed": [0.5, -0.5]}, "a dict"),
        ("dict", {"speed": [[0.5, -0.5]], "room": 2}, "a dict"),
        ("dict", (np.zeros([3]), np.zeros([2])), "a tuple"),
        ("dict", 1, "int64 []"),
        ("dict", {"speed": np.zeros(2), "room": 1}, "observation['room'] holds 1"),
        ("numbers", 4, "observation holds 4"),
        ("numbers", 1.5, "float64 []"),
    ],
)
def test_observations_that_do_not_fit(policies, name, value, given):
    with pytest.raises(ValueError) as error:
        policies[name][1].act(value)
    assert all(part in str(error.value) for part in given.split(" ... "))


@pytest.mark.parametrize(
    ("observation_space", "action_space"),
    [
        *((space, NUMBERS) for space in MIRRORS.values()),
        (spaces.MultiDiscrete([2, 3]), NUMBERS),
        (spaces.Box(0, 9, (), np.int64), NUMBERS),
        (spaces.Box(0, 255, [2, 3], np.uint8), NUMBERS),
        (DICT, BOX),
    ],
)
def test_a_plain_loop_over_the_environment(tmp_path, observation_space, action_space):
    policy, environment = load_mirror(tmp_path / "run", observation_space, action_space)
    observation, _ = environment.reset(seed=0)
    seen = []
    for _ in range(5):
        seen.append(observation)
        observation, *_ = environment.step(policy.act(observation))
    if action_space is NUMBERS:
        best = np.stack([policy.q_values(observation) for observation in seen]).argmax(axis=1)
        assert [policy.act(observation) for observation in seen] == (best + 1).tolist()
    environment = policy.make_environment(num_envs=4)
    timestep = environment.reset()
    for _ in range(3):  # Mirrors refuse actions of other units, which then are failures.
        timestep = environment.step(policy.act(timestep.observation))
    assert environment.num_failures == 0


def test_a_batch_has_the_rows_of_each_part(policies):
    _, policy = policies["tuple"]
    places, parts = zip(*[NESTED.sample() for _ in range(4)], strict=True)
    batch = np.stack(places), {name: np.stack([p[name] for p in parts]) for name in DICT}
    rows = [policy.q_values(row) for row in zip(places, parts, strict=True)]
    np.testing.assert_allclose(policy.q_values(batch), rows, rtol=1e-5)
    assert policy.act(batch).shape == (4,)


def test_actions_of_dpg_are_scaled_to_the_bounds(tmp_path):
    policy, _ = load_mirror(tmp_path / "run", spaces.Box(-1, 1, [2]), BOX)
    observations = observe(policy)
    output = policy.network(observations).numpy()  # In [-1, 1].
    expected = np.stack([1.5 + 1.5 * output[:, 0], 4.5 + 5.5 * output[:, 1]], axis=1)
    np.testing.assert_allclose(policy.act(observations), expected, rtol=1e-6)
    # The critic has the value of that action.
    values = policy.greedy.value(observations, output).numpy()
    np.testing.assert_allclose(policy.value(observations, policy.act(observations)), values, 1e-4)


def test_a_converted_observation_is_the_same_one(policies):
    _, policy = policies["dict"]
    observation = DICT.sample()
    flat = gymnasium.spaces.flatten(DICT, observation)
    np.testing.assert_array_equal(policy.q_values(flat), policy.q_values(observation))
    np.testing.assert_array_equal(policy.q_values([flat])[0], policy.q_values(observation))


def test_numbers_of_other_kinds_become_floats(policies):
    _, policy = policies["catch"]
    ones = np.ones([50], np.float32)
    for value in ([1] * 50, ones.astype(np.float64), ones.astype(bool)):
        np.testing.assert_array_equal(policy.q_values(value), policy.q_values(ones))


def test_values_and_outputs_that_an_agent_has_not(policies):
    _, policy = policies["point_mass"]
    observations = observe(policy)
    with pytest.raises(ValueError, match="3 actions"):
        policy.value(observations, policy.act(observations[:3]))
    with pytest.raises(ValueError, match="action is"):
        policy.value(observations, np.zeros([5, 7]))
    with pytest.raises(ValueError, match="no action was given"):
        policy.value(observations)
    with pytest.raises(ValueError, match="an action was given"):
        policies["catch by A2C"][1].value(np.zeros([50]), 1)
    with pytest.raises(ValueError, match="logits"):
        policy.logits(observations)
    with pytest.raises(ValueError, match="q_values"):
        policies["catch"][1].value(np.zeros([50]))


def test_an_episode_in_the_environment_of_the_run(policies):
    _, policy = policies["catch"]
    with contextlib.closing(policy.make_environment(num_envs=3, seed=1)) as environment:
        timestep = environment.reset()
        while not (episodes := environment.finished_episodes()):
            timestep = environment.step(policy.act(timestep.observation))
    assert [episode.length for episode in episodes] == [9, 9, 9]


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
    assert isinstance(best, TrainedPolicy)
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
        ("misspelt", "best", "cacth"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, folder, checkpoint, message):
    monkeypatch.chdir(tmp_path)
    for name in ("catch", "point_mass"):
        make_run(tmp_path / name, *RUNS[name])
    make_run(tmp_path / "misspelt", *RUNS["catch"])
    config = tmp_path / "misspelt" / "config.json"
    config.write_text(config.read_text().replace('"catch"', '"cacth"'))
    with pytest.raises(ValueError, match=message):
        load(pathlib.Path(folder), checkpoint)
