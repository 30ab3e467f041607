"""Makes n-step transitions with the actor's own initial priorities."""

import abc
import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import reverb

from apex_agents.acting.policy import PolicyOutput
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import Layout, repeat_until_sent
from apex_agents.replay.priorities import bounded_priority
from apex_agents.replay.transitions import pack_outcome
from apex_agents.waits import Waiting

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


@dataclasses.dataclass(slots=True)
class _PartialTransition:
    """A transition that grows with every time step until it is complete."""

    observation: np.ndarray  # S_t
    action: np.ndarray  # A_t, [] or [D]
    q_taken: float  # q(S_t, A_t) of the acting network at time t
    learner_steps: int  # Learner steps of the parameters that chose A_t.
    n_step_return: float = 0.0  # R so far
    n_step_discount: float = 1.0  # D so far
    num_steps: int = 0  # Agent steps since S_t.


class PrioritizedAdder(abc.ABC):
    """Writes the experience of one environment into the replay, and waits for its confirmations.

    Attributes:
      num_steps: agent steps recorded so far.
      num_items: items sent so far; replicas are counted once.
      num_not_finite: agent steps left out because a number in them was NaN or infinite.
    """

    def __init__(
        self,
        client: reverb.Client,
        layout: Layout,
        replay: ReplayConfig,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
    ):
        """Keep the settings; the first observation opens the writer.

        Args:
          client: client of the replay server.
          layout: how items are written.
          replay: batch sizes and replicas.
          should_stop: asked while waiting for a replay that accepts no more.
          learner_steps_fn: returns the learner steps of the acting parameters.
        """
        self._client = client
        self._layout = layout
        self._replay = replay
        self._should_stop = should_stop
        self._learner_steps_fn = learner_steps_fn
        ratio = replay.samples_per_insert
        cause = f" (agent.replay.samples_per_insert is {ratio:g})" if ratio else ""
        self._waiting = Waiting(f"the replay to accept items{cause}")
        self._writer: Any = None
        self._unflushed = 0
        self.num_steps = 0
        self.num_items = 0
        self.num_not_finite = 0

    @abc.abstractmethod
    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        """Record one time step.

        Args:
          timestep: one environment's; its arrays are kept without a copy and must not change.
          output: the policy's for this time step, `[]` or `[D]` each, kept in the same way; on
            LAST only the value is used.
        """

    def flush(self) -> None:
        """Send all complete items, as soon as the replay accepts them."""
        if self._writer is not None:
            self._wait(self._writer.stream.flush)

    def close(self) -> None:
        """Send all complete items, unless the program stops, and close the writer."""
        self.flush()
        if self._writer is not None:
            self._writer.stream.close()

    def _begin_episode(self, observation: np.ndarray) -> None:
        if self._writer is None:
            self._writer = self._layout.make_writer(self._client)
        self._writer.begin_episode(observation)

    def _end_episode(self) -> None:
        self._wait(self._writer.stream.end_episode)
        self._unflushed = 0

    def _count_item(self) -> None:
        """Count an item that was written, and wait if too many are not confirmed."""
        replicas, batch = self._replay.replicas, self._replay.insert_batch
        self.num_items += 1
        self._unflushed += replicas
        if self._unflushed >= batch:
            # The next batch may exceed its size by the replicas of its last item.
            allowed = max(self._replay.max_in_flight - (batch + replicas - 1), 0)
            self._wait(lambda timeout_ms: self._writer.stream.flush(allowed, timeout_ms))
            self._unflushed = 0

    def _wait(self, operation: Callable[..., None]) -> None:
        with self._waiting:
            repeat_until_sent(operation, self._should_stop)


class PrioritizedNStepAdder(PrioritizedAdder):
    """Turns the time steps of one environment into prioritized n-step transitions.

    A transition (S_t, A_t, R, D, S_{t+m}) spans m agent steps. With reward r_{k+1} and discount
    d_{k+1} of the time step that follows S_k, and gamma the agent's discount,

      R = sum_{k<m} (prod_{j<k} gamma d_{t+1+j}) r_{t+1+k},   D = prod_{k<m} gamma d_{t+1+k}
      priority = |R + D * value(S_{t+m}) - q_taken(t)|

    where acting has computed q_taken and value; `priority_fn` may return a different priority.
    All are clipped to [1e-6, 1e6].

    - FIRST starts an episode and a transition. Its reward and discount are ignored. Transitions of
      an episode that was abandoned, that is left without a LAST, are dropped.
    - MID extends all transitions under way by one step. The one that now has n steps is complete
      (m = n) and is added: none at the first n - 1 steps of an episode, one at each further step.
      Then it starts a new transition.
    - LAST extends and completes all of them: that with n steps and the shorter ones behind it,
      m = n - 1, ..., 1. An episode of at most n steps gives only these. It starts no transition.
      With its discount 0, a termination, D = 0, and the value of the last observation is not read;
      with 1, a truncation, that value is bootstrapped from.

    Source: Horgan et al. 2018, section 3, algorithm 1 and appendix F ("Adding Data").

    Attributes:
      n_step: n, which a subclass may change at any step, up to the longest of the layout.
      num_steps: agent steps sent so far, each of which is a transition.
      num_not_finite: transitions left out because an observation, a reward, a value or an action
        was NaN or infinite, or the priority was NaN.
    """

    def __init__(  # noqa: PLR0913
        self,
        client: reverb.Client,
        layout: Layout,
        replay: ReplayConfig,
        n_step: int,
        discount: float,
        should_stop: Callable[[], bool] = lambda: False,
        learner_steps_fn: Callable[[], int] = lambda: 0,
        priority_fn: Callable[[float], float] = bounded_priority,
    ):
        """Keep the settings.

        Args:
          client: client of the replay server.
          layout: how transitions of up to n steps are written.
          replay: batch sizes and replicas.
          should_stop: see `PrioritizedAdder`.
          learner_steps_fn: see `PrioritizedAdder`.
          n_step: n, agent steps per transition.
          discount: gamma, multiplied with the environment's discount at every step.
          priority_fn: returns the priority of a transition, given its TD error.
        """
        super().__init__(client, layout, replay, should_stop, learner_steps_fn)
        self.n_step = n_step
        self._discount = discount
        self._priority_fn = priority_fn
        self._partial: collections.deque[_PartialTransition] = collections.deque()

    def add(self, timestep: dm_env.TimeStep, output: PolicyOutput) -> None:
        """Record one time step; see the class for what each step type does.

        Raises:
          ValueError: observations are no stacks of frames, although the layout has stacks.
        """
        step_type = int(timestep.step_type)  # NumPy compares its numbers with enums slowly.
        if step_type == _FIRST:
            if self._partial:  # The episode before was abandoned.
                self._end_episode()
            self._begin_episode(timestep.observation)
        else:
            self._continue_episode(timestep, step_type == _LAST, float(output.value))
        if step_type == _LAST:
            self._end_episode()
        else:
            q_taken, learner_steps = float(output.q_taken), self._learner_steps_fn()
            self._partial.append(
                _PartialTransition(timestep.observation, output.action, q_taken, learner_steps)
            )

    def _continue_episode(self, timestep: dm_env.TimeStep, is_last: bool, value: float) -> None:
        reward, discount = float(timestep.reward), self._discount * float(timestep.discount)
        for partial in self._partial:
            partial.n_step_return += partial.n_step_discount * reward
            partial.n_step_discount *= discount
            partial.num_steps += 1
        self._writer.begin_step(timestep.observation)
        while self._partial and (is_last or self._partial[0].num_steps >= self.n_step):
            self._add_transition(self._partial.popleft(), value)
        self._writer.end_step()

    def _add_transition(self, partial: _PartialTransition, value: float) -> None:
        td_error = partial.n_step_return - partial.q_taken
        if partial.n_step_discount:  # A terminal value may be anything, NaN too.
            td_error += partial.n_step_discount * value
        outcome = pack_outcome(
            partial.action,
            partial.n_step_return,
            partial.n_step_discount,
            partial.learner_steps,
            partial.num_steps,
        )
        if outcome is not None and math.isfinite(td_error):
            priority = bounded_priority(self._priority_fn(td_error))
            if priority > 0 and self._writer.add_item(partial.observation, outcome, priority):
                self.num_steps += 1
                return self._count_item()
        self.num_not_finite += 1

    def _end_episode(self) -> None:
        self._partial.clear()
        super()._end_episode()
