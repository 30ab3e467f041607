"""Tests of environments that come many at once, beside those that are stepped one by one."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, vector
from gymnasium.vector.utils import batch_space

from apex_agents.environments import (
    EnvironmentConfig,
    SyncVectorEnvironment,
    VectorEnvironment,
    adapt,
    has_mask,
    make_vector_environment,
)
from tests.environments.test_info_metrics import Reports
from tests.environments.test_masks import MASKS, Masked, MaskedDict, StepsOnly

NUM_ENVS, SEED = 3, 7
MODES = pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])


def make_cartpoles(num_envs: int, mode: str = "NextStep") -> vector.VectorEnv:
    kwargs = {"autoreset_mode": vector.AutoresetMode(mode)}
    return gymnasium.make_vec(
        "CartPole-v1",
        num_envs,
        vectorization_mode="sync",
        vector_kwargs=kwargs,
        max_episode_steps=30,
    )


def make_same_step(num_envs: int) -> vector.VectorEnv:
    return make_cartpoles(num_envs, "SameStep")


def make_disabled(num_envs: int) -> vector.VectorEnv:
    return make_cartpoles(num_envs, "Disabled")


def make_batch(environment_fn: Any, num_envs: int = NUM_ENVS, **fields: Any) -> VectorEnvironment:
    config = EnvironmentConfig("function", "mine", **fields)
    return make_vector_environment(config, num_envs, SEED, environment_fn=environment_fn)


def batch_of(make: Any, mode: str = "NextStep") -> Any:
    """Return a function that makes many environments of gymnasium."""

    def make_many(num_envs: int) -> vector.VectorEnv:
        return vector.SyncVectorEnv([make] * num_envs, autoreset_mode=mode)

    return make_many


def assert_equal_steps(batched: VectorEnvironment, single: VectorEnvironment, steps: int) -> None:
    """Step both with the same actions; all time steps and episodes are equal."""
    random = np.random.default_rng(0)
    pairs = [(batched.reset(), single.reset())]
    for _ in range(steps):
        actions = random.integers(2, size=NUM_ENVS).astype(np.int32)
        pairs.append((batched.step(actions), single.step(actions)))
        for found, expected in zip(*pairs[-1], strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    assert batched.finished_episodes() == single.finished_episodes() != []


def make_single_cartpoles() -> VectorEnvironment:
    seed = int(np.random.SeedSequence(SEED).spawn(NUM_ENVS)[0].generate_state(1)[0]) >> 1
    return SyncVectorEnvironment(
        [
            adapt(gymnasium.make("CartPole-v1", max_episode_steps=30), seed=seed + i)
            for i in range(NUM_ENVS)
        ]
    )


def test_cartpoles_at_once_are_those_one_by_one():
    batched, single = make_batch(make_cartpoles), make_single_cartpoles()
    assert batched.spec == single.spec
    assert_equal_steps(batched, single, 200)  # Some end by their limit of steps.


def play_each(environment: VectorEnvironment, num_steps: int) -> tuple[list[Any], list[Any]]:
    """Return the time steps and the episodes of each, where observations decide the actions."""
    steps: list[list[Any]] = [[] for _ in range(environment.num_envs)]
    episodes: list[list[Any]] = [[] for _ in steps]

    def see(timestep: dm_env.TimeStep, rows: Any) -> None:
        for i in np.flatnonzero(rows):
            steps[i].append([field[i].tolist() for field in timestep])

    timestep = environment.reset()
    see(timestep, [True] * len(steps))
    for _ in range(num_steps):
        actions = (1e4 * np.abs(timestep.observation).sum(axis=1)).astype(np.int32) % 2
        timestep = environment.step(actions)
        see(timestep, [True] * len(steps))
        begun = environment.begin_episodes()
        if begun is not None:
            is_first = begun.step_type == dm_env.StepType.FIRST
            assert (is_first == (timestep.step_type == dm_env.StepType.LAST)).all()
            for field, before in zip(begun, timestep, strict=True):
                np.testing.assert_array_equal(field[~is_first], before[~is_first])
            see(begun, is_first)
            timestep = begun
        for episode in environment.finished_episodes():
            episodes[episode.env_index].append(episode)
    return steps, episodes


@pytest.mark.parametrize("make", [make_same_step, make_disabled])
def test_episodes_that_begin_at_once_are_those_of_the_next_step(make):
    steps, episodes = play_each(make_batch(make), 200)
    expected_steps, expected_episodes = play_each(make_single_cartpoles(), 200)
    ends: list[Any] = []
    for i in range(NUM_ENVS):
        assert len(steps[i]) > len(expected_steps[i])  # No lock-step is lost at an end.
        assert steps[i][: len(expected_steps[i])] == expected_steps[i]
        assert episodes[i][: len(expected_episodes[i])] == expected_episodes[i]
        ends += [discount for kind, _, discount, _ in steps[i] if kind == dm_env.StepType.LAST]
    assert {0.0, 1.0} == set(ends)


@pytest.mark.parametrize("make", [make_same_step, make_disabled])
def test_the_next_step_needs_episodes_that_have_begun(make):
    environment = make_batch(make)
    environment.reset()
    with pytest.raises(RuntimeError, match="begin_episodes"):
        for _ in range(30):
            environment.step(np.zeros(NUM_ENVS, np.int32))


def with_metadata(metadata: dict[str, Any], make: Any = make_cartpoles) -> Any:
    """Return a function that makes environments which say other things about themselves."""

    def make_many(num_envs: int) -> vector.VectorEnv:
        environment = make(num_envs)
        environment.metadata = environment.metadata | metadata
        return environment

    return make_many


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (vector.AutoresetMode.SAME_STEP, "info has no 'final_obs'"),
        (vector.AutoresetMode.DISABLED, "for environments outside of the mask"),
    ],
)
def test_a_mode_that_is_not_kept_is_an_error(mode, words):
    environment = make_batch(
        with_metadata({"autoreset_mode": mode}, lambda num_envs: ResetsAll(make_disabled(num_envs)))
    )
    with pytest.raises(ValueError, match=words):
        play_each(environment, 30)


def test_an_environment_that_resets_sooner_than_it_says_is_an_error():
    mode = {"autoreset_mode": vector.AutoresetMode.NEXT_STEP}
    environment = make_batch(with_metadata(mode, make_same_step))
    with pytest.raises(ValueError, match="info has 'final_obs', as with SAME_STEP"):
        play_each(environment, 30)


class BeforeOne(vector.VectorWrapper):
    """Names the last observations as environments did before gymnasium 1.0, which had no mode."""

    def step(self, actions):
        *rest, info = self.env.step(actions)
        return *rest, {key.replace("final_obs", "final_observation"): info[key] for key in info}


def test_an_environment_that_resets_at_once_and_does_not_say_so_is_an_error(caplog):
    def make_old(num_envs: int) -> vector.VectorEnv:
        environment = BeforeOne(make_same_step(num_envs))
        environment.metadata = {}
        return environment

    environment = make_batch(make_old)
    assert "does not say in its metadata['autoreset_mode'] when episodes begin" in caplog.text
    with pytest.raises(ValueError, match="info has 'final_observation', as with SAME_STEP"):
        play_each(environment, 30)


class Late(StepsOnly):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return super().reset()[0], {}


def test_masks_that_the_first_reset_lacks_are_an_error():
    environment = make_batch(batch_of(Late))
    environment.reset()
    with pytest.raises(ValueError, match="'action_mask', but had none after the first reset"):
        environment.step(np.zeros(NUM_ENVS, np.int32))
    unread = make_batch(batch_of(Late), action_mask=None)
    unread.reset()
    step_type = unread.step(np.zeros(NUM_ENVS, np.int32)).step_type
    assert (step_type == dm_env.StepType.MID).all()


class ResetsAll(vector.VectorWrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed)


def test_a_reset_of_others_is_an_error_with_masks_too():
    class Apart(Masked):
        """Ends after a step, every other one of them."""

        number = 0

        def __init__(self) -> None:
            super().__init__()
            Apart.number += 1
            self._length = 1 + Apart.number % 2

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, self._step == self._length, False, info

    many = batch_of(Apart, "Disabled")
    environment = make_batch(lambda num_envs: ResetsAll(many(num_envs)))
    environment.reset()
    environment.step(np.zeros(NUM_ENVS, np.int32))
    with pytest.raises(ValueError, match="for environments outside of the mask"):
        environment.begin_episodes()


class Finals(vector.VectorWrapper):
    """Gives the ends of episodes in the ways that batched simulators have."""

    def __init__(self, environment: vector.VectorEnv, **finals: Any):
        super().__init__(environment)
        self._finals = finals

    def step(self, actions):
        *rest, info = self.env.step(actions)
        if "final_obs" in info:
            info = {**info, **{key: make(info) for key, make in self._finals.items()}}
        return *rest, info


def make_finals(make: Any, **finals: Any) -> VectorEnvironment:
    many = batch_of(make, "SameStep")
    return make_batch(lambda num_envs: Finals(many(num_envs), **finals), metrics=("x",))


@pytest.mark.parametrize(
    "final_obs",
    [
        lambda info: np.stack(info["final_obs"]),  # All end at once.
        lambda info: np.array(list(info["final_obs"]), object),
        lambda info: list(info["final_obs"]),
    ],
)
def test_final_observations_may_have_any_form(final_obs):
    class Ends(Masked):
        def _observe(self):
            return np.full(2, self._step, np.float32)

    environment = make_finals(Ends, final_obs=final_obs)
    environment.reset()
    for action in (0, 1, 1):
        timestep = environment.step(np.full(NUM_ENVS, action, np.int32))
    assert timestep.observation[:, 0].tolist() == [3.0] * NUM_ENVS


@pytest.mark.parametrize("final_info", [None, np.array([{}] * NUM_ENVS, object)])
@pytest.mark.parametrize("make", [Masked, Reports])
def test_info_at_the_end_is_not_lost_in_silence(make, final_info):
    environment = make_finals(make, final_info=lambda info: final_info)
    environment.reset()
    with pytest.raises(ValueError, match=r"info\['final_info'\] has to be a dict of arrays"):
        for action in (0, 1, 1):
            environment.step(np.full(NUM_ENVS, action, np.int32))


@pytest.mark.parametrize("make", [Masked, lambda: MaskedDict(x=Masked().observation_space)])
@MODES
def test_masks_join_the_observations(make, mode):
    environment = make_batch(batch_of(make, mode))
    assert has_mask(environment.spec)
    rows = [environment.reset().observation]
    for action in (0, 1, 1):
        rows.append(environment.step(np.full(NUM_ENVS, action, np.int32)).observation)
    expected = [[step / 4, step / 4, *mask] for step, mask in enumerate(MASKS)]
    assert np.stack(rows)[:, 1].tolist() == expected
    timestep = environment.begin_episodes() or environment.step(np.zeros(NUM_ENVS, np.int32))
    assert timestep.observation[1].tolist() == expected[0]


def test_a_state_without_a_legal_action_is_an_error():
    environment = make_batch(batch_of(lambda: Masked(masks=[[1, 0, 0], [0, 0, 0], [1, 0, 0]])))
    environment.reset()
    with pytest.raises(ValueError, match="no action is legal by 'action_mask'"):
        environment.step(np.zeros(NUM_ENVS, np.int32))


@MODES
def test_numbers_of_info_are_those_of_each_episode(mode):
    environment = make_batch(batch_of(Reports, mode), metrics=("x", "mean(speed)"))
    environment.reset()
    for _ in range(3):
        environment.step(np.zeros(NUM_ENVS, np.int32))
    episodes = environment.finished_episodes()
    assert len(episodes) == NUM_ENVS
    assert dict(episodes[1].metrics) == {"is_success": 0.0, "x": 3.0, "mean(speed)": 4.0}
    assert environment.metric_names == ("is_success", "x", "mean(speed)")


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 4, 2]),
        spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)]),
        spaces.Box(-2.0, 2.0, (2,), np.float32),
    ],
)
def test_actions_have_the_form_of_the_space(space):
    class Takes(Masked):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            assert self.action_space.contains(action), action
            return self._observe(), 1.0, False, False, {}

    environment = make_batch(batch_of(Takes), action_mask=None)
    environment.reset()
    actions = environment.spec.actions
    batch = np.zeros([NUM_ENVS, *actions.shape], actions.dtype)
    assert environment.step(batch).reward.tolist() == [1.0] * NUM_ENVS


@MODES
def test_dicts_are_converted_row_by_row(mode):
    def make() -> gymnasium.Env:
        return MaskedDict(x=Masked().observation_space, y=Masked().observation_space)

    environment = make_batch(batch_of(make, mode), action_mask=None)
    rows = [environment.reset().observation]
    assert rows[0].shape == (NUM_ENVS, 3 + 2 + 2)
    for action in (0, 1, 1):
        rows.append(environment.step(np.full(NUM_ENVS, action, np.int32)).observation)
    assert [row[1, -1] for row in rows] == [step / 4 for step in range(4)]


@pytest.mark.parametrize(
    ("make", "fields", "words"),
    [
        (with_metadata({"autoreset_mode": "same"}), {}, "'same'.*gymnasium.vector.AutoresetMode"),
        (lambda num_envs: make_cartpoles(num_envs + 1), {}, "returns 4 environments, not 3"),
        (lambda num_envs: gymnasium.make("CartPole-v1"), {}, "not a VectorEnv"),
        (make_cartpoles, {"action_repeat": 2}, "action_repeat is 2"),
        (make_cartpoles, {"max_episode_steps": 9}, "max_episode_steps is 9"),
        (batch_of(Masked), {"action_mask": "legal"}, "^environment.action_mask is 'legal', but"),
    ],
)
def test_what_cannot_be_is_refused(make, fields, words):
    with pytest.raises(ValueError, match=words):
        make_batch(make, **fields)


def normalize_rewards(num_envs: int) -> vector.VectorEnv:
    normalized = gymnasium.wrappers.vector.NormalizeReward(make_cartpoles(num_envs))
    return gymnasium.wrappers.vector.ClipReward(normalized, -1.0, 1.0)


def make_normalized() -> gymnasium.Env:
    return gymnasium.wrappers.NormalizeReward(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("name", ["NormalizeReward", "NormalizeObservation"])
def test_running_statistics_in_other_processes_are_refused(name):
    wrapper = getattr(gymnasium.wrappers, name)

    def make_one(is_frozen: bool) -> gymnasium.Env:
        environment = wrapper(gymnasium.make("CartPole-v1"))
        environment.update_running_mean = not is_frozen
        return environment

    def make_many(num_envs: int, make: Any) -> vector.VectorEnv:
        return vector.AsyncVectorEnv(num_envs * [make])

    with pytest.raises(ValueError, match="keep running statistics"):
        make_batch(functools.partial(make_many, make=lambda: make_one(False)))
    for make in (lambda: make_one(True), lambda: gymnasium.make("CartPole-v1")):
        make_batch(functools.partial(make_many, make=make)).close()


@pytest.mark.parametrize("make", [normalize_rewards, batch_of(make_normalized)])
def test_running_statistics_of_their_own_are_refused(make):
    with pytest.raises(ValueError, match=r"NormalizeReward.*agent.normalize_observations=True"):
        make_batch(make)


class Given(vector.VectorEnv):
    """Returns the same observation, reward and ends at each step."""

    def __init__(self, space: spaces.Space, observation: Any, **columns: Any):
        self.num_envs = NUM_ENVS
        self.single_observation_space, self.single_action_space = space, spaces.Discrete(2)
        self.observation_space = batch_space(space, NUM_ENVS)
        self.action_space = batch_space(self.single_action_space, NUM_ENVS)
        self._observations = np.stack(NUM_ENVS * [np.asarray(observation)])
        zeros = {"reward": np.ones(NUM_ENVS), "terminated": np.zeros(NUM_ENVS, bool)}
        self._columns = {**zeros, "truncated": np.zeros(NUM_ENVS, bool), **columns}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observations, {}

    def step(self, actions: Any) -> Any:
        return self._observations, *self._columns.values(), {}


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (spaces.Box(0, 255, (2, 2), np.uint8), np.full([2, 2], 0.5), "holds 0.5"),
        (spaces.Box(0, 255, (2,), np.uint8), [300, 1], "holds 300"),
        (spaces.Box(0, 255, (2,), np.uint8), [-1, 1], "holds -1"),
        (spaces.Box(-5, 5, (2,), np.int8), [1, 300], "holds 300"),
        (spaces.Discrete(3), 3, r"holds 3, its space is Discrete\(3\)"),
        (spaces.Discrete(3, start=1), 1.5, "holds 1.5"),
    ],
)
def test_observations_outside_of_their_space_are_an_error(space, observation, words):
    environment = make_batch(lambda num_envs: Given(space, observation))
    with pytest.raises(ValueError, match=words):
        environment.reset()


@pytest.mark.parametrize(
    ("space", "observation", "seen"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3, 255], np.int64), [3, 255]),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([0.5, 1.5]), [0.5, 1.5]),
        (spaces.Discrete(3, start=1), 3, [0, 0, 1]),
        (spaces.MultiBinary([2, 2]), [[1, 0], [0, 1]], [1, 0, 0, 1]),
    ],
)
def test_observations_may_have_another_dtype(space, observation, seen):
    environment = make_batch(lambda num_envs: Given(space, observation))
    rows = environment.reset().observation
    assert rows.tolist() == NUM_ENVS * [seen]
    assert rows.dtype == environment.spec.observations.dtype


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated"])
@pytest.mark.parametrize("shape", [(), (NUM_ENVS, 1), (NUM_ENVS + 1,)])
def test_columns_of_another_shape_are_an_error(name, shape):
    space, zeros = spaces.Box(-1, 1, (2,)), np.zeros(shape, float if name == "reward" else bool)
    environment = make_batch(lambda num_envs: Given(space, [0.0, 0.0], **{name: zeros}))
    environment.reset()
    with pytest.raises(ValueError, match=rf"{name} has the shape {re.escape(str(shape))}, not \(3"):
        environment.step(np.zeros(NUM_ENVS, np.int32))


def test_numbers_that_are_not_finite_are_an_error():
    class Breaks(Masked):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
            return self._observe(), math.inf, False, False, {}

    environment = make_batch(batch_of(Breaks), action_mask=None)
    environment.reset()
    with pytest.raises(ValueError, match="not finite"):
        environment.step(np.zeros(NUM_ENVS, np.int32))
