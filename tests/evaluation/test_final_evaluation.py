"""Tests of evaluations of saved parameters: episodes, videos, and the report."""

import dataclasses
import functools
import json
import pathlib
from typing import Any

import gymnasium
import numpy as np
import pytest

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import (
    AtariConfig,
    EnvironmentConfig,
    Episode,
    make_vector_environment,
)
from apex_agents.evaluation.final_evaluation import (
    Request,
    Result,
    describe,
    evaluate,
    summarise,
    to_csv,
)
from apex_agents.experiment import Experiment
from apex_agents.replay.messages import to_arrays
from apex_agents.runs.parameter_file import (
    SavedParameters,
    by_variable_name,
    read_parameters,
    save_parameters,
)

EXPLORATION = ExplorationConfig(evaluation_epsilon=0.5)
MLP = ApexDQNConfig(
    torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0, exploration=EXPLORATION
)
ATARI = ApexDQNConfig(stream_hidden_size=8, exploration=EXPLORATION)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))

# Games of at most 150 agent steps.
SHORT = AtariConfig(evaluation_max_frames=600, sticky_action_probability=0.25)

TASKS = {
    "catch": (ApexDQNBuilder(MLP), EnvironmentConfig("toy", "catch")),
    "cartpole": (ApexDQNBuilder(MLP), EnvironmentConfig("gymnasium", "CartPole-v1")),
    "breakout": (ApexDQNBuilder(ATARI), EnvironmentConfig(task="breakout", atari=SHORT)),
    "point_mass": (ApexDPGBuilder(DPG), EnvironmentConfig("toy", "point_mass")),
}


def make_experiment(task: str, folder: pathlib.Path) -> tuple[Experiment, SavedParameters]:
    """Return an experiment and parameters for it."""
    builder, environment = TASKS[task]
    make = functools.partial(make_vector_environment, environment)
    experiment = Experiment(builder, make, RunConfig(), task=task)
    policy = builder.make_evaluation_policy(experiment.environment_spec(), 1, seed=3)
    parameters = by_variable_name(policy.variables, to_arrays(policy.variables))
    save_parameters(folder / "best.npz", parameters, 1234)
    return experiment, read_parameters(folder / "best.npz")


@pytest.mark.parametrize("task", TASKS)
def test_equal_seeds_give_equal_episodes(task, tmp_path):
    experiment, parameters = make_experiment(task, tmp_path)
    first = evaluate(experiment, Request(parameters, 12, seed=7))
    again = evaluate(experiment, Request(parameters, 12, seed=7, videos=[tmp_path / "0.mp4"]))
    other = evaluate(experiment, Request(parameters, 12, seed=8))
    assert first.episodes == again.episodes != other.episodes
    assert [episode.env_index for episode in first.episodes] == list(range(12))
    assert len({episode._replace(env_index=0) for episode in first.episodes}) > 1
    assert (first.videos, again.videos) == ([], [tmp_path / "0.mp4"])


def test_more_episodes_than_environments(tmp_path):
    experiment, parameters = make_experiment("cartpole", tmp_path)
    seen: list[Episode] = []
    videos = [tmp_path / "0.mp4"]
    request = Request(parameters, 50, seed=0, videos=videos)
    result = evaluate(experiment, request, seen.extend, max_envs=20)
    indices = [episode.env_index for episode in result.episodes]
    assert indices == [*range(20), *range(20), *range(10)]
    assert sorted(seen) == sorted(result.episodes)
    assert result.videos == videos  # Only the first group is filmed.
    groups = [result.episodes[start : start + 10] for start in (0, 20, 40)]
    assert len({tuple(group) for group in groups}) == 3


def make_result(*returns: float) -> Result:
    episodes = [Episode(i, r, min(r, 1.0), 3 + i) for i, r in enumerate(returns)]
    return Result(episodes, [])


def make_config(task: str) -> ExperimentConfig:
    return ExperimentConfig(ATARI, EnvironmentConfig(task=task), RunConfig())


REQUEST = Request(SavedParameters(pathlib.Path("a/last.npz"), {}, 1234), 4, seed=1)


def test_a_summary_by_hand():
    summary = summarise(make_config("Breakout"), REQUEST, make_result(1.7, 30.5, 59.3, 16.1))
    assert summary == {
        "suite": "atari",
        "task": "Breakout",
        "checkpoint": "last",
        "learner_steps": 1234,
        "seed": 1,
        "epsilon": 0.5,
        "episodes": 4,
        "environment_failures": 0,
        "mean_return": pytest.approx(107.6 / 4),
        # Deviations from 26.9: -25.2, 3.6, 32.4, -10.8.
        "standard_error": pytest.approx(((635.04 + 12.96 + 1049.76 + 116.64) / 3 / 4) ** 0.5),
        "median_return": pytest.approx((16.1 + 30.5) / 2),
        "min_return": 1.7,
        "max_return": 59.3,
        "mean_length": (3 + 4 + 5 + 6) / 4,
        "rules": {
            "max_noops": 30,
            "max_frames": 108_000,
            "action_repeat": 4,
            "sticky_action_probability": 0.0,
        },
        "departures_from_the_paper": [],
        "human_normalized": {
            "mean": pytest.approx(25.2 / 28.8),
            "median": pytest.approx(0.75),
            "paper": pytest.approx(799.2 / 28.8),
        },
        "reference_scores": {"random": 1.7, "human": 30.5, "paper": 800.9},
    }
    lines = dict(describe(summary))
    assert lines["parameters"] == "last, learner step 1,234"
    assert lines["mean return"] == "26.90 ± 12.30"
    assert lines["human-normalized"] == "mean 87.5%, median 75.0%"
    assert lines["in the paper"] == "800.9 (2775.0%)"
    assert "failures" not in lines


def test_episodes_that_the_environment_broke_off_are_counted(tmp_path):
    class Breaks(gymnasium.Wrapper):
        num_steps = 0

        def step(self, action: Any) -> Any:
            self.num_steps += 1
            if self.num_steps == 2:
                raise RuntimeError("it fell over")
            return super().step(action)

    experiment, parameters = make_experiment("cartpole", tmp_path)
    experiment = dataclasses.replace(
        experiment,
        make_vector_environment=functools.partial(
            make_vector_environment,
            EnvironmentConfig("function", "Breaks"),
            environment_fn=lambda: Breaks(gymnasium.make("CartPole-v1")),
        ),
    )
    result = evaluate(experiment, Request(parameters, 5, seed=0), max_envs=3)
    assert (len(result.episodes), result.num_failures) == (5, 5)
    summary = summarise(make_config("Breakout"), REQUEST, result)
    assert summary["environment_failures"] == 5
    assert dict(describe(summary))["failures"].startswith("5 of the environment")


def test_a_table_by_hand():
    table = to_csv(EnvironmentConfig(task="breakout"), make_result(1.7, 30.5).episodes)
    assert table == (
        "episode,env_index,episode_return,clipped_return,episode_length,human_normalized_score\n"
        "0,0,1.7,1.0,3,0.0\n"
        "1,1,30.5,1.0,4,1.0\n"
    )


def test_games_without_reference_scores():
    config = make_config("adventure")
    summary = summarise(config, REQUEST, make_result(-1.0, 0.0))
    assert not {"human_normalized", "reference_scores"} & set(summary)
    assert dict(describe(summary))["human-normalized"].startswith("none")
    assert "human" not in to_csv(config.environment, make_result(0.0).episodes)


def test_a_single_episode():
    environment = EnvironmentConfig("control", "humanoid:walk")
    config = ExperimentConfig(DPG, environment, RunConfig())
    summary = summarise(config, REQUEST, make_result(5.0))
    assert summary["mean_return"] == 5
    assert (summary["standard_error"], summary["epsilon"]) == (None, None)
    lines = dict(describe(json.loads(json.dumps(summary))))
    assert lines["mean return"] == "5.00"
    assert lines["episodes"] == "1, seed 1"
    assert not {"rules", "human-normalized"} & set(lines)
    np.testing.assert_allclose(summary["median_return"], 5.0)


def test_numbers_of_info_are_in_the_summary_and_the_table():
    metrics = [(("is_success", 1.0), ("x", 3.0)), (("is_success", 0.0),)]
    episodes = [Episode(i, 1.0, 1.0, 5, found) for i, found in enumerate(metrics)]
    config = ExperimentConfig(ATARI, EnvironmentConfig("gymnasium", "CartPole-v1"), RunConfig())
    summary = summarise(config, REQUEST, Result(episodes, []))
    assert summary["metrics"] == {"is_success": 0.5, "x": 3.0}
    lines = dict(describe(summary))
    assert (lines["success rate"], lines["x"]) == ("50.0%", "3")
    header, *rows = to_csv(config.environment, episodes).splitlines()
    assert header.endswith(",episode_length,is_success,x")
    assert [row.split(",", 5)[5] for row in rows] == ["1.0,3.0", "0.0,nan"]
