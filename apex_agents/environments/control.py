"""Tasks of the DeepMind Control Suite (Tassa et al. 2018), with flat observations."""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.environments.opengl import prepare_opengl, without_opengl
from apex_agents.validation import unknown_name


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


# The import of dm_control would look for a display, although few processes render.
with _silence(), without_opengl():
    import mujoco
    from dm_control import _render, suite


# The actions of lqr go up to 1e10: scaled to that, nothing could be learned. escape draws its
# terrain with OpenGL, and ends the process where there is none.
_LEFT_OUT = {"lqr:lqr_2_1", "lqr:lqr_6_2", "quadruped:escape"}

_FRAME_HEIGHT, _FRAME_WIDTH = 480, 640


class ControlEnvironment(dm_env.Environment):
    """A task of the suite whose observations are one vector.

    An observation is all arrays that the task observes, flattened, in the order in which the task
    lists them. Episodes are truncated, with discount 1, after 1000 steps in most domains.

    Attributes:
      frames_per_second: control steps per second.
    """

    def __init__(self, task: str, seed: int | None = None):
        """Load a task such as 'humanoid:stand', see `check_control_task`."""
        self._environment = suite.load(
            *task.split(":"),
            task_kwargs={"random": seed},
            environment_kwargs={"flat_observation": True},
        )
        self.frames_per_second = 1.0 / self._environment.control_timestep()

    def reset(self) -> dm_env.TimeStep:
        return self._without_key(self._environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        return self._without_key(self._environment.step(action))

    def observation_spec(self) -> specs.Array:
        (spec,) = self._environment.observation_spec().values()
        return spec

    def action_spec(self) -> specs.BoundedArray:
        return self._environment.action_spec()

    def render(self) -> np.ndarray:
        """Draw the scene, uint8 `[480, 640, 3]`.

        The camera is the first one that follows the centre of a moving body, or the first one of a
        task whose body cannot leave its view.

        Raises:
          ValueError: MuJoCo cannot draw on this machine; names the packages to install.
        """
        prepare_opengl()
        if _render.BACKEND in _render.constants.NO_RENDERER:
            with _silence():
                importlib.reload(_render)  # It chooses an OpenGL when imported.
        physics = self._environment.physics
        follows = physics.model.cam_mode == mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM
        return physics.render(_FRAME_HEIGHT, _FRAME_WIDTH, camera_id=int(follows.argmax()))

    def close(self) -> None:
        self._environment.physics.free()  # The suite's own `close` does nothing.

    def _without_key(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        (observation,) = timestep.observation.values()
        return timestep._replace(observation=observation)


def check_control_task(task: str) -> None:
    """Raise a ValueError unless `task` is 'domain:task' of a task that can be learned here."""
    tasks = {":".join(names) for names in suite.ALL_TASKS} - _LEFT_OUT
    if task not in tasks:
        raise unknown_name("control task", task, tasks)
