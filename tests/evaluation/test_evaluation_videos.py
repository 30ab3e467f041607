"""Tests of a run's videos: when they are due, and that a run goes on when they cannot be made."""

import dataclasses
import functools
import logging
import pathlib

import numpy as np
import pytest

from apex_agents.acting.actor import ApexActor
from apex_agents.acting.policy import PolicyOutput
from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.environments import EnvironmentConfig, VectorEnvironment, make_vector_environment
from apex_agents.environments.toy import Catch
from apex_agents.environments.vector_environment import LockStepEnvironment
from apex_agents.evaluation import evaluation_videos
from apex_agents.evaluation.episodes import play_episodes
from apex_agents.evaluation.evaluation_videos import EvaluationVideos
from apex_agents.experiment import Experiment
from apex_agents.runs import files as outages


@dataclasses.dataclass
class Resting:
    """A policy that stays where it is."""

    variables: dict = dataclasses.field(default_factory=dict)
    networks: dict = dataclasses.field(default_factory=dict)

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(observation))
        return PolicyOutput(np.ones(len(observation), np.int32), zeros, zeros)


class Clock:
    """Stands for the time that passes."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    monkeypatch.setattr(outages, "_failing", set())
    clock = Clock()
    monkeypatch.setattr(evaluation_videos, "time", clock)
    return clock


CATCH = functools.partial(make_vector_environment, EnvironmentConfig("toy", "catch"))


def make_videos(folder: pathlib.Path, make=CATCH, period: float | None = 60.0) -> EvaluationVideos:
    run = RunConfig(evaluation=EvaluationConfig(video_period_seconds=period))
    return EvaluationVideos(Experiment(None, make, run, str(folder), task="catch"))


def evaluate(videos: EvaluationVideos, environment: VectorEnvironment, learner_steps: int) -> None:
    with videos.film(ApexActor(Resting()), environment, learner_steps) as actor:
        assert len(play_episodes(environment, actor)) == environment.num_envs


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (folder / "videos").glob("*"))


def warnings(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_video_when_one_is_due(tmp_path, clock, caplog):
    videos = make_videos(tmp_path)
    environment = videos.make_vector_environment(3, seed=0)
    for minutes, learner_steps in ((0.0, 0), (0.9, 10), (1.1, 20), (1.9, 30), (5.0, 40)):
        clock.now = 1000.0 + 60 * minutes
        evaluate(videos, environment, learner_steps)
    assert names(tmp_path) == [f"learner-0000000000{steps}.mp4" for steps in ("00", "20", "40")]
    assert warnings(caplog) == []


def test_an_evaluator_that_was_started_again_waits_for_a_period(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(evaluation_videos, "num_restarts", lambda: 1)
    videos = make_videos(tmp_path)
    environment = videos.make_vector_environment(1, seed=0)
    for seconds in (0, 59, 61):
        clock.now = 1000.0 + seconds
        evaluate(videos, environment, learner_steps=seconds)
    assert names(tmp_path) == ["learner-000000000061.mp4"]


def test_no_videos_by_default(tmp_path, clock):
    calls = []

    def make(
        num_envs: int, seed: int, evaluation: bool
    ) -> VectorEnvironment:  # As of another's program.
        calls.append((num_envs, seed, evaluation))
        return CATCH(num_envs, seed, evaluation)

    videos = make_videos(tmp_path, make, period=None)
    actor = ApexActor(Resting())
    environment = videos.make_vector_environment(2, seed=7)
    with videos.film(actor, environment, 1) as filmed:
        assert filmed is actor
    assert calls == [(2, 7, True)]
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_cannot_be_drawn_is_one_warning(tmp_path, clock, caplog):
    def make(
        num_envs: int, seed: int, evaluation: bool, num_rendered: int = 0
    ) -> VectorEnvironment:
        if num_rendered:
            raise ValueError("Blind-v0 cannot be drawn")
        return CATCH(num_envs, seed, evaluation)

    videos = make_videos(tmp_path, make)
    environment = videos.make_vector_environment(2, seed=0)
    for learner_steps in (1, 2):
        clock.now += 100
        evaluate(videos, environment, learner_steps)
    assert warnings(caplog) == ["The run goes on without videos: Blind-v0 cannot be drawn"]
    assert list(tmp_path.iterdir()) == []


class Undrawn(Catch):
    def render(self) -> np.ndarray:
        raise RuntimeError("no screen")


def test_a_picture_that_fails_is_one_warning(tmp_path, clock, caplog):
    def make(num_envs: int, *_: int) -> VectorEnvironment:
        return LockStepEnvironment([Undrawn(seed=env_index) for env_index in range(num_envs)])

    videos = make_videos(tmp_path, make)
    environment = videos.make_vector_environment(2, seed=0)
    for learner_steps in (1, 2):
        clock.now += 100
        evaluate(videos, environment, learner_steps)
    (warning,) = warnings(caplog)
    assert warning.startswith("The run goes on without videos: ")
    assert warning.endswith("RuntimeError: no screen")
    assert names(tmp_path) == []


def test_what_cannot_be_written_is_tried_again(tmp_path, clock, caplog):
    caplog.set_level(logging.INFO)
    videos = make_videos(tmp_path)
    environment = videos.make_vector_environment(1, seed=0)
    (tmp_path / "videos").write_text("in the way")
    for learner_steps in (1, 2):
        clock.now += 100
        evaluate(videos, environment, learner_steps)
    (warning,) = warnings(caplog)
    assert warning.startswith(
        f"{tmp_path / 'videos'} cannot be written, the run continues without it: "
    )
    (tmp_path / "videos").unlink()
    clock.now += 100
    evaluate(videos, environment, 3)
    assert names(tmp_path) == ["learner-000000000003.mp4"]
    assert caplog.records[-1].getMessage() == f"{tmp_path / 'videos'} can be written again."


def test_an_evaluation_that_is_stopped_leaves_nothing(tmp_path, clock):
    videos = make_videos(tmp_path)
    environment = videos.make_vector_environment(1, seed=0)
    with videos.film(ApexActor(Resting()), environment, 1) as actor:
        steps = iter(range(5))
        assert play_episodes(environment, actor, lambda: next(steps, None) is None) is None
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_removed(tmp_path, clock):
    (tmp_path / "videos").mkdir()
    for name in ("learner-000000000001.mp4", "learner-000000000002.mp4.partial"):
        (tmp_path / "videos" / name).write_text("")
    make_videos(tmp_path)
    assert names(tmp_path) == ["learner-000000000001.mp4"]
