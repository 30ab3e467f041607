"""Frames: observations that a replay stores once, alone or as the newest one of a stack."""

import numpy as np

from apex_agents.environments.masks import has_mask, without_mask
from apex_agents.environments.vector_environment import EnvironmentSpec

# Every so many steps of an episode, beginning with its first one.
_SLIDE_CHECK_PERIOD = 16


def find_frames(spec: EnvironmentSpec, frame_stack: int) -> tuple[bool, int]:
    """Return whether observations are frames, which are stored once, and how many slide in a stack.

    Images are frames, and so are images with a mask behind them, which no longer slide.

    Args:
      spec: specification of one environment.
      frame_stack: frames that are stacked along the first axis of an observation, 0 for none.
    """
    observations = without_mask(spec).observations
    is_image = observations.dtype == np.uint8 and len(observations.shape) > 1
    if has_mask(spec):
        return is_image, 0
    return is_image or frame_stack > 0, frame_stack


class SlideCheck:
    """Looks now and then whether the stacked frames of an observation slide by one per step."""

    def follow(self, observation: np.ndarray, is_first: bool) -> None:
        """Take the stack of the next step, `[K, ...]`; raise a ValueError if it did not slide."""
        is_due = not is_first and self._num_steps % _SLIDE_CHECK_PERIOD == 1
        # Bytes are compared rather than numbers, of which NaN differs from itself.
        if is_due and observation[:-1].tobytes() != self._before[1:].tobytes():
            raise ValueError(
                f"agent.frame_stack is {len(observation)}, but observations of shape "
                f"{observation.shape} do not slide by one frame per step. Stack frames along the "
                "first axis, oldest first, or set agent.frame_stack=0."
            )
        self._num_steps: int = 1 if is_first else self._num_steps + 1
        self._before: np.ndarray = observation
