"""Tests of the names that calls of environments have while they last."""

from __future__ import annotations

import math
from typing import Any

import dm_env
import numpy as np
import pytest

from apex_agents.environments import Catch, EnvironmentConfig, make_vector_environment
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.waits import NodeMemory, Wait


class Looking(Catch):
    """Catch that notes how each of its calls looks from outside."""

    def __init__(self, memory: NodeMemory):
        super().__init__(seed=0)
        self._memory = memory
        self.waits: list[Wait] = [memory.wait()]

    def reset(self) -> dm_env.TimeStep:
        self.waits.append(self._memory.wait())
        return super().reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        self.waits.append(self._memory.wait())
        return super().step(action)


def play(environment: dm_env.Environment, num_steps: int, **settings: Any) -> None:
    vector = SyncVectorEnvironment([environment], **settings)
    vector.reset()
    for _ in range(num_steps):
        vector.step(np.array([1]))


@pytest.mark.parametrize("num_repeats", [1, 3])
def test_a_step_after_the_last_one_is_a_reset(memory, num_repeats):
    looking = Looking(memory)
    play(looking, num_steps=-(-9 // num_repeats) + 2, num_repeats=num_repeats)
    calls = [wait.what.removeprefix("environment 0 to return from ") for wait in looking.waits[1:]]
    # An episode of Catch has nine steps.
    assert calls == ["reset", *["step"] * 9, "reset", *["step"] * num_repeats]
    assert {wait.limit_seconds for wait in looking.waits[1:]} == {math.inf}
    assert memory.wait() is None


def make_looking(memory: NodeMemory) -> Looking:
    return MADE.append(Looking(memory)) or MADE[-1]


MADE: list[Looking] = []


def test_all_environments_of_a_node_are_watched_with_their_indices_and_the_limit(memory):
    config = EnvironmentConfig("function", "looking", step_timeout_seconds=90.0)
    MADE.clear()
    environment = make_vector_environment(
        config, 2, seed=0, environment_fn=lambda: make_looking(memory)
    )
    environment.reset()
    environment.step(np.array([1, 1]))
    for index, looking in enumerate(MADE):
        made, *calls = looking.waits
        assert (made.what, made.limit_seconds) == (f"environment {index} to be made", math.inf)
        assert [wait.what.split(" (")[0] for wait in calls] == [
            f"environment {index} to return from reset",
            f"environment {index} to return from step",
        ]
        assert {wait.limit_seconds for wait in calls} == {90.0}


def test_emulators_are_watched_together(memory, monkeypatch):
    config = EnvironmentConfig("atari", "pong", step_timeout_seconds=90.0)
    environment = make_vector_environment(config, 2, seed=0)
    environment.reset()
    waits = []
    step = environment._native.step
    monkeypatch.setattr(
        environment._native, "step", lambda actions: waits.append(memory.wait()) or step(actions)
    )
    environment.step(np.zeros(2, int))
    environment.close()
    (wait,) = waits
    assert wait.what.startswith("the emulators to return from step")
    assert wait.limit_seconds == 90.0
    assert memory.wait() is None
