"""Makes n-step transitions with the actor's own initial priorities.

Horgan et al. 2018, section 3 and appendix F ("Adding Data"). One adder serves one environment.
"""

import collections
import math
from collections.abc import Callable

import dm_env
import numpy as np
import reverb

from apex_agents.acting.policy import PolicyOutput
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.priorities import bounded_priority
from apex_agents.replay.transitions import PartialTransition
from apex_agents.replay.writers import make_writer

_FLUSH_TIMEOUT_MS = 500
_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class PrioritizedNStepAdder:
    """Turns the time steps of one environment into prioritized n-step transitions.

    Attributes:
      num_transitions: transitions sent so far, replicas not counted.
      num_not_finite: transitions left out because an observation, a reward, a value or an action
        was NaN or infinite.
    """

    def __init__(  # noqa: PLR0913
        self,
        client: reverb.Client,
        replay: ReplayConfig,
        n_step: int,
        discount: float,
        frame_stack: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ):
        """Open a writer.

        Args:
          client: connected to the replay server.
          replay: batch sizes, replicas, and who is removed.
          n_step: n, steps per transition; fewer at the end of an episode.
          discount: gamma, multiplied with the environment's own discount at every step.
          frame_stack: frames per observation when observations are stacks of frames
            `[frame_stack, ...]`, oldest first, which are stored once each; 0 when they are not.
          should_stop: asked while waiting for a replay that accepts no more.
          learner_steps_fn: gives the learner steps of the parameters that act.
        """
        self._replay = replay
        self._n_step = n_step
        self._discount = discount
        self._should_stop = should_stop
        self._learner_steps_fn = learner_steps_fn
        self._writer = make_writer(client, replay, n_step, frame_stack)
        self._partial: collections.deque[PartialTransition] = collections.deque()
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
        step_type = int(timestep.step_type)  # NumPy compares its numbers with enums slowly.
        is_last = step_type == _LAST
        if step_type == _FIRST:
            self._begin_episode(timestep.observation)
        else:
            self._continue_episode(timestep, is_last, float(output.value))
        if is_last:
            self._end_episode()
        else:
            action, q_taken = np.copy(output.action), float(output.q_taken)
            self._partial.append(PartialTransition(action, q_taken, self._learner_steps_fn()))

    def flush(self) -> None:
        """Send what is complete, as soon as the replay accepts it."""
        self._wait(self._writer.stream.flush)

    def close(self) -> None:
        """Send what is complete, if the replay accepts it, and close the writer."""
        self.flush()
        self._writer.stream.close()

    def _begin_episode(self, observation: np.ndarray) -> None:
        if self._partial:  # The episode before was left without a LAST.
            self._end_episode()
        self._writer.begin_episode(observation)

    def _continue_episode(self, timestep: dm_env.TimeStep, is_last: bool, value: float) -> None:
        reward, discount = float(timestep.reward), self._discount * float(timestep.discount)
        for transition in self._partial:
            transition.n_step_return += transition.n_step_discount * reward
            transition.n_step_discount *= discount
            transition.num_steps += 1
        self._writer.begin_step(timestep.observation)
        while self._partial and (is_last or self._partial[0].num_steps == self._n_step):
            self._add(self._partial.popleft(), value)
        self._writer.end_step()

    def _add(self, transition: PartialTransition, value: float) -> None:
        td_error = transition.n_step_return - transition.q_taken
        if transition.n_step_discount:  # A terminal value may be anything, NaN too.
            td_error += transition.n_step_discount * value
        replicas, batch = self._replay.replicas, self._replay.insert_batch
        priority = bounded_priority(td_error)
        if not math.isfinite(td_error) or not self._writer.add_item(transition, priority, replicas):
            self.num_not_finite += 1
            return
        self.num_transitions += 1
        self._unflushed += replicas
        if self._unflushed >= batch:
            # The next batch may be over by the replicas of its last transition.
            allowed = max(self._replay.max_in_flight - (batch + replicas - 1), 0)
            self._wait(lambda timeout_ms: self._writer.stream.flush(allowed, timeout_ms))
            self._unflushed = 0

    def _end_episode(self) -> None:
        self._partial.clear()
        self._wait(self._writer.stream.end_episode)
        self._unflushed = 0

    def _wait(self, operation: Callable[..., None]) -> None:
        """Repeat a blocking call of the writer until it succeeds or the program stops."""
        while not self._should_stop():
            try:
                operation(timeout_ms=_FLUSH_TIMEOUT_MS)
                return
            except reverb.errors.DeadlineExceededError:
                continue
