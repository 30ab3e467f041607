"""Makes overlapping sequences with the actor's own initial priorities (R2D2)."""

import collections
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np

from apex_agents.acting.adder import PrioritizedAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.priorities import bounded_priority
from apex_agents.replay.sequences import SequenceLayout, pack_head

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class ActedStep(NamedTuple):
    """One time step as its actor saw it, of which priorities are made.

    Attributes:
      q_taken: q(S_t, A_t).
      value: max_a q(S_t, a).
      reward: r_t, which came with S_t; 0 at FIRST.
      discount: d_t of the environment, which came with S_t; 1 at FIRST.
      state: recurrent state of the policy before S_t.
      is_finite: whether all numbers of the step are finite in float32.
    """

    q_taken: float
    value: float
    reward: float
    discount: float
    state: tuple[np.ndarray, ...]
    is_finite: bool


class SequenceAdder(PrioritizedAdder):
    """Turns the time steps of one environment into prioritized sequences that overlap.

    The trained blocks of an episode of T steps begin at its steps 0, p, 2p, ... and have m steps;
    the last one, which begins before the one before it has reached the end, ends with the episode.
    So an episode of at most m steps is trained whole, in one block. An item begins with up to l
    steps before its block, fewer at the beginning of the episode, and with the state that the
    policy had there. It ends n steps behind the block or with the last time step, whose action
    counts for nothing. An item is added as soon as it is complete. Blocks of an episode that was
    abandoned, that is left without a LAST, are dropped unless they were complete.

    Source: Kapturowski et al. 2019, section 2.3; what the paper leaves open is decided here.
    """

    def __init__(
        self,
        client: Any,
        layout: SequenceLayout,
        replay: ReplayConfig,
        priority_fn: Callable[[Sequence[ActedStep], int], float],
        **calls: Any,
    ):
        """Keep the settings.

        Args:
          client: client of the replay server.
          layout: how sequences are written; its sizes are l, m, n and the stride p.
          replay: batch sizes and replicas.
          priority_fn: returns the priority of a sequence, given its steps from the first trained
            one on, and the number of trained ones.
          **calls: `should_stop` and `learner_steps_fn` of `PrioritizedAdder`.
        """
        super().__init__(client, layout, replay, **calls)
        self._sizes, self._num_states = layout.sizes, layout.num_states
        self._priority_fn = priority_fn
        self._steps: collections.deque[ActedStep] = collections.deque(maxlen=self._sizes.total)
        self._length = 0  # Time steps of the episode so far.
        self._block = 0  # The first step of the next trained block.
        self._trained_until = 0  # Steps of the episode that earlier blocks have covered.

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        step_type = int(timestep.step_type)
        if step_type == _FIRST:
            if self._length:  # The episode before was abandoned.
                self._end_episode()
            self._begin_episode(timestep.observation)
        self._append(timestep, output, step_type)
        sizes = self._sizes
        if step_type == _LAST:
            num_acted = self._length - 1
            while self._trained_until < num_acted:
                self._add_item(min(sizes.trained, num_acted - self._block))
            self._end_episode()
        elif self._length == self._block + sizes.trained + sizes.following:
            self._add_item(sizes.trained)

    def _append(self, timestep: dm_env.TimeStep, output: PolicyOutput, step_type: int) -> None:
        is_first = step_type == _FIRST
        if is_first:
            self._previous_action = np.full_like(output.action, -1)
        reward = 0.0 if is_first else float(timestep.reward)
        discount = 1.0 if is_first else float(timestep.discount)
        scalars = (reward, discount, self._learner_steps_fn())
        parts = (np.ravel(self._previous_action), scalars)
        with np.errstate(over="ignore"):  # It is found below.
            row = np.concatenate(parts, dtype=np.float32, casting="unsafe")
        self._previous_action = output.action
        observation = timestep.observation
        is_finite = bool(np.isfinite(row).all()) and (
            observation.dtype.kind != "f" or bool(np.isfinite(np.float32(observation)).all())
        )
        self._writer.add_step(observation, row)
        self._length += 1
        self.num_steps += not is_first
        self._steps.append(
            ActedStep(
                float(output.q_taken),
                float(output.value),
                reward,
                discount,
                output.state,
                is_finite,
            )
        )

    def _add_item(self, num_trained: int) -> None:
        """Add the item of the next block, which ends with the newest step."""
        num_burn_in = min(self._block, self._sizes.burn_in)
        num_rows = self._length - self._block + num_burn_in
        steps = list(self._steps)[-num_rows:]
        num_new = self._block + num_trained - self._trained_until
        self._trained_until += num_new
        self._block += self._sizes.stride
        priority = math.nan
        if all(step.is_finite for step in steps):
            priority = self._priority_fn(steps[num_burn_in:], num_trained)
        if not math.isfinite(priority):
            self.num_not_finite += num_new
            return
        states = [steps[i].state for i in (0, num_burn_in, num_burn_in + num_trained - 1)]
        head = pack_head(num_rows, num_burn_in, num_trained, states[: self._num_states])
        self._writer.add_item(num_rows, head, bounded_priority(priority))
        self._count_item()

    def _end_episode(self) -> None:
        self._steps.clear()
        self._length = self._block = self._trained_until = 0
        super()._end_episode()
