"""Tasks of the DeepMind Control Suite (Tassa et al. 2018), with flat observations."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.environments.opengl import BACKEND, prepare_opengl, without_opengl


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


# It looks for a display, tells of it, and warns where there is none; few processes render.
with _silence():
    try:
        from dm_control import _render, suite
    except Exception:  # Of an OpenGL that is chosen but not there.
        with without_opengl():
            from dm_control import _render, suite
    from dm_control.suite.wrappers import action_scale


# The actions of lqr go up to 1e10: scaled to that, nothing could be learned. escape draws its
# terrain with OpenGL, without which it ends the process.
_LEFT_OUT = {"lqr:lqr_2_1", "lqr:lqr_6_2", "quadruped:escape"}

# Of a frame, in pixels.
_HEIGHT, _WIDTH = 480, 640


class ControlEnvironment(dm_env.Environment):
    """A task of the suite with one vector to see and one to act.

    An observation is all arrays that the task observes, flattened, in the order in which the task
    lists them: `humanoid` joint_angles (21), head_height (1), extremities (12), torso_vertical (3),
    com_velocity (3), velocity (27), for example. Episodes end after 1000 steps in most domains:
    truncated, with discount 1.

    Attributes:
      frames_per_second: steps of control per second.
    """

    def __init__(self, task: str, seed: int | None = None):
        """Load a task.

        Args:
          task: 'domain:task', such as 'humanoid:stand'.
          seed: of the task's random numbers; None: unseeded.

        Raises:
          ValueError: there is no such task.
        """
        check_control_task(task)
        environment = suite.load(
            *task.split(":"),
            task_kwargs={"random": seed},
            environment_kwargs={"flat_observation": True},
        )
        self._environment = action_scale.Wrapper(environment, minimum=-1.0, maximum=1.0)
        (self._key,) = environment.observation_spec()
        self.frames_per_second = 1.0 / environment.control_timestep()

    def reset(self) -> dm_env.TimeStep:
        """Start an episode and return its FIRST step."""
        return self._convert(self._environment.reset())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Play one step of control.

        Args:
          action: `[D]` in [-1, 1], scaled to what the actuators take; ignored after a LAST step.
        """
        return self._convert(self._environment.step(np.asarray(action)))

    def observation_spec(self) -> specs.Array:
        """Return the spec of an observation: float32 `[O]`."""
        shape = self._environment.observation_spec()[self._key].shape
        return specs.Array(shape, np.float32, name="observation")

    def action_spec(self) -> specs.BoundedArray:
        """Return the spec of an action: float32 `[D]` in [-1, 1]."""
        shape = self._environment.action_spec().shape
        return specs.BoundedArray(shape, np.float32, -1.0, 1.0, name="action")

    def reward_spec(self) -> specs.Array:
        """Return the spec of a reward: a float32 scalar, in [0, 1] for the suite's tasks."""
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self) -> specs.BoundedArray:
        """Return the spec of a discount: a float32 scalar in [0, 1]."""
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")

    def render(self) -> np.ndarray:
        """Draw the scene as the task's first camera sees it.

        Returns:
          uint8 `[480, 640, 3]`.

        Raises:
          ValueError: MuJoCo cannot draw here; names what to install.
        """
        prepare_opengl()
        if os.environ.get(BACKEND, _render.BACKEND) != _render.BACKEND:
            with _silence():
                importlib.reload(_render)  # It reads what is chosen when it is imported.
        physics = self._environment.physics
        camera = 0 if physics.model.ncam else -1  # -1 is one that every model has.
        return physics.render(_HEIGHT, _WIDTH, camera)

    def close(self) -> None:
        """Release the simulation."""
        self._environment.physics.free()  # The suite's own `close` does nothing.

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            reward = discount = None
        else:
            reward, discount = np.float32(timestep.reward), np.float32(timestep.discount)
        observation = timestep.observation[self._key].astype(np.float32)
        return dm_env.TimeStep(timestep.step_type, reward, discount, observation)


def check_control_task(task: str) -> None:
    """Raise a ValueError unless `task` is 'domain:task' of a task that can be learned here."""
    tasks = sorted({":".join(names) for names in suite.ALL_TASKS} - _LEFT_OUT)
    if task not in tasks:
        closest = difflib.get_close_matches(task, tasks, cutoff=0.4)
        raise ValueError(
            f"unknown control task {task!r}; closest: {', '.join(closest) or 'none'}; allowed: one "
            f"of the {len(tasks)} tasks of dm_control.suite, such as 'humanoid:stand'"
        )
