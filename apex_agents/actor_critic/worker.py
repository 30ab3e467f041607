"""The worker: an actor of rollouts, from which it computes gradients for a learner elsewhere."""

import time
from collections.abc import Callable
from typing import Protocol

import dm_env
import numpy as np
import tensorflow as tf
from acme import core
from acme.tf import variable_utils

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.learning import METRICS, Rollout
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.environments import make_batch
from apex_agents.learning.gradients import GradientSender, to_vector
from apex_agents.learning.update import Update

_LAST = int(dm_env.StepType.LAST)
# Between two looks for new parameters, where their source cannot wait for them.
_POLL_SECONDS = 0.005


class RolloutReceiver(Protocol):
    """What a worker's rollouts are for."""

    def begin(self) -> None:
        """Prepare the policy for the next rollout, before its first action."""

    def receive(self, rollout: Rollout) -> None:
        """Take a rollout of arrays, which is complete."""

    def close(self) -> None:
        """Send what is pending."""


class Worker(core.Actor):
    """Acts for `n_step` steps with the same parameters, and hands the rollout over.

    Time steps are batched or those of a single environment, as `acting.actor.ApexActor` has them.
    Where the first step of the next episode comes as one, it is a row of the rollout without an
    action; a rollout does not begin with such rows of all environments. Where `observe_first` gets
    it, the value of a truncated episode's last state is part of the reward before it, and the row
    of the last state is that of the first one.
    """

    def __init__(self, policy: SoftmaxPolicy, config: ActorCriticConfig, receiver: RolloutReceiver):
        """Put the parts together; the receiver keeps the policy's variables up to date."""
        self._policy = policy
        self._config = config
        self._receiver = receiver
        self._is_batched = True
        self._timesteps: list[dm_env.TimeStep] = []  # The rollout's, batched: S_0 to S_k.
        self._actions: list[np.ndarray] = []  # A_0 to A_{k-1}, `[E]` each.
        self._has_begun = False

    def select_action(self, observation: np.ndarray) -> np.ndarray:
        """Return the actions, `[E]`, or `[]` for a single environment."""
        if not self._has_begun:
            self._receiver.begin()
            self._has_begun = True
        action = self._policy(self._timesteps[-1]).action
        return action if self._is_batched else action[0]

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._is_batched = np.ndim(timestep.step_type) > 0
        first = make_batch(timestep)
        begins = first.step_type == dm_env.StepType.FIRST
        if self._actions and np.array_equal(begins, self._timesteps[-1].step_type == _LAST):
            self._timesteps[-1] = self._replace_ends(self._timesteps[-1], first)
        else:  # A rollout begins; the steps of an episode that was abandoned are gone.
            self._timesteps, self._actions = [first], []

    def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
        """Record a step; send the gradient of a rollout that is complete."""
        action = np.asarray(action, np.int32)
        self._add(action if self._is_batched else action[None], make_batch(next_timestep))

    def update(self, wait: bool = False) -> None:
        """Do nothing: parameters stay the same for a whole rollout."""

    def close(self) -> None:
        """Close the receiver."""
        self._receiver.close()

    def _add(self, action: np.ndarray, timestep: dm_env.TimeStep) -> None:
        if not self._actions and np.all(timestep.step_type == dm_env.StepType.FIRST):
            # Do not begin a rollout with rows without a step: with n_step 1 it would have no other.
            self._timesteps = [timestep]
            return
        self._actions.append(action)
        self._timesteps.append(timestep)
        if len(self._actions) == self._config.n_step:
            self._receiver.receive(self._make_rollout())
            self._timesteps, self._actions = self._timesteps[-1:], []
            self._has_begun = False

    def _replace_ends(self, ends: dm_env.TimeStep, first: dm_env.TimeStep) -> dm_env.TimeStep:
        """Put first steps into the rows of last ones, whose values become rewards."""
        is_last, value = ends.step_type == _LAST, 0.0
        if ends.discount[is_last].any():  # Else all of them terminated.
            value = self._config.discount * ends.discount * self._policy(ends).value
        return dm_env.TimeStep(
            step_type=np.where(is_last, dm_env.StepType.MID, ends.step_type),
            reward=np.where(is_last, ends.reward + value, ends.reward),
            discount=np.where(is_last, 0.0, ends.discount),
            observation=first.observation,
        )

    def _make_rollout(self) -> Rollout:
        rows = dm_env.TimeStep(*[np.stack(field) for field in zip(*self._timesteps, strict=True)])
        return Rollout(
            observation=rows.observation,
            action=np.stack(self._actions),
            reward=rows.reward[1:].astype(np.float32),
            discount=(self._config.discount * rows.discount[1:]).astype(np.float32),
            is_step=rows.step_type[1:] != dm_env.StepType.FIRST,
        )


class GradientReceiver:
    """Computes the gradients of rollouts, and sends them to the learner in another process.

    Before each rollout it takes the newest parameters. In A2C it waits for a different version
    than that of its last gradient, since a version takes one gradient of each worker; if none comes
    within `max_wait_seconds`, as after the learner has died, it continues with the one it has.
    """

    def __init__(
        self,
        update: Update,
        sender: GradientSender,
        variable_client: variable_utils.VariableClient,
        config: ActorCriticConfig,
        await_next: Callable[[], None] | None = None,
    ):
        """Put the parts together.

        Args:
          update: computes gradients of the policy's network.
          sender: sends them.
          variable_client: assigns new values to the policy's variables.
          config: the agent's settings.
          await_next: waits until there may be other parameters; None: for 5 milliseconds.
        """
        self._update = update
        self._sender = sender
        self._variable_client = variable_client
        self._config = config
        self._await_next = await_next or (lambda: time.sleep(_POLL_SECONDS))
        self._sent_version: int | None = None
        self._compute = tf.function(self._compute_on_rollout, autograph=False)

    def receive(self, rollout: Rollout) -> None:
        gradient, metrics = self._compute(*map(tf.convert_to_tensor, rollout))
        if self._sender.send(gradient.numpy(), metrics.numpy()):
            self._sent_version = self._sender.version

    def begin(self) -> None:
        deadline = time.monotonic() + self._config.max_wait_seconds
        while True:
            if self._has_to_wait():
                self._await_next()
            self._variable_client.update_and_wait()
            if not self._has_to_wait() or time.monotonic() >= deadline:
                return

    def _has_to_wait(self) -> bool:
        is_sent = self._sender.version == self._sent_version
        return self._config.is_synchronous and is_sent and not self._sender.should_stop()

    def close(self) -> None:
        self._sender.close()

    def _compute_on_rollout(self, *fields: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        gradients, _, metrics = self._update.compute(Rollout(*fields), None)
        vector = to_vector(gradients, self._update.trained)
        return vector, tf.stack([metrics[name] for name in METRICS])
