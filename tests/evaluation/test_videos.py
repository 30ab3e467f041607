"""Tests of videos: their files, their frames, when one is due, and runs that go without."""

import contextlib
import functools
import logging
import os
import pathlib
import stat
import time
from typing import Any

import dm_env
import imageio
import imageio_ffmpeg
import numpy as np
import psutil
import pytest
from waiting import Clock

from apex_agents.acting.actor import ApexActor
from apex_agents.acting.policy import PolicyOutput
from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.environments import (
    EnvironmentConfig,
    Episode,
    VectorEnvironment,
    make_vector_environment,
)
from apex_agents.environments.toy import Catch
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.evaluation.episodes import play_episodes
from apex_agents.evaluation.videos import EvaluationVideos, FilmedActor, VideoWriter, draw_frame
from apex_agents.experiment import Experiment


def make_frame(brightness: int, height: int = 64, width: int = 96) -> np.ndarray:
    """Return a picture whose left half is that bright, and whose right half is dark red."""
    picture = np.zeros([height, width, 3], np.uint8)
    picture[:, : width // 2] = brightness
    picture[:, width // 2 :] = (120, 0, 0)
    return picture


def find_ffmpeg(path: pathlib.Path) -> psutil.Process:
    """Return the process that writes a video, once it is no copy of this one any more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if str(path) in " ".join(process.cmdline()):
                    return process
    raise TimeoutError("there is no ffmpeg")


def read(path: pathlib.Path) -> np.ndarray:
    return np.stack(list(imageio.get_reader(path).iter_data()))


def test_frames_come_back_in_order_in_a_file_that_browsers_play(tmp_path):
    path = tmp_path / "new" / "a: 1%d.mp4"
    writer = VideoWriter(path, 12.5)
    for index in range(20):
        writer.write(make_frame(10 * index))
        assert not path.exists()
    writer.close()
    assert [file.name for file in path.parent.iterdir()] == ["a: 1%d.mp4"]
    frames, meta = read(path), imageio.get_reader(path).get_meta_data()
    assert frames.shape == (20, 64, 96, 3)
    left = frames[:, 8:-8, 8:40].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(left, 10 * np.arange(20), atol=4)
    right = frames[:, 8:-8, 56:88].mean(axis=(0, 1, 2))
    np.testing.assert_allclose(right, [120, 0, 0], atol=8)  # And not (0, 0, 120).
    assert (meta["fps"], meta["duration"]) == (12.5, pytest.approx(20 / 12.5, abs=0.01))
    assert (meta["codec"], meta["pix_fmt"].partition("(")[0]) == ("h264", "yuv420p")
    content = path.read_bytes()
    assert content[4:8] == b"ftyp"
    assert content.index(b"moov") < content.index(b"mdat")  # The index is at the front.


def test_a_discarded_file_leaves_nothing(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    writer.close()  # No frames are no file.
    writer.write(make_frame(0))
    process = find_ffmpeg(tmp_path / "a.mp4")
    assert os.getsid(process.pid) != os.getsid(0)  # Ctrl-C does not reach it.
    assert [file.name for file in tmp_path.iterdir()] in ([], ["a.mp4.partial"])
    writer.discard()
    writer.discard()
    assert not process.is_running()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "frames",
    [
        [make_frame(0, height=63)],
        [make_frame(0, width=95)],
        [make_frame(0).astype(np.float32)],
        [make_frame(0)[..., :2]],
        [make_frame(0), make_frame(0, width=98)],
    ],
)
def test_frames_of_a_wrong_shape_or_dtype(tmp_path, frames):
    writer = VideoWriter(tmp_path / "a.mp4", 15.0)
    with pytest.raises(ValueError):
        for frame in frames:
            writer.write(frame)
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_ffmpeg_that_fails_says_why(tmp_path, monkeypatch):
    script = tmp_path / "ffmpeg"
    messages = "echo first >&2; echo '[mp4 @ 0x55] No space left' >&2"
    script.write_text(f"#!/bin/sh\n{messages}; exit 228\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(script))
    writer = VideoWriter(tmp_path / "videos" / "a.mp4", 15.0)
    with pytest.raises(OSError, match=r"228: No space left$"):
        for _ in range(100):  # The pipe holds some of them.
            writer.write(make_frame(0))
    assert list((tmp_path / "videos").iterdir()) == []


def test_without_ffmpeg(tmp_path, monkeypatch):
    def fail() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", fail)
    with pytest.raises(OSError, match="No ffmpeg exe"):
        VideoWriter(tmp_path / "a.mp4", 15.0).write(make_frame(0))


STRIP = 56

make_catch = functools.partial(make_vector_environment, EnvironmentConfig("toy", "catch"))


class RandomPolicy:
    """Acts at random, from a state of its own that filming must not change."""

    def __init__(self):
        self.variables = {}
        self.networks = {}
        self._random = np.random.default_rng(0)

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        zeros = np.zeros(len(timestep.observation))
        return PolicyOutput(self._random.integers(3, size=len(zeros)), zeros, zeros)


class Undrawn(Catch):
    """Can be drawn three times."""

    num_pictures = 0

    def render(self) -> np.ndarray:
        self.num_pictures += 1
        if self.num_pictures > 3:
            raise RuntimeError("the screen is gone")
        return super().render()


def film(
    environment: VectorEnvironment, paths: list[pathlib.Path], actor: ApexActor | None = None
) -> tuple[FilmedActor, list[Exception]]:
    """Return an actor that films an environment, and the failures that it reports."""
    failures: list[Exception] = []
    actor = actor or ApexActor(RandomPolicy())
    filmed = FilmedActor(actor, environment, paths, ("catch", "x"), failures.append)
    return filmed, failures


def play(num_envs: int, paths: list[pathlib.Path]) -> list[Episode]:
    environment = make_catch(num_envs, seed=3)
    actor, failures = film(environment, paths)
    episodes = play_episodes(environment, actor)
    assert (actor.finished, failures) == (paths, [])
    return episodes


def stop_after(num_steps: int):
    steps = iter(range(num_steps))
    return lambda: next(steps, None) is None


def test_films_of_the_first_environments(tmp_path):
    paths = [tmp_path / "0.mp4", tmp_path / "1.mp4"]
    play(3, paths)
    assert sorted(tmp_path.iterdir()) == paths
    for path in paths:
        frames = read(path)
        assert frames.shape == (10, STRIP + 2 * 320, 2 * 160, 3)  # The start and nine steps.
    # The ball falls by a cell of 2 * 32 pixels per frame.
    rows = [np.flatnonzero((frame[STRIP:, :, 0] > 200).any(axis=1)) for frame in read(paths[0])]
    assert [(r[0] + 2) // 64 for r in rows] == list(range(10))


def test_filming_changes_no_episode(tmp_path):
    unfilmed = play_episodes(make_catch(4, seed=3), ApexActor(RandomPolicy()))
    assert play(4, [tmp_path / "0.mp4"]) == play(4, []) == unfilmed


def test_score_and_step_are_on_the_frame():
    picture = np.full([210, 160, 3], 77, np.uint8)
    captions = ("pong", "learner step 12")
    first = draw_frame(picture, captions, Episode(0, 0.0, 0.0, 0))
    assert first.shape == (STRIP + 630, 480, 3) and first.dtype == np.uint8
    np.testing.assert_array_equal(first[STRIP:], 77)  # Three times as large, otherwise unchanged.
    others = [
        draw_frame(picture, captions, Episode(0, -21.0, -21.0, 0)),
        draw_frame(picture, captions, Episode(0, 0.0, 0.0, 7)),
        draw_frame(picture, ("breakout", "learner step 12"), Episode(0, 0.0, 0.0, 0)),
        draw_frame(picture, ("pong", "learner step 99"), Episode(0, 0.0, 0.0, 0)),
    ]
    clipped = draw_frame(picture, captions, Episode(0, 0.0, 9.0, 0))
    np.testing.assert_array_equal(clipped, first)  # The score is that of the plain rewards.
    # Score and step are on the right, captions on the left; score and task are the upper line.
    for other, right, top in zip(others, [1, 1, 0, 0], [1, 0, 1, 0], strict=True):
        changed = np.argwhere((other != first).any(axis=-1))
        assert len(changed) > 20
        assert (changed[:, 0] < STRIP).all()
        assert ((changed[:, 1] > 240) == bool(right)).all()
        assert ((changed[:, 0] < 30) == bool(top)).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((210, 160), (630, 480)),
        ((400, 600), (400, 600)),
        ((321, 641), (322, 642)),  # Even sizes.
        ((1000, 2000), (1000, 2000)),
        ((8, 8), (640, 640)),
        ((640, 10), (640, 320)),  # Wide enough for the score.
    ],
)
def test_sizes(size, expected):
    episode = Episode(0, 1234567.25, 0.0, 1_000_000)
    drawn = draw_frame(np.zeros([*size, 3], np.uint8), ("a" * 100, "b" * 100), episode)
    assert drawn.shape == (STRIP + expected[0], expected[1], 3)


class Fast(Catch):
    frames_per_second = 125.0


def test_fast_environments_are_filmed_at_every_third_step(tmp_path):
    # Eight agent steps, of which 0, 3, 6 and the last one are filmed.
    environment = SyncVectorEnvironment([Fast(rows=9, seed=0)])
    actor, _ = film(environment, [tmp_path / "a.mp4"])
    play_episodes(environment, actor)
    assert len(read(tmp_path / "a.mp4")) == 4
    meta = imageio.get_reader(tmp_path / "a.mp4").get_meta_data()
    assert meta["fps"] == pytest.approx(125 / 3, abs=0.01)


def test_an_environment_that_cannot_be_drawn_is_played_to_its_end(tmp_path):
    environment = SyncVectorEnvironment([Catch(seed=0), Undrawn(seed=1)])
    actor, failures = film(environment, [tmp_path / "0.mp4", tmp_path / "1.mp4"])
    assert [episode.length for episode in play_episodes(environment, actor)] == [9, 9]
    assert [type(error) for error in failures] == [ValueError]
    assert "the screen is gone" in str(failures[0])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    environment = make_catch(1, seed=3)
    actor, failures = film(environment, [tmp_path / "file" / "a.mp4"])
    assert len(play_episodes(environment, actor)) == 1
    assert [isinstance(error, OSError) for error in failures] == [True]


def test_every_call_is_forwarded_to_the_actor(tmp_path):
    calls: list[str] = []

    class Recorder:
        def select_action(self, observation: np.ndarray) -> np.ndarray:
            return np.ones(len(observation), np.int32)

        def observe_first(self, timestep: dm_env.TimeStep) -> None:
            calls.append("observe_first")

        def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
            calls.append("observe")

        def update(self, wait: bool = False) -> None:
            calls.append("update")

    environment = make_catch(1, seed=3)
    actor, _ = film(environment, [tmp_path / "a.mp4"], Recorder())
    play_episodes(environment, actor)
    assert calls == ["observe_first", *["observe", "update"] * 9]


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def make_videos(tmp_path, clock):
    def make(make=make_catch, period: float | None = 60.0, num_restarts=0) -> EvaluationVideos:
        run = RunConfig(evaluation=EvaluationConfig(video_period_seconds=period))
        experiment = Experiment(None, make, run, str(tmp_path), task="catch")
        return EvaluationVideos(experiment, num_restarts, clock)

    return make


def evaluate(videos: EvaluationVideos, environment: VectorEnvironment, learner_steps: int) -> None:
    with videos.film(ApexActor(RandomPolicy()), environment, learner_steps) as actor:
        assert len(play_episodes(environment, actor)) == environment.num_envs


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (folder / "videos").glob("*"))


def warnings(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_video_when_one_is_due(tmp_path, make_videos, clock, caplog):
    videos = make_videos()
    environment = videos.make_vector_environment(3, seed=0)
    for minutes, learner_steps in ((0.0, 0), (0.9, 10), (1.1, 20), (1.9, 30), (5.0, 40)):
        clock.now = 1000.0 + 60 * minutes
        evaluate(videos, environment, learner_steps)
    assert names(tmp_path) == [f"learner-0000000000{steps}.mp4" for steps in ("00", "20", "40")]
    assert warnings(caplog) == []


def test_a_restarted_evaluator_waits_for_a_period(tmp_path, make_videos, clock):
    (tmp_path / "videos").mkdir()  # With an incomplete video of the process that was killed.
    for name in ("learner-000000000001.mp4", "learner-000000000002.mp4.partial"):
        (tmp_path / "videos" / name).write_text("")
    videos = make_videos(num_restarts=1)
    environment = videos.make_vector_environment(1, seed=0)
    for seconds in (0, 59, 61):
        clock.now = 1000.0 + seconds
        evaluate(videos, environment, learner_steps=seconds)
    assert names(tmp_path) == ["learner-000000000001.mp4", "learner-000000000061.mp4"]


def test_no_videos_by_default(tmp_path, make_videos):
    calls = []

    def make(num_envs: int, seed: int, **arguments: bool) -> VectorEnvironment:
        calls.append((num_envs, seed, arguments))
        return make_catch(num_envs, seed, **arguments)

    videos = make_videos(make, period=None)
    actor = ApexActor(RandomPolicy())
    environment = videos.make_vector_environment(2, seed=7)
    with videos.film(actor, environment, 1) as filmed:
        assert filmed is actor
    # The one actor of the run has the environments 0 to 7.
    assert calls == [(2, 7, {"evaluation": True, "env_indices": range(8, 10)})]
    assert list(tmp_path.iterdir()) == []


def make_undrawn(num_envs: int, seed: int, **_: Any) -> VectorEnvironment:
    return SyncVectorEnvironment([Undrawn(seed=seed + i) for i in range(num_envs)])


def refuse_to_draw(num_envs: int, seed: int, num_rendered: int = 0, **_: Any) -> VectorEnvironment:
    if num_rendered:
        raise ValueError("Blind-v0 cannot be drawn")
    return make_catch(num_envs, seed)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(refuse_to_draw, "Blind-v0 cannot be drawn"), (make_undrawn, "the screen is gone")],
)
def test_an_environment_without_pictures_is_one_warning(
    tmp_path, make_videos, clock, caplog, make, reason
):
    videos = make_videos(make)
    environment = videos.make_vector_environment(2, seed=0)
    for learner_steps in (1, 2):
        clock.now += 100
        evaluate(videos, environment, learner_steps)
    (warning,) = warnings(caplog)
    assert reason in warning
    assert names(tmp_path) == []


def test_a_video_that_cannot_be_written_is_tried_again(tmp_path, make_videos, clock, caplog):
    videos = make_videos()
    environment = videos.make_vector_environment(1, seed=0)
    (tmp_path / "videos").write_text("in the way")
    for learner_steps in (1, 2):
        clock.now += 100
        evaluate(videos, environment, learner_steps)
    assert len(warnings(caplog)) == 1
    (tmp_path / "videos").unlink()
    clock.now += 100
    evaluate(videos, environment, 3)
    assert names(tmp_path) == ["learner-000000000003.mp4"]


def test_an_evaluation_that_is_stopped_leaves_no_video(tmp_path, make_videos):
    videos = make_videos()
    environment = videos.make_vector_environment(1, seed=0)
    with videos.film(ApexActor(RandomPolicy()), environment, 1) as actor:
        assert play_episodes(environment, actor, stop_after(5)) is None
    assert names(tmp_path) == []
