"""A learner that acts itself: the only worker of a run shares its network, and sends nothing."""

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from apex_agents.actor_critic.config import ActorCriticConfig
from apex_agents.actor_critic.learning import METRICS, Rollout
from apex_agents.actor_critic.policy import SoftmaxPolicy
from apex_agents.actor_critic.worker import Worker
from apex_agents.learning.learner import ApexLearner
from apex_agents.learning.update import Update, update_on_batch
from apex_agents.replay.connections import ParameterPublisher

# Actors of other processes, the evaluator, need no parameters of each update.
_PUBLISH_PERIOD = 20


class RolloutSource:
    """Rollouts of a worker in this process; see `learner.Source` and `worker.RolloutReceiver`.

    Attributes:
      lock_steps: takes one lock-step of the worker with each item, and ends when the run does.
      num_steps: agent steps of all rollouts.
      num_items: rollouts.
      num_not_finite: agent steps with numbers that are not finite, of which none is left out: the
        optimizer skips their gradients, and counts them.
    """

    description = "a rollout of its worker"
    recent_samples = None
    num_not_finite = 0

    def __init__(self, update: Update):
        """Take the update that learns from rollouts."""
        self.lock_steps: Iterator[Any] = iter(())
        self.num_steps = self.num_items = 0
        self._rollouts: collections.deque[Rollout] = collections.deque()
        self._update = update
        self._learn = tf.function(self._learn_from, autograph=False)

    def begin(self) -> None:
        """Do nothing: the policy has the learner's own variables."""

    def receive(self, rollout: Rollout) -> None:
        self._rollouts.append(rollout)
        self.num_steps += int(rollout.is_step.sum())
        self.num_items += 1

    def flush(self) -> None:
        """Do nothing: nothing is sent."""

    def take(self, learner_steps: int, should_stop: Callable[[], bool]) -> Rollout | None:
        """Act until a rollout is complete; return None if the lock-steps end."""
        while not self._rollouts:
            if next(self.lock_steps, self) is self:
                return None
        return self._rollouts.popleft()

    def learn(self, data: Rollout, learner_steps: int) -> dict[str, Any]:
        metrics = dict(self._learn(*map(tf.convert_to_tensor, data)))
        del metrics[METRICS[0]]
        nothing = dict.fromkeys(("staleness_steps", "gradients_dropped"), 0)
        return {**metrics, **nothing, "gradients_per_step": 1.0, "num_updates": 1}

    def close(self) -> None:
        """End the lock-steps."""
        getattr(self.lock_steps, "close", lambda: None)()

    def _learn_from(self, *fields: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return update_on_batch(self._update, Rollout(*fields), None).metrics


class ActingLearner(ApexLearner):
    """Learns from the rollouts of its own worker.

    Attributes:
      policy: the worker's policy, with the network that learns.
      actor: the worker.
      rollouts: its rollouts, which count its steps; their `lock_steps` have to be set.
    """

    def __init__(
        self,
        update: Update,
        policy: SoftmaxPolicy,
        config: ActorCriticConfig,
        publisher: ParameterPublisher,
        **options: Any,
    ):
        """Make the worker of a policy whose network is updated; `options` are `ApexLearner`'s."""
        self.policy = policy
        self.rollouts = RolloutSource(update)
        self.actor = Worker(policy, config, self.rollouts)
        super().__init__(update, self.rollouts, publisher, _PUBLISH_PERIOD, **options)

    @property
    def learner_steps(self) -> int:
        """Learner steps of the parameters that act."""
        return self.num_steps
