"""Tests of films: what is on each frame, and that filming changes nothing."""

import pathlib

import dm_env
import imageio
import numpy as np
import pytest

from apex_agents.acting.actor import ApexActor
from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import EnvironmentConfig, Episode, make_vector_environment
from apex_agents.environments.toy import Catch
from apex_agents.environments.vector_environment import SyncVectorEnvironment
from apex_agents.evaluation.episodes import play_episodes
from apex_agents.evaluation.filming import FilmedActor, draw_frame

STRIP = 56


class Scripted:
    """A policy that moves right; with noise of its own, whose state a film must not touch."""

    def __init__(self):
        self.variables = {}
        self.networks = {}
        self._random = np.random.default_rng(0)

    def __call__(self, observation: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(observation))
        return PolicyOutput(self._random.integers(3, size=len(observation)), zeros, zeros)


def make_catch(num_envs: int) -> SyncVectorEnvironment:
    return make_vector_environment(EnvironmentConfig("toy", "catch"), num_envs, seed=3)


def read(path: pathlib.Path) -> np.ndarray:
    return np.stack(list(imageio.get_reader(path).iter_data()))


def play(num_envs: int, paths: list[pathlib.Path]) -> list[Episode]:
    environment = make_catch(num_envs)
    troubles: list[Exception] = []
    actor = FilmedActor(ApexActor(Scripted()), environment, paths, ("catch", "x"), troubles.append)
    episodes = play_episodes(environment, actor)
    assert actor.finished == paths
    assert troubles == []
    return episodes


def test_films_of_the_first_envs(tmp_path):
    paths = [tmp_path / "0.mp4", tmp_path / "1.mp4"]
    play(3, paths)
    assert sorted(tmp_path.iterdir()) == paths
    for path in paths:
        frames = read(path)
        assert frames.shape == (10, STRIP + 2 * 320, 2 * 160, 3)  # The start and nine steps.
    # The ball falls by a cell of 2 * 32 pixels per frame.
    rows = [np.flatnonzero((frame[STRIP:, :, 0] > 200).any(axis=1)) for frame in read(paths[0])]
    assert [(r[0] + 2) // 64 for r in rows] == list(range(10))


def test_filming_changes_nothing(tmp_path):
    paths = [tmp_path / "0.mp4"]
    assert play(4, paths) == play(4, []) == play_episodes(make_catch(4), ApexActor(Scripted()))


def test_score_and_step_are_on_the_frame():
    picture = np.full([210, 160, 3], 77, np.uint8)
    captions = ("pong", "learner step 12")
    first = draw_frame(picture, captions, Episode(0, 0.0, 0.0, 0))
    assert first.shape == (STRIP + 630, 480, 3) and first.dtype == np.uint8
    np.testing.assert_array_equal(first[STRIP:], 77)  # Three times as large, and nothing on it.
    others = [
        draw_frame(picture, captions, Episode(0, -21.0, -21.0, 0)),
        draw_frame(picture, captions, Episode(0, 0.0, 0.0, 7)),
        draw_frame(picture, ("breakout", "learner step 12"), Episode(0, 0.0, 0.0, 0)),
        draw_frame(picture, ("pong", "learner step 99"), Episode(0, 0.0, 0.0, 0)),
    ]
    # Score and step on the right, captions on the left; score and task above the other two.
    for other, right, top in zip(others, [1, 1, 0, 0], [1, 0, 1, 0], strict=True):
        changed = np.argwhere((other != first).any(axis=-1))
        assert len(changed) > 20
        assert (changed[:, 0] < STRIP).all()
        assert ((changed[:, 1] > 240) == bool(right)).all()
        assert ((changed[:, 0] < 30) == bool(top)).all()


def test_the_unclipped_score_is_drawn():
    picture = np.zeros([64, 64, 3], np.uint8)
    one = draw_frame(picture, ("", ""), Episode(0, 400.0, 4.0, 1))
    other = draw_frame(picture, ("", ""), Episode(0, 400.0, 9.0, 1))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((210, 160), (630, 480)),
        ((400, 600), (400, 600)),
        ((321, 641), (322, 642)),  # Even.
        ((1000, 2000), (1000, 2000)),
        ((8, 8), (640, 640)),
        ((640, 10), (640, 320)),  # Wide enough for a score.
    ],
)
def test_sizes(size, expected):
    episode = Episode(0, 1234567.25, 0.0, 1_000_000)
    drawn = draw_frame(np.zeros([*size, 3], np.uint8), ("a" * 100, "b" * 100), episode)
    assert drawn.shape == (STRIP + expected[0], expected[1], 3)


class TooFast(Catch):
    frames_per_second = 125.0


def test_what_is_too_fast_for_a_screen_is_filmed_at_every_third_step(tmp_path):
    environment = SyncVectorEnvironment(
        [TooFast(rows=9, seed=0)]
    )  # Eight steps: 0, 3, 6, and the last.
    actor = FilmedActor(ApexActor(Scripted()), environment, [tmp_path / "a.mp4"], ("", ""), print)
    play_episodes(environment, actor)
    assert len(read(tmp_path / "a.mp4")) == 4
    meta = imageio.get_reader(tmp_path / "a.mp4").get_meta_data()
    assert meta["fps"] == pytest.approx(125 / 3, abs=0.01)


def test_an_episode_that_does_not_end_leaves_nothing(tmp_path):
    environment = make_catch(1)
    actor = FilmedActor(ApexActor(Scripted()), environment, [tmp_path / "a.mp4"], ("", ""), print)
    steps = iter(range(5))
    assert play_episodes(environment, actor, should_stop=lambda: next(steps, None) is None) is None
    actor.close()
    assert actor.finished == []
    assert list(tmp_path.iterdir()) == []


class Undrawn(Catch):
    """Cannot be drawn from its third step on."""

    def render(self) -> np.ndarray:
        if self._ball_row >= 3:
            raise RuntimeError("the screen is gone")
        return super().render()


def test_a_env_that_cannot_be_drawn_is_played_all_the_same(tmp_path):
    environment = SyncVectorEnvironment([Catch(seed=0), Undrawn(seed=1)])
    troubles: list[Exception] = []
    paths = [tmp_path / "0.mp4", tmp_path / "1.mp4"]
    actor = FilmedActor(ApexActor(Scripted()), environment, paths, ("", ""), troubles.append)
    episodes = play_episodes(environment, actor)
    assert [episode.length for episode in episodes] == [9, 9]
    (error,) = troubles
    assert type(error) is ValueError
    assert str(error) == "cannot be rendered: RuntimeError: the screen is gone"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    troubles: list[Exception] = []
    environment = make_catch(1)
    paths = [tmp_path / "file" / "a.mp4"]
    actor = FilmedActor(ApexActor(Scripted()), environment, paths, ("", ""), troubles.append)
    assert len(play_episodes(environment, actor)) == 1
    assert [isinstance(error, OSError) for error in troubles] == [True]


def test_the_actor_hears_all(tmp_path):
    calls: list = []

    class Recorder(ApexActor):
        def observe_first(self, timestep: dm_env.TimeStep) -> None:
            calls.append("first")
            super().observe_first(timestep)

        def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
            calls.append(action.tolist())
            super().observe(action, next_timestep)

        def update(self, wait: bool = False) -> None:
            calls.append(wait)

    environment = make_catch(1)
    recorder = Recorder(Scripted())
    play_episodes(
        environment, FilmedActor(recorder, environment, [tmp_path / "a.mp4"], ("", ""), print)
    )
    random = np.random.default_rng(0)
    actions = [random.integers(3, size=1).tolist() for _ in range(9)]
    assert calls == ["first", *[call for a in actions for call in (a, False)]]
