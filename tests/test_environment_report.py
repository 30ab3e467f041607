"""Tests of what is said of an environment before any training."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from apex_agents import check
from tests.environments.test_masks import MaskedDict, make_dm_env

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
DICT = spaces.Dict(camera=spaces.Box(0, 255, (20, 20, 3), np.uint8), speed=VECTOR)


class Sampler(gymnasium.Env):
    """Observes samples of a space; rewards and ends as it is told."""

    def __init__(
        self,
        space: spaces.Space = VECTOR,
        actions: spaces.Space | None = None,
        reward: float = 1.0,
        length: int | None = 10,
        ends: tuple[bool, bool] = (True, False),
        seeded: bool = True,
        factor: float = 1.0,
        is_noisy: bool = False,
    ):
        self.observation_space = space
        self.action_space = actions or spaces.Discrete(4)
        self._reward, self._length, self._ends = reward, length, ends
        self._seeded, self._factor, self._is_noisy = seeded, factor, is_noisy

    def reset(self, *, seed=None, options=None):
        if self._seeded and seed is not None:
            self.observation_space.seed(seed)
        self._num_steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._num_steps += 1
        is_end = self._num_steps == self._length
        ends = self._ends if is_end else (False, False)
        if self._is_noisy:
            self._factor = random.random()
        return self._observe(), self._reward, *ends, {}

    def _observe(self):
        observation = self.observation_space.sample()
        return observation if isinstance(observation, dict) else observation * self._factor


class Fails(Sampler):
    def step(self, action):
        if self._num_steps == 3:
            raise RuntimeError("the simulator has gone")
        return super().step(action)


def test_what_agents_make_of_an_environment():
    report = check(Sampler, num_steps=100, length=10, ends=(False, True))
    assert report.warnings == []
    rows = report.rows
    assert rows["space"].startswith("Box(-1.0, 1.0, (3,)") and rows["observations"] == "float32 [3]"
    assert rows["actions"] == "discrete, 4 of them"
    assert all(name in rows["agents"] for name in ("apex-dqn", "apex-r2d2", "apex-a2c"))
    assert rows["network"] == "fully connected layers (agent.torso=auto)"
    assert rows["episodes"] == "9 truncated; lengths 10 (10 to 10), returns 10 (10 to 10)"
    assert rows["rewards"] == "1 (1 to 1)"
    lines = str(report).splitlines()
    assert len(lines) == len(rows) and max(map(len, lines)) < 170


def test_images_pass_convolutions_and_take_bytes():
    rows = check(Sampler(DICT)).rows
    assert "['camera']: uint8 [20, 20, 3]" in rows["observations"]
    assert rows["network"].startswith("convolutions: 16 of 3 x 3")
    assert float(rows["replay"].partition(" kB")[0]) < 4


def test_masks_are_said_and_kept():
    rows = check(lambda: MaskedDict(x=VECTOR), num_steps=50).rows
    assert "with the mask 'action_mask'" in rows["observations"]
    assert "Only legal actions are taken, by 'action_mask' of the observation" in rows["actions"]
    assert rows["legal"] == "56% of the actions, 33% at least"
    assert "legal" in check(make_dm_env, num_steps=10).rows


def test_combinations_are_counted():
    rows = check(Sampler(actions=spaces.MultiDiscrete([3, 4, 2]))).rows
    assert rows["actions"] == "discrete, 24 of them, combinations of [3, 4, 2]"


def test_boxes_are_for_dpg():
    report = check(Sampler(actions=spaces.Box(-2.0, 2.0, (1,), np.float32)))
    assert report.rows["agents"] == "Ape-X DPG (apex-dpg)"
    assert report.rows["actions"].endswith("between [-2.0] and [2.0], for agents between -1 and 1")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"length": None}, "No episode ended within"),
        ({"reward": 0.0}, "All rewards were 0"),
        ({"reward": -50.0}, "Rewards have numbers up to 50"),
        ({"factor": 500.0}, "agent.normalize_observations=True"),
        ({"space": spaces.Box(0, 2**30, (2,), np.int64), "factor": 1}, "agents observe float32"),
        ({"seeded": False}, "Two environments of the same seed differ"),
        ({"is_noisy": True}, "Two environments of the same seed differ after the same actions"),
        ({"length": 10}, "All 9 episodes terminated after 10 steps"),
        ({"space": spaces.Box(0, 255, (8, 8, 3))}, "let their space be uint8"),
    ],
)
def test_what_makes_learning_hard_is_a_warning(settings, words):
    warnings = check(Sampler, num_steps=100, **settings).warnings
    assert any(words in warning for warning in warnings)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (lambda: Sampler(spaces.Dict(text=spaces.Text(9))), "is a Text space"),
        (lambda: Sampler(actions=spaces.MultiDiscrete([7, 11, 13])), "1,001 combinations"),
        (lambda: Sampler(actions=spaces.Box(-np.inf, np.inf, (1,))), "infinite bounds"),
        (lambda: Fails(), "the simulator has gone"),
        ("Nowhere-v0", "unknown gymnasium task"),
        ("nowhere:Nothing", "nowhere"),
    ],
)
def test_what_no_agent_can_learn_in_is_refused(environment, words):
    with pytest.raises(ValueError, match=words):
        check(environment, num_steps=100)


def test_names_as_tasks_have_them():
    by_id = check("CartPole-v1", num_steps=20)
    assert by_id.rows["observations"] == "float32 [4]"
    by_name = check(f"{__name__}:Sampler", num_steps=20, length=3)
    assert "lengths 3 (3 to 3)" in by_name.rows["episodes"]


def test_an_environment_that_is_made_takes_no_arguments():
    with pytest.raises(ValueError, match=r"kwargs is \{'length': 3\}"):
        check(Sampler(), length=3)
    with pytest.raises(ValueError, match=r"neither a gymnasium.Env .* an argument num_envs"):
        check(gymnasium.make_vec("CartPole-v1", 2))
