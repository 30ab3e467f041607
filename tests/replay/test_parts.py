"""Observations of several parts with images among them: what the replay holds comes back whole."""

from __future__ import annotations

from typing import Any

import dm_env
import numpy as np
import pytest
from gymnasium import spaces

from apex_agents.acting.policy import PolicyOutput
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec, MaskedObservationSpec
from apex_agents.environments.actions import DiscreteActions
from apex_agents.environments.conversion import convert_observations
from apex_agents.environments.frames import find_frames
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.replay.config import ReplayConfig
from tests.r2d2.sequences import make_config as make_r2d2_config

SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (6, 5, 3), np.uint8),
        "map": spaces.Box(0, 1, (4, 4), np.bool_),
        "place": spaces.Discrete(3),
        "speed": spaces.Box(-10.0, 10.0, (2,), np.float32),
    }
)
NUM_PIXELS, NUM_OTHERS, NUM_ACTIONS = 6 * 5 * 3 + 4 * 4, 3 + 2, 4
LENGTHS = (1, 3, 12)  # Steps of the episodes.
REPLAY = ReplayConfig(max_size=1000, min_size=1, priority_exponent=0.0)


def make_spec(is_masked: bool) -> EnvironmentSpec:
    unmasked, _ = convert_observations(SPACE)
    actions = DiscreteActions(spaces.Discrete(NUM_ACTIONS))
    observations = unmasked
    if is_masked:
        observations = MaskedObservationSpec(unmasked, actions, "action_mask", True, SPACE)
    return EnvironmentSpec(observations, actions)


def make_builder(name: str) -> Any:
    if name == "r2d2":
        return R2D2Builder(make_r2d2_config(torso="auto", replay=REPLAY))
    return ApexDQNBuilder(
        ApexDQNConfig(torso="auto", frame_stack=0, n_step=3, batch_size=4, replay=REPLAY)
    )


def act(adder: Any, spec: EnvironmentSpec, state: tuple[np.ndarray, ...]) -> list[list[np.ndarray]]:
    """Add episodes; return their observations."""
    SPACE.seed(1)
    random = np.random.default_rng(0)
    _, convert = convert_observations(SPACE)
    episodes = []
    for length in LENGTHS:
        observations = []
        for step in range(length + 1):
            observation = convert(SPACE.sample())
            if isinstance(spec.observations, MaskedObservationSpec):
                legal = random.random(NUM_ACTIONS) < 0.5
                observation = spec.observations.join(observation, legal)
            observations.append(observation)
            make = dm_env.termination if step == length else dm_env.transition
            timestep = make(1.0, observation) if step else dm_env.restart(observation)
            adder.add(timestep, PolicyOutput(np.int32(1), np.zeros([]), np.zeros([]), state))
        episodes.append(observations)
    adder.flush()
    return episodes


@pytest.mark.parametrize("is_masked", [False, True], ids=["plain", "masked"])
def test_transitions_have_the_observations_of_acting(is_masked, serve):
    spec, builder = make_spec(is_masked), make_builder("dqn")
    client = serve(*builder.make_replay_tables(spec))
    (adder,) = builder.make_adders(client, spec)
    episodes = act(adder, spec, ())
    expected = {
        (episode[t].tobytes(), episode[min(t + 3, len(episode) - 1)].tobytes())
        for episode in episodes
        for t in range(len(episode) - 1)
    }
    found: set[tuple[bytes, bytes]] = set()
    for sample in builder.make_dataset(client, spec):
        data = sample.data
        assert data.observation.shape[1:] == spec.observations.shape
        pairs = zip(data.observation.numpy(), data.next_observation.numpy(), strict=True)
        found |= {(first.tobytes(), last.tobytes()) for first, last in pairs}
        if len(found) == adder.num_items:
            break
    assert found == expected and adder.num_items == sum(LENGTHS)


@pytest.mark.parametrize("is_masked", [False, True], ids=["plain", "masked"])
def test_sequences_have_the_observations_of_acting(is_masked, serve):
    spec, builder = make_spec(is_masked), make_builder("r2d2")
    client = serve(*builder.make_replay_tables(spec))
    (adder,) = builder.make_adders(client, spec)
    policy = builder.make_policy(spec, [0], 1, seed=0)
    state = tuple(np.zeros_like(part[0]) for part in policy._initial)
    episodes = act(adder, spec, state)
    whole = {b"".join(o.tobytes() for o in episode) for episode in episodes}
    found: set[bytes] = set()
    for sample in builder.make_dataset(client, spec):
        batch = sample.data
        for row, is_real in zip(
            batch.steps.observation.numpy(), batch.is_real.numpy(), strict=True
        ):
            found.add(row[is_real].tobytes())
        if len(found) == adder.num_items:
            break
    # Each is an episode, or a part of the longest one.
    assert all(any(part in episode for episode in whole) for part in found)
    assert adder.num_items == len(found) > len(LENGTHS)


@pytest.mark.parametrize(("is_masked", "num_masks"), [(False, 0), (True, NUM_ACTIONS)])
def test_pixels_take_a_byte_each_and_are_stored_once(is_masked, num_masks):
    spec = make_spec(is_masked)
    frames = find_frames(spec, 0)
    assert frames is not None and (frames.shape, frames.dtype) == ((NUM_PIXELS,), np.uint8)
    assert frames.rest_size == NUM_OTHERS + num_masks
    layout = make_builder("dqn").make_layout(spec)
    assert layout.signature["frames"].dtype == np.uint8
    assert layout.signature["frames"].shape == (3 + 1, NUM_PIXELS)
    assert layout.signature["outcome"].shape == (2 * (NUM_OTHERS + num_masks) + 5,)


def test_parts_that_are_not_finite_are_left_out(serve):
    spec, builder = make_spec(False), make_builder("dqn")
    client = serve(*builder.make_replay_tables(spec))
    (adder,) = builder.make_adders(client, spec)
    _, convert = convert_observations(SPACE)
    for step in range(10):
        observation = convert(SPACE.sample()).copy()
        if step == 5:
            observation[-1] = np.nan
        timestep = dm_env.transition(1.0, observation) if step else dm_env.restart(observation)
        adder.add(timestep, PolicyOutput(np.int32(1), np.zeros([]), np.zeros([])))
    adder.flush()
    # Of the transitions of three steps, one begins there and one ends there.
    assert (adder.num_items, adder.num_not_finite) == (5, 2)
