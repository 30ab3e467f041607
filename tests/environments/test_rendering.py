"""Tests of rendering: pictures of every suite, and that rendering changes no game."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from whole_runs import TIMEOUT_SECONDS

from apex_agents.environments import (
    AtariConfig,
    EnvironmentConfig,
    Episode,
    SyncVectorEnvironment,
    VectorEnvironment,
    make_vector_environment,
)
from apex_agents.environments.adapters import make_to_render
from apex_agents.environments.atari import AtariVectorEnvironment
from apex_agents.environments.control import ControlEnvironment
from apex_agents.environments.opengl import prepare_opengl
from apex_agents.environments.toy import Catch, PointMass

ORANGE, BLUE, WHITE = (255, 159, 64), (90, 170, 255), (235, 235, 235)


@pytest.fixture
def opengl() -> None:
    """Skip where MuJoCo cannot draw."""
    try:
        prepare_opengl()
    except ValueError as error:
        pytest.skip(str(error))


def play(
    environment: VectorEnvironment, num_steps: int, render: bool
) -> tuple[list[bytes], list[np.ndarray]]:
    """Act at random; return all that the environments return, and the pictures of the first one."""
    random = np.random.default_rng(0)
    spec = environment.spec.actions
    played, pictures = [], []
    timestep = environment.reset()
    for _ in range(num_steps + 1):
        played.append(b"".join(field.tobytes() for field in timestep))
        if render:
            pictures.append(environment.render(0))
        if spec.shape:
            actions = random.uniform(-1, 1, [environment.num_envs, *spec.shape]).astype(np.float32)
        else:
            actions = random.integers(spec.num_values, size=environment.num_envs)
        timestep = environment.step(actions)
    environment.close()
    return played, pictures


def atari_games(sticky: float) -> EnvironmentConfig:
    """Return a config of games of 20 steps."""
    atari = AtariConfig(sticky_action_probability=sticky, max_noops=30, evaluation_max_frames=80)
    return EnvironmentConfig(task="breakout", atari=atari)


@pytest.mark.parametrize(
    ("config", "num_steps", "shape", "frames_per_second"),
    [
        (EnvironmentConfig("gymnasium", "CartPole-v1"), 30, (400, 600, 3), 50.0),
        (EnvironmentConfig("toy", "catch"), 30, (320, 160, 3), 5.0),
        (EnvironmentConfig("toy", "point_mass"), 30, (64, 320, 3), 5.0),
        (atari_games(sticky=0.0), 90, (210, 160, 3), 60 / 4),
        (atari_games(sticky=0.25), 90, (210, 160, 3), 60 / 4),
    ],
    ids=["cartpole", "catch", "point_mass", "atari", "sticky_atari"],
)
def test_drawing_changes_nothing(config, num_steps, shape, frames_per_second):
    assert_drawing_changes_nothing(config, num_steps, shape, frames_per_second)


@pytest.mark.parametrize(
    ("config", "shape", "frames_per_second"),
    [
        (EnvironmentConfig("control", "cartpole:swingup"), (480, 640, 3), 100.0),
        (EnvironmentConfig("gymnasium", "Hopper-v5"), (480, 480, 3), 125.0),
    ],
    ids=["control", "mujoco"],
)
def test_drawing_by_opengl_changes_nothing(opengl, config, shape, frames_per_second):
    assert_drawing_changes_nothing(config, 6, shape, frames_per_second)


def assert_drawing_changes_nothing(
    config: EnvironmentConfig, num_steps: int, shape: tuple[int, ...], frames_per_second: float
) -> None:
    make = functools.partial(make_vector_environment, config, 2, seed=5, evaluation=True)
    environment = make(num_rendered=1)
    assert environment.frames_per_second == pytest.approx(frames_per_second)
    played, pictures = play(environment, num_steps, render=True)
    assert played == play(make(), num_steps, render=False)[0]
    assert {(picture.shape, picture.dtype) for picture in pictures} == {(shape, np.dtype(np.uint8))}
    assert len({picture.tobytes() for picture in pictures}) > num_steps / 2


def test_the_camera_of_control_follows_the_body(opengl):
    # The first camera of this task looks at a ball, somewhere else.
    environment = ControlEnvironment("dog:fetch", seed=0)
    environment.reset()
    assert num_skin_pixels(environment.render()) > 5000
    environment.close()


def test_the_camera_of_gymnasium_follows_the_body(opengl):
    make = functools.partial(gymnasium.make, "HalfCheetah-v5")
    environment = make_to_render(make, {}).unwrapped
    environment.reset(seed=0)
    for position in (0.0, 100.0):
        environment.set_state(np.array([position, *[0.0] * 8]), np.zeros(9))
        assert num_skin_pixels(environment.render()) > 1000
    environment.close()
    chosen = {"default_camera_config": {"distance": 9.0}}
    assert make_to_render(make, chosen).unwrapped.mujoco_renderer.camera_id == -1


def num_skin_pixels(picture: np.ndarray) -> int:
    red, _, blue = picture.astype(int).transpose(2, 0, 1)
    return int((red > blue + 40).sum())


def test_environments_of_atari_that_cannot_be_rendered():
    environment = AtariVectorEnvironment("breakout", AtariConfig(), [1, 2], num_rendered=1)
    with pytest.raises(ValueError, match="environment 0 is not reset yet"):
        environment.render(0)  # Nothing is shown before the reset.
    environment.reset()
    environment.render(0)
    with pytest.raises(ValueError, match=r"environment 1 .* not made to be rendered"):
        environment.render(1)
    environment = AtariVectorEnvironment("breakout", AtariConfig(), [1])
    environment.reset()
    with pytest.raises(ValueError, match=r"environment 0 .* not made to be rendered"):
        environment.render(0)


def test_games_of_another_height():
    environment = AtariVectorEnvironment("carnival", AtariConfig(), [1], num_rendered=1)
    environment.reset()
    assert environment.render(0).shape == (214, 160, 3)


def test_the_current_episode_of_atari():
    environment = AtariVectorEnvironment("ms_pacman", AtariConfig(max_frames=400), [1])
    random = np.random.default_rng(0)
    environment.reset()
    assert environment.current_episode(0) == Episode(0, 0.0, 0.0, 0)
    clipped = 0.0
    for step in range(1, 101):
        assert environment.finished_episodes() == []
        clipped += float(environment.step(random.integers(9, size=1)).reward[0])
        assert environment.current_episode(0).length == step
        assert environment.current_episode(0).clipped_return == clipped
    (episode,) = environment.finished_episodes()
    assert environment.current_episode(0) == episode
    assert episode.episode_return >= 10 * clipped > 0  # A pill is 10.
    environment.step(random.integers(9, size=1))
    assert environment.current_episode(0) == Episode(0, 0.0, 0.0, 0)


def cells(picture: np.ndarray, colour: tuple[int, ...]) -> set[tuple[int, int]]:
    """Return row and column of the cells, of 32 pixels, that hold a colour."""
    rows, columns = np.nonzero((picture == colour).all(axis=-1))
    return set(zip((rows // 32).tolist(), (columns // 32).tolist(), strict=True))


def test_the_board_of_catch():
    environment = Catch(seed=0)
    observation = environment.reset().observation.reshape(10, 5)
    ball = int(observation[0].argmax())
    assert cells(environment.render(), ORANGE) == {(0, ball)}
    assert cells(environment.render(), BLUE) == {(9, 2)}
    environment.step(0)
    assert cells(environment.render(), ORANGE) == {(1, ball)}
    assert cells(environment.render(), BLUE) == {(9, 1)}


def test_the_line_of_point_mass():
    environment = PointMass(step_size=1.0, seed=0)
    for push, left in ((1.0, 160 + 128 - 6), (-1.0, 160 - 6), (-1.0, 160 - 128 - 6)):
        if push == 1.0:
            environment.reset()
            environment.step(np.array([1.0]))  # To the end of the line, from anywhere.
        environment.step(np.array([push]))
        columns = np.flatnonzero((environment.render() == ORANGE).all(axis=-1).any(axis=0))
        assert (columns[0], columns[-1]) == (left, left + 11)


class Blind(gymnasium.Env):
    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Textual(Blind):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode


@pytest.fixture
def blind_tasks():
    gymnasium.register("Blind-v0", Blind)
    gymnasium.register("Textual-v0", Textual)
    yield
    for task in ("Blind-v0", "Textual-v0"):
        del gymnasium.registry[task]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("Blind-v0", "Blind-v0' cannot be made to be drawn: .*render_mode"),
        ("Textual-v0", r"Textual-v0' cannot be made to be drawn: .* is \['ansi'\]"),
    ],
)
def test_environments_that_draw_nothing(blind_tasks, task, message):
    config = EnvironmentConfig("gymnasium", task)
    make_vector_environment(config, 2, seed=0).reset()
    with pytest.raises(ValueError, match=message) as caught:
        make_vector_environment(config, 2, seed=0, num_rendered=1)
    assert "\n" not in str(caught.value)


def test_an_environment_that_was_not_made_to_be_rendered():
    config = EnvironmentConfig("gymnasium", "CartPole-v1")
    environment = make_vector_environment(config, 2, seed=0, num_rendered=1)
    environment.reset()
    environment.render(0)
    with pytest.raises(ValueError, match="was not made with render_mode='rgb_array'"):
        environment.render(1)


class Odd(Catch):
    picture: object = None

    def render(self):
        return self.picture


@pytest.mark.parametrize("picture", [None, np.zeros([4, 4]), np.zeros([4, 4, 4]), "picture"])
def test_pictures_that_are_none(picture):
    environment = SyncVectorEnvironment([Odd()])
    environment.reset()
    Odd.picture = picture
    with pytest.raises(ValueError, match=r"a frame has to be RGB, \[H, W, 3\], got \("):
        environment.render(0)


# Missing OpenGL, in processes of their own, since each process looks for it only once.

DRAW = """
import numpy as np
from apex_agents.environments import EnvironmentConfig, make_vector_environment

config = EnvironmentConfig({suite!r}, {task!r})
environment = make_vector_environment(config, num_envs=1, seed=0, num_rendered=1)
environment.reset()
try:
    environment.render(0)
except ValueError as error:
    print(error)
environment.step(np.zeros([1, *environment.spec.actions.shape], np.float32))
environment.close()
"""


def draw(suite: str, task: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DRAW.format(suite=suite, task=task)]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )


@pytest.mark.parametrize(
    ("suite", "task", "backend"),
    [
        ("control", "cartpole:swingup", "disabled"),
        ("control", "cartpole:swingup", "nonsense"),
        ("gymnasium", "Hopper-v5", "disabled"),
    ],
)
def test_without_opengl_one_line_says_what_to_install(suite, task, backend):
    process = draw(suite, task, {**os.environ, "MUJOCO_GL": backend})
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.startswith(f"MuJoCo cannot draw with OpenGL; MUJOCO_GL is {backend} (")
    assert "MUJOCO_GL=egl (Debian, Ubuntu: apt install libegl1" in process.stdout
    assert process.stdout.count("\n") == 1


def test_egl_is_chosen_where_there_is_no_display(opengl):
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    process = draw("control", "cartpole:swingup", environ)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
