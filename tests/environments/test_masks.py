"""Tests of masks of legal actions: where environments say them, and what becomes of them."""

from __future__ import annotations

import pickle
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from apex_agents.environments import (
    EnvironmentConfig,
    EnvironmentSpec,
    adapt,
    find_spec_difference,
    has_mask,
    make_vector_environment,
    own_observations,
    record_spec,
    without_mask,
)
from apex_agents.environments.frames import find_frames

IMAGE = spaces.Box(0, 255, (4, 4, 1), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
NUM_ACTIONS = 3
# Masks of the steps of an episode, which terminates with the last one.
MASKS = ([1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0])


class Masked(gymnasium.Env):
    """Has the masks in `info`; takes no other action."""

    def __init__(self, space: spaces.Space = VECTOR, masks: Any = MASKS, name: str = "action_mask"):
        self.observation_space = space
        self.action_space = spaces.Discrete(NUM_ACTIONS, start=5)
        self._masks, self._name = masks, name
        self.num_resets = 0
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.num_resets += 1
        self.seeds.append(seed)
        self._step = 0
        return self._observe(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self._masks[self._step][action - 5] == 1
        self._step += 1
        is_end = self._step == len(self._masks) - 1
        return self._observe(), 1.0, is_end, False, self._info()

    def _observe(self) -> Any:
        return np.full(self.observation_space.shape, self._step / 4, self.observation_space.dtype)

    def _info(self) -> dict[str, Any]:
        mask = self._masks[self._step]
        return {} if mask is None else {self._name: np.array(mask, np.int8)}


class MaskedDict(Masked):
    """Has the masks in its observations."""

    def __init__(self, **parts: spaces.Space):
        super().__init__()
        self._parts = parts
        mask = spaces.Box(0, 1, (NUM_ACTIONS,), np.int8)
        self.observation_space = spaces.Dict({**parts, "action_mask": mask})

    def _observe(self) -> Any:
        parts = {k: np.full(s.shape, self._step / 4, s.dtype) for k, s in self._parts.items()}
        return {**parts, "action_mask": np.array(self._masks[self._step], np.int8)}

    def _info(self) -> dict[str, Any]:
        return {}


def make_dm_env() -> dm_env.Environment:
    """Make an environment of dm_env with masks in its observations."""
    timestep = dm_env.restart({"x": np.zeros(2, np.float32), "action_mask": np.array([1, 0, 1])})

    class Masks(dm_env.Environment):
        def reset(self) -> dm_env.TimeStep:
            return timestep

        def step(self, action: Any) -> dm_env.TimeStep:
            return dm_env.termination(1.0, timestep.observation)

        def observation_spec(self) -> Any:
            return {
                "x": specs.Array((2,), np.float32),
                "action_mask": specs.BoundedArray((NUM_ACTIONS,), np.int8, 0, 1),
            }

        def action_spec(self) -> Any:
            return specs.DiscreteArray(NUM_ACTIONS)

    return Masks()


def spec_of(environment: dm_env.Environment) -> EnvironmentSpec:
    return EnvironmentSpec(environment.observation_spec(), environment.action_spec())


def play(environment: dm_env.Environment, actions: list[int]) -> list[list[float]]:
    """Return the observations of an episode."""
    timesteps = [environment.reset(), *[environment.step(np.int32(a)) for a in actions]]
    assert timesteps[-1].last()
    return [timestep.observation.tolist() for timestep in timesteps]


EPISODE = [[step / 4, step / 4, *mask] for step, mask in enumerate(MASKS)]


def test_masks_in_info_are_behind_the_observations():
    own = Masked()
    environment = adapt(own, seed=3)
    assert play(environment, [0, 1, 1]) == EPISODE
    # To look for the mask, the first episode was begun; nothing was reset twice.
    assert (own.num_resets, own.seeds) == (1, [3])
    environment.reset()
    assert own.seeds == [3, None]
    spec = spec_of(environment)
    assert has_mask(spec) and spec.observations.shape == (2 + NUM_ACTIONS,)
    assert without_mask(spec).observations.space == VECTOR
    assert not has_mask(without_mask(spec))
    copied = pickle.loads(pickle.dumps(spec))
    assert copied == spec and copied.observations.in_info


def test_masks_in_observations_are_taken_out_of_them():
    for environment in (adapt(MaskedDict(x=VECTOR)), adapt(make_dm_env())):
        spec = spec_of(environment)
        assert has_mask(spec) and not spec.observations.in_info
        assert without_mask(spec).observations.shape == (2,)
        assert not without_mask(spec).observations.parts
    assert play(adapt(MaskedDict(x=VECTOR)), [0, 1, 1]) == EPISODE
    several = spec_of(adapt(MaskedDict(x=VECTOR, y=VECTOR)))
    assert [part.name for part in without_mask(several).observations.parts] == [
        "observation['x']",
        "observation['y']",
    ]


def test_images_stay_bytes_with_a_mask():
    environment = adapt(Masked(IMAGE))
    spec = spec_of(environment)
    assert (spec.observations.dtype, spec.observations.shape) == (np.uint8, (16 + NUM_ACTIONS,))
    assert environment.reset().observation.tolist() == [0] * 16 + MASKS[0]
    frames = find_frames(spec, 4)
    assert frames is not None and (frames.stack, frames.shape) == (0, spec.observations.shape)
    assert find_frames(spec_of(adapt(Masked())), 0) is None


@pytest.mark.parametrize(
    ("name", "entry", "is_masked"),
    [("action_mask", "action_mask", True), (None, "action_mask", False), ("legal", "legal", True)],
)
def test_a_mask_may_have_another_name_or_be_left_out(name, entry, is_masked):
    spec = spec_of(adapt(Masked(name=entry), action_mask=name))
    assert has_mask(spec) == is_masked


def test_no_mask_is_looked_for_where_there_is_none():
    own = Masked()
    own.action_space = spaces.Box(-1, 1, (2,))
    assert not has_mask(spec_of(adapt(own))) and own.num_resets == 0
    assert not has_mask(spec_of(adapt(gymnasium.make("CartPole-v1"))))


@pytest.mark.parametrize(
    ("environment", "name", "words"),
    [
        (Masked(), "legal", ["environment.action_mask is 'legal'", "info has ['action_mask']"]),
        (MaskedDict(x=VECTOR), "legal", ["a Dict observation ['action_mask', 'x']"]),
        (Masked(masks=[[1, 1]]), "action_mask", ["[1, 1]", "each of the 3 actions"]),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(environment, name, words):
    with pytest.raises(ValueError) as caught:
        adapt(environment, action_mask=name).reset()
    assert all(word in str(caught.value) for word in words)


def test_an_entry_of_another_size_is_refused():
    environment = MaskedDict(x=VECTOR)
    environment.action_space = spaces.Discrete(4)
    with pytest.raises(ValueError, match=r"\['action_mask'\] is Box.*4 actions.*action_mask=None"):
        adapt(environment)
    assert not has_mask(spec_of(adapt(environment, action_mask=None)))


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ([[1, 0, 0], [0, 0, 0], [1, 0, 0]], "no action is legal by 'action_mask', but the episode"),
        ([[1, 0, 0], None, [1, 0, 0]], "info has no 'action_mask'"),
        ([[1, 0, 0], [1, 0, 2], [1, 0, 0]], "has to hold a 0 or a 1"),
    ],
)
def test_a_state_without_a_legal_action_is_a_failure_of_the_environment(masks, words, caplog):
    config = EnvironmentConfig("function", f"{__name__}:Masked", {"masks": masks})
    environment = make_vector_environment(config, 1, 0, environment_fn=Masked)
    environment.reset()
    assert environment.step(np.zeros(1, np.int32)).step_type[0] == dm_env.StepType.FIRST
    assert environment.num_failures == 1
    assert words in caplog.text


def test_actions_are_not_repeated_with_a_mask():
    config = EnvironmentConfig("function", action_repeat=2)
    with pytest.raises(ValueError, match=r"environment.action_repeat is 2; it has to be 1"):
        make_vector_environment(config, 1, 0, environment_fn=Masked)


@pytest.mark.parametrize(("num_failures", "is_refused"), [(1, False), (2, False), (3, True)])
def test_a_first_reset_that_fails_is_tried_again(num_failures, is_refused):
    class Fails(Masked):
        def reset(self, **options: Any) -> tuple[Any, dict]:
            if self.num_resets < num_failures:
                self.num_resets += 1
                raise RuntimeError("not ready")
            return super().reset(**options)

    if is_refused:
        with pytest.raises(RuntimeError, match="not ready"):
            adapt(Fails())
    else:
        assert has_mask(spec_of(adapt(Fails())))


def test_a_mask_that_the_first_reset_lacks_is_an_error():
    environment = adapt(StepsOnly())
    environment.reset()
    with pytest.raises(ValueError, match="had none after the first reset"):
        environment.step(np.int32(0))
    unread = adapt(StepsOnly(), action_mask=None)
    unread.reset()
    assert unread.step(np.int32(0)).mid()


class StepsOnly(gymnasium.Env):
    """Has a mask in the `info` of steps alone, and no dict at all where it resets."""

    observation_space = VECTOR
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Any]:
        return np.zeros(2, np.float32), None

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return np.zeros(2, np.float32), 0.0, False, False, {"action_mask": [1, 0]}


def test_a_record_says_whether_there_is_a_mask():
    masked, plain = spec_of(adapt(Masked())), spec_of(adapt(Masked(), action_mask=None))
    difference = find_spec_difference(record_spec(plain), record_spec(masked))
    assert difference is not None and difference[0] == "observations"
    assert difference[2].endswith("with the mask 'action_mask'")
    assert find_spec_difference(record_spec(masked), record_spec(masked)) is None


def test_own_observations_of_a_dict_have_their_masks():
    environment = MaskedDict(x=VECTOR)
    convert = own_observations(adapt(environment).observation_spec()).convert
    first, second = environment.reset()[0], environment.step(5)[0]
    array, is_batch = convert(first)
    assert (array.tolist(), is_batch) == ([EPISODE[0]], False)
    both = {name: np.stack([first[name], second[name]]) for name in first}
    array, is_batch = convert(both)
    assert (array.tolist(), is_batch) == (EPISODE[:2], True)
