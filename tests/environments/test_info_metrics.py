"""Tests of numbers that environments report in `info`."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from apex_agents.environments import EnvironmentConfig, adapt, make_vector_environment
from apex_agents.environments.info_metrics import InfoMetrics
from apex_agents.validation import check_config
from tests.environments.test_masks import make_dm_env


class Reports(gymnasium.Env):
    """Ends after three steps; reports its step, a speed, and at the end whether it succeeded."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_episodes = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.step_number = 0
        self.num_episodes += 1
        return np.zeros(1, np.float32), {"x": 100.0, "speed": 100.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.step_number += 1
        is_end = self.step_number == 3
        info: dict[str, Any] = {"x": np.float64(self.step_number), "speed": [self.step_number * 2]}
        if is_end:
            info["is_success"] = self.num_episodes % 2 == 0
        return np.zeros(1, np.float32), 1.0, is_end, False, info


def test_the_last_value_or_the_mean_over_the_steps():
    metrics = InfoMetrics(["x", "mean(x)", "missing", "mean(missing)", "text"])
    assert metrics.names == ("is_success", "x", "mean(x)", "missing", "mean(missing)", "text")
    for number in (1.0, 2.0, 6.0):
        metrics.add({"x": number, "text": [[1], [1, 2]], "is_success": number > 5})
    assert dict(metrics.values()) == {"x": 6.0, "mean(x)": 3.0, "is_success": 1.0}
    metrics.begin()
    assert metrics.values() == ()
    metrics.add({"x": 4.0, "missing": math.nan})
    assert dict(metrics.values()) == {"x": 4.0, "mean(x)": 4.0}


@pytest.mark.parametrize("num_repeats", [1, 2])
def test_episodes_have_the_numbers_of_their_steps(num_repeats):
    config = EnvironmentConfig("function", metrics=("x", "mean(speed)"), action_repeat=num_repeats)
    environment = make_vector_environment(config, 1, 0, environment_fn=Reports)
    assert environment.metric_names == ("is_success", "x", "mean(speed)")
    environment.reset()
    episodes = []
    while len(episodes) < 2:
        environment.step(np.zeros(1, np.int32))
        episodes += environment.finished_episodes()
    # What a reset reports is no step's.
    assert [dict(episode.metrics) for episode in episodes] == [
        {"is_success": 0.0, "x": 3.0, "mean(speed)": 4.0},
        {"is_success": 1.0, "x": 3.0, "mean(speed)": 4.0},
    ]


def test_environments_without_info_report_nothing():
    environment = adapt(make_dm_env())
    assert (environment.metric_names, environment.episode_metrics()) == ((), ())
    with pytest.raises(
        ValueError, match=r"environment.metrics are \['x'\], but dm_env has no `info`"
    ):
        adapt(make_dm_env(), metrics=("x",))


@pytest.mark.parametrize("name", ["max(distance)", "mean()", "mean(x", "", "x,y", 'a"b', "x\ny"])
def test_names_that_mean_nothing_are_refused(name):
    config = EnvironmentConfig("gymnasium", "CartPole-v1", metrics=("x", name))
    with pytest.raises(ValueError, match=r"'name' or 'mean\(name\)'"):
        check_config(config)
