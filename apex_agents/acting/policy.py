"""The seam between an algorithm and its actors: all that acting needs from any network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np
import tensorflow as tf

from apex_agents.acting.exploration import epsilon_ladder
from apex_agents.legal_actions import is_legal
from apex_agents.precision import compute_dtype


class PolicyOutput(NamedTuple):
    """Output of a policy for one time step of every environment.

    Attributes:
      action: `[E]` int32 or `[E, D]`, the action to take, exploration included.
      q_taken: `[E]`, q(s, action).
      value: `[E]`, the value to bootstrap from if a return ends here: max_a q(s, a) or q(s, pi(s)).
      state: `[E, ...]` each, what the policy remembered before this time step, from which and the
        action before it this output can be computed again; nothing for a policy without memory.
    """

    action: np.ndarray
    q_taken: np.ndarray
    value: np.ndarray
    state: tuple[np.ndarray, ...] = ()

    def select(self, env_index: int) -> "PolicyOutput":
        """Return the output for one environment, without the axis `E`."""
        i = env_index
        state = tuple([part[i] for part in self.state])
        return PolicyOutput(self.action[i], self.q_taken[i], self.value[i], state)


class Policy(Protocol):
    """Chooses actions for all environments at once.

    A policy may remember something of each episode, such as a recurrent state or the previous
    action. It keeps this itself and begins anew in the rows that are FIRST. So the output at LAST,
    of which only the value counts, changes nothing for the next episode. A policy with memory has a
    method `value(timestep)`, too, that returns the value alone and remembers nothing: environments
    that begin the next episodes in the lock-step of an end need it.

    Attributes:
      variables: variables to keep up to date, by the names under which they are published.
      exploration: what decides how much each environment explores, `[E]` or one value, by name.
    """

    @property
    def variables(self) -> Mapping[str, Sequence[tf.Variable]]: ...

    @property
    def exploration(self) -> Mapping[str, np.ndarray | float]: ...

    def __call__(self, timestep: dm_env.TimeStep) -> PolicyOutput:
        """Evaluate the network once for the next time step of every environment.

        Args:
          timestep: batched, every field `[E, ...]`; see `environments.VectorEnvironment`.

        Returns:
          New arrays.
        """


class GreedyPolicy(NamedTuple):
    """A trained agent's actions without exploration, as functions of tensors, to load and export.

    Attributes:
      networks: networks by the names under which their variables are published.
      output_name: what `evaluate` gives out: 'action', `[B, D]` in [-1, 1]; any other name, such as
        'q_values', for `[B, A]`, of which the greatest element is the action.
      evaluate: `(observation, *state)`, `[B, ...]` each; returns the output and the next state, a
        tuple that is empty for a policy without memory. With `sees_reward` it is
        `(observation, reward, *state)`.
      initial_state: `(B)`; returns the state at the beginning of episodes.
      value: `(observation, action)`; returns `[B]`. None for an agent without such values.
      sees_reward: whether `evaluate` takes the reward `[B]` that came with the observation, or 0 at
        the first step of an episode.
    """

    networks: Mapping[str, Any]
    output_name: str
    evaluate: Callable[..., tuple[tf.Tensor, tuple[tf.Tensor, ...]]]
    initial_state: Callable[[int], tuple[tf.Tensor, ...]] = lambda num_rows: ()
    value: Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor] | None = None
    sees_reward: bool = False


class EpsilonGreedy:
    """Chooses the action of the highest value, or a uniformly random one.

    Attributes:
      variables: `{'network': ...}`, variables of the network; where epsilons are annealed, also
        `'num_updates'`, the learner steps that they depend on.
      exploration: `{'epsilon': [E]}`, probability of a uniformly random action in each environment;
        with annealing, the final value.
    """

    def __init__(
        self,
        network: Any,
        epsilons: Sequence[float] | np.ndarray,
        seed: int,
        annealing_steps: int | None = None,
    ):
        """Wrap a network whose variables exist.

        Args:
          network: module with the action values of E environments among its outputs.
          epsilons: epsilon of each environment, `[E]`.
          seed: seed of the random actions.
          annealing_steps: learner steps during which all of them fall linearly from 1.
        """
        self._evaluate = CompiledFunction(network)
        self._epsilons = np.asarray(epsilons)
        self.exploration = {"epsilon": self._epsilons}
        self.variables: dict[str, Sequence[tf.Variable]] = {"network": network.variables}
        self._num_updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._annealing_steps = annealing_steps
        if annealing_steps is not None:
            self.variables["num_updates"] = [self._num_updates]
        self._random = np.random.default_rng(seed)

    def _choose(self, q_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the actions `[E]`, int32, all of them legal, and their values of `[E, A]`."""
        num_envs = len(q_values)
        explore = self._random.random(num_envs) < self._current_epsilons()
        drawn = np.where(is_legal(q_values), self._random.random(q_values.shape), -1.0)
        uniform = drawn.argmax(axis=-1)
        action = np.where(explore, uniform, q_values.argmax(axis=-1)).astype(np.int32)
        return action, q_values[np.arange(num_envs), action]

    def _current_epsilons(self) -> np.ndarray:
        if self._annealing_steps is None:
            return self._epsilons
        progress = min(int(self._num_updates) / self._annealing_steps, 1.0)
        return 1.0 + progress * (self._epsilons - 1.0)


def make_exploring_policy(
    kind: Callable[..., Any],
    config: Any,
    make_networks: Callable[..., Any],
    env_indices: Sequence[int],
    num_envs: int,
    seed: int,
) -> Any:
    """Give each environment its rung of the ladder, and compute in the precision of actors."""
    epsilons = epsilon_ladder(config.exploration, num_envs)[list(env_indices)]
    network = make_networks(dtype=compute_dtype(config.bfloat16))
    return kind(network, epsilons, seed, config.exploration.annealing_steps)


def make_evaluation_policy(
    kind: Callable[..., Any], config: Any, network: Any, num_envs: int, seed: int
) -> Any:
    """Give all environments the epsilon of the evaluator."""
    epsilons = np.full(num_envs, config.exploration.evaluation_epsilon)
    return kind(network, epsilons, seed)


class CompiledFunction:
    """A compiled function from arrays, such as observations `[E, ...]`, to any nest of tensors.

    It skips TensorFlow's look-up of the graph for an input, which for small networks takes as long
    as their evaluation.
    """

    def __init__(self, function: Callable[..., Any]):
        # AutoGraph would take a second, and networks have no Python control flow to convert.
        self._function = tf.function(function, autograph=False)
        self._graphs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple([(array.shape, array.dtype) for array in inputs])
        tensors = [tf.convert_to_tensor(array) for array in inputs]
        if key not in self._graphs:
            self._graphs[key] = self._function.get_concrete_function(*tensors)
        return self._graphs[key](*tensors)
