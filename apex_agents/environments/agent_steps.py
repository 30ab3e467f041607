"""Agent steps of a single environment: an action that is held, numbers that are finite."""

from typing import Any

import dm_env
import numpy as np

from apex_agents.waits import Waiting

_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def hold_action(
    environment: dm_env.Environment, action: Any, num_repeats: int
) -> tuple[dm_env.TimeStep, float]:
    """Step an environment several times with one action, or until its episode ends.

    With rewards r_k and discounts d_k of these steps, the reward of the agent step is
    r_1 + d_1 r_2 + d_1 d_2 r_3 + ..., and its discount is their product.

    Returns:
      The agent step, and the plain sum of the rewards, r_1 + r_2 + r_3 + ....

    Raises:
      ValueError: a step is not finite, see `check_finite`.
    """
    agent_reward, reward_sum, discount = 0.0, 0.0, 1.0
    for _ in range(num_repeats):
        timestep = environment.step(action)
        check_finite(timestep)
        if timestep.first():  # The episode before had ended.
            return timestep, 0.0
        reward = float(timestep.reward)
        if num_repeats == 1:
            return timestep, reward
        agent_reward += discount * reward
        reward_sum += reward
        discount *= float(timestep.discount)
        if timestep.last():
            break
    return timestep._replace(reward=agent_reward, discount=discount), reward_sum


def name_call(what: str, call: str, timeout_seconds: float | None) -> Waiting:
    """Name the wait for a call, `step` or `reset`, that may take so long; None: any time."""
    if timeout_seconds is None:
        return Waiting(f"{what} to return from {call}")
    limit = f"environment.step_timeout_seconds is {timeout_seconds:g}"
    return Waiting(f"{what} to return from {call} ({limit})", limit_seconds=timeout_seconds)


def check_finite(timestep: dm_env.TimeStep) -> None:
    """Raise a ValueError if an agent would learn from a number that is NaN or infinite."""
    if not np.isfinite(timestep.observation).all():
        raise ValueError("the observation is not finite")
    if timestep.first():  # Its reward and its discount are not read.
        return
    for name, value in (("reward", timestep.reward), ("discount", timestep.discount)):
        if value is None or not abs(float(value)) <= _MAX_FLOAT32:
            raise ValueError(f"the {name} is {value}")
