"""Writes n-step transitions with the actor's own initial priorities.

Horgan et al. 2018, section 3 and appendix F ("Adding Data"). One adder serves one lane.

Every observation is appended once, as one row of the column `observation` (only the newest frame
when observations are stacks of frames). The transition that ends at a row adds its `outcome` there
(see `replay.transitions`). At the end of an episode several transitions end at the same row; each
further one appends a row that holds an `outcome` alone. An item refers to the first observation,
the outcome and the last observation.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import reverb

from apex_agents.acting.policy import PolicyOutput
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.priorities import bounded_priority
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import pack_outcome

_FLUSH_TIMEOUT_MS = 500


@dataclasses.dataclass(slots=True)
class _PartialTransition:
    """A transition that is not complete yet: R and D grow with every step.

    Attributes:
      action: `[]` or `[D]`, what was done at its first step.
      q_taken: q(s, action) as it was while acting.
      n_step_return: R = sum_{k} (prod_{j<k} gamma d_j) r_k so far.
      n_step_discount: D = prod_{k} gamma d_k so far.
      num_steps: steps since its first observation.
    """

    action: np.ndarray
    q_taken: float
    n_step_return: float = 0.0
    n_step_discount: float = 1.0
    num_steps: int = 0


class PrioritizedNStepAdder:
    """Turns the time steps of one lane into prioritized n-step transitions.

    Attributes:
      num_transitions: transitions sent so far, replicas not counted.
      num_not_finite: transitions left out because a reward, a value or an action was NaN or
        infinite.
    """

    def __init__(
        self,
        client: reverb.Client,
        replay: ReplayConfig,
        n_step: int,
        discount: float,
        frame_stack: int | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        """Open a writer.

        Args:
          client: connected to the replay server.
          replay: batch sizes and replicas.
          n_step: n, steps per transition; fewer at the end of an episode.
          discount: gamma, multiplied with the environment's own discount at every step.
          frame_stack: frames per observation when observations are stacks of frames
            `[frame_stack, ...]`, oldest first; None when they are not.
          should_stop: asked while waiting for a replay that accepts no more.
        """
        self._replay = replay
        self._n_step = n_step
        self._discount = discount
        self._stack = frame_stack
        self._should_stop = should_stop
        # From an item's first frame to the row of its outcome. Whole chunks travel when an item is
        # sampled, so that longer ones would slow sampling down.
        span = (frame_stack or 1) + n_step + 1
        self._writer = client.trajectory_writer(num_keep_alive_refs=span)
        for column in ("observation", "outcome"):
            self._writer.configure((column,), num_keep_alive_refs=span, max_chunk_length=span)
        self._partial: collections.deque[_PartialTransition] = collections.deque()
        self._unflushed = 0
        self.num_transitions = 0
        self.num_not_finite = 0

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        """Record one time step together with what the policy said of it.

        Args:
          timestep: reward and discount are those that led to this observation; ignored on FIRST.
          output: action, q and value at this observation; on LAST only the value is used, and only
            if the discount is not 0.
        """
        if timestep.step_type == dm_env.StepType.FIRST:
            self._begin_episode(timestep.observation)
        else:
            self._continue_episode(timestep, float(output.value))
        if timestep.step_type == dm_env.StepType.LAST:
            self._partial.clear()
            self._wait(self._writer.end_episode)
            self._unflushed = 0
        else:
            self._partial.append(_PartialTransition(np.copy(output.action), float(output.q_taken)))

    def close(self) -> None:
        """Send what is complete, if the replay accepts it, and close the writer."""
        self._wait(self._writer.flush)
        self._writer.close()

    def _begin_episode(self, observation: np.ndarray) -> None:
        if self._partial:  # The episode before was left without a LAST.
            self._partial.clear()
            self._wait(self._writer.end_episode)
        for frame in observation if self._stack else (observation,):
            self._writer.append({"observation": frame})

    def _continue_episode(self, timestep: dm_env.TimeStep, value: float) -> None:
        for transition in self._partial:
            transition.n_step_return += transition.n_step_discount * timestep.reward
            transition.n_step_discount *= self._discount * timestep.discount
            transition.num_steps += 1
        frame = timestep.observation[-1] if self._stack else timestep.observation
        row = {"observation": frame}
        rows_since_observation = 0
        while self._partial and self._is_complete(timestep):
            transition = self._partial.popleft()
            row["outcome"] = pack_outcome(
                transition.action, transition.n_step_return, transition.n_step_discount
            )
            self._writer.append(row)
            self._create_item(transition, value, rows_since_observation)
            row = {}
            rows_since_observation += 1
        if row:
            self._writer.append(row)

    def _is_complete(self, timestep: dm_env.TimeStep) -> bool:
        return (
            timestep.step_type == dm_env.StepType.LAST or self._partial[0].num_steps == self._n_step
        )

    def _create_item(
        self, transition: _PartialTransition, value: float, rows_since_observation: int
    ) -> None:
        td_error = transition.n_step_return - transition.q_taken
        if transition.n_step_discount:  # A terminal value may be anything, NaN too.
            td_error += transition.n_step_discount * value
        if not np.isfinite(td_error):
            self.num_not_finite += 1
            return
        history = self._writer.history
        item = {
            "observation": self._observation(transition.num_steps + rows_since_observation),
            "outcome": history["outcome"][-1],
            "next_observation": self._observation(rows_since_observation),
        }
        priority = float(bounded_priority(td_error))
        for _ in range(self._replay.replicas):
            self._writer.create_item(TRANSITIONS, priority, item)
        self.num_transitions += 1
        self._unflushed += self._replay.replicas
        if self._unflushed >= self._replay.insert_batch:
            # The next batch may be over by the replicas of its last transition.
            batch = self._replay.insert_batch + self._replay.replicas - 1
            allowed = max(self._replay.max_in_flight - batch, 0)
            self._wait(lambda timeout_ms: self._writer.flush(allowed, timeout_ms))
            self._unflushed = 0

    def _observation(self, rows_back: int) -> Any:
        """Refer to the observation `rows_back` rows before the newest row."""
        column = self._writer.history["observation"]
        if not self._stack:
            return column[-1 - rows_back]
        # Contiguous, and with negative bounds: with gaps Reverb returns other rows than asked for,
        # and a positive bound that equals the column's length makes an empty slice.
        frames = column[-rows_back - self._stack : -rows_back or None]
        if len(frames) != self._stack:
            raise AssertionError(f"{len(frames)} of {self._stack} frames are left in the writer.")
        return frames

    def _wait(self, operation: Callable[..., None]) -> None:
        """Repeat a blocking call of the writer until it succeeds or the program stops."""
        while not self._should_stop():
            try:
                operation(timeout_ms=_FLUSH_TIMEOUT_MS)
                return
            except reverb.errors.DeadlineExceededError:
                continue
