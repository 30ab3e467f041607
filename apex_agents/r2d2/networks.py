"""Recurrent action-value networks: any torso, a recurrent core, a dueling head (R2D2)."""

from collections.abc import Callable
from typing import Any

import sonnet as snt
import tensorflow as tf

from apex_agents.environments import EnvironmentSpec
from apex_agents.learning.sequence_losses import rescale
from apex_agents.legal_actions import mask_values
from apex_agents.networks.dueling import DuelingHead
from apex_agents.networks.normalization import RunningNormalization
from apex_agents.networks.observations import zero_observations
from apex_agents.networks.torso_choice import make_torso
from apex_agents.own_torso import TorsoFn
from apex_agents.r2d2.config import R2D2Config
from apex_agents.replay.sequences import Steps
from apex_agents.user_code import find_function, in_one_line

State = tuple[tf.Tensor, ...]
_CORES: dict[str, Callable[[int], snt.RNNCore]] = {
    "lstm": lambda size: snt.LSTM(size, name="core"),
    "gru": lambda size: snt.GRU(size, name="core"),
    "none": lambda size: snt.DeepRNN([], name="core"),  # Its output is its input.
}
_NEEDED = (
    "It has to return a new snt.RNNCore at each call, from features [B, F] and a state of float32 "
    "[B, ...] to outputs [B, G] and the next state."
)


def make_network(
    config: R2D2Config,
    spec: EnvironmentSpec,
    dtype: tf.DType = tf.float32,
    torso_fn: TorsoFn | None = None,
) -> "RecurrentNetwork":
    """Build the network of a config; its variables exist.

    Args:
      config: torso, core, inputs and sizes of the network.
      spec: specification of one environment, with A actions.
      dtype: dtype of the variables of the torso.
      torso_fn: maker of the torso in place of the config's.

    Raises:
      ValueError: the torso does not fit the environment.
    """
    observations, layers = zero_observations(spec), []
    if config.normalize_observations:
        layers.append(RunningNormalization(spec.observations.shape, name="normalization"))
        observations = layers[0](observations)
    layers.append(make_torso(config, spec, observations, dtype, torso_fn))
    made: list[tf.Variable] = []

    def make_variable(make_next: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        made.append(make_next(**settings))
        return made[-1]

    with tf.variable_creator_scope(make_variable):
        core = make_core(config, spec)
        head = DuelingHead(config.stream_hidden_size, spec.actions.num_values, name="head")
        network = RecurrentNetwork(snt.Sequential(layers), core, head, spec, config)
        first = zero_observations(spec), tf.constant([-1, -1]), tf.zeros([2])
        if config.core not in _CORES:
            _check_own_core(core, network.core_input(*first), f"agent.core {config.core!r}")
        network(*first, *network.initial_state(2))
    new = set(map(id, made))
    if old := [v.name for v in snt.allow_empty_variables(core).variables if id(v) not in new]:
        raise ValueError(
            f"agent.core {config.core!r} has variables of an earlier call: {old}. {_NEEDED}"
        )
    return network


def make_core(config: R2D2Config, spec: EnvironmentSpec) -> snt.RNNCore:
    """Make the recurrent core of a config, whose variables need not exist yet.

    Args:
      config: name of the core, or 'module:function', a function of the spec and the config.
      spec: specification of one environment.

    Raises:
      ValueError: the user's function cannot be imported, fails, or returns no such core.
    """
    if config.core in _CORES:
        return _CORES[config.core](config.core_size)
    label = f"agent.core {config.core!r}"
    try:
        core = find_function(config.core, "agent.core")(spec, config)
        with tf.GradientTape() as tape:
            state = core.initial_state(1) if isinstance(core, snt.RNNCore) else None
    except ValueError:
        raise
    except Exception as error:  # The user's code may raise anything.
        raise ValueError(f"{label} raises {in_one_line(error)}. {_NEEDED}") from error
    if state is None:
        raise ValueError(f"{label} returns {core!r}. {_NEEDED}")
    if any(isinstance(module, RunningNormalization) for module in core.submodules):
        raise ValueError(
            f"{label} has a RunningNormalization, which learns its statistics in a torso only: put "
            "it there, or set agent.normalize_observations=True"
        )
    if tape.watched_variables():
        raise ValueError(
            f"{label} has an initial state that is learned. No gradient would reach it, since "
            "sequences begin with states that acting had: return constants."
        )
    dtypes = {part.dtype.name for part in tf.nest.flatten(state)}
    if not dtypes <= {"float32"}:
        raise ValueError(f"{label} has a state of {', '.join(sorted(dtypes))}. {_NEEDED}")
    return core


def _check_own_core(core: snt.RNNCore, features: tf.Tensor, label: str) -> None:
    """Let a user-defined core take one step.

    Raises:
      ValueError: it cannot, or gives outputs or a state of other shapes.
    """
    state = core.initial_state(len(features))
    shapes = [part.shape for part in tf.nest.flatten(state)]
    if any(shape.rank == 0 or shape[0] != len(features) for shape in shapes):
        given = ", ".join(map(str, shapes))
        raise ValueError(
            f"{label} has an initial state of shapes {given} for a batch of {len(features)}. "
            f"{_NEEDED}"
        )
    try:
        output, next_state = core(features, state)
        tf.nest.assert_same_structure(state, next_state)
    except Exception as error:  # The user's code may raise anything.
        problem = f"{label}, called with features {features.shape}, raises {in_one_line(error)}"
        raise ValueError(f"{problem}. {_NEEDED}") from error
    next_shapes = [part.shape for part in tf.nest.flatten(next_state)]
    if output.shape.rank != 2 or output.shape[0] != len(features) or next_shapes != shapes:
        raise ValueError(
            f"{label} maps features {features.shape} and a state of shapes "
            f"{', '.join(map(str, shapes))} to an output {output.shape} and a state of shapes "
            f"{', '.join(map(str, next_shapes))}. {_NEEDED}"
        )


class RecurrentNetwork(snt.Module):
    """Action values of a time step, given the state that the steps before it have left.

    The input of the core has, beside the features of the observation, the previous action and the
    reward that followed it, compressed by `rescale`, so that large ones do not drown the features.

    Attributes:
      torso: module from observations `[B, ...]` to features `[B, F]`.
      sees_reward: whether the reward is an input.
    """

    def __init__(
        self,
        torso: snt.Module,
        core: snt.RNNCore,
        head: DuelingHead,
        spec: EnvironmentSpec,
        config: R2D2Config,
    ):
        """Put the parts together."""
        super().__init__()
        self.torso = torso
        self._core = core
        self._head = head
        self._spec = spec
        self._num_actions = spec.actions.num_values
        self._sees_action = config.previous_action_input
        self.sees_reward = config.previous_reward_input

    def __call__(
        self,
        observation: tf.Tensor,
        previous_action: tf.Tensor,
        reward: tf.Tensor,
        *state: tf.Tensor,
    ) -> tuple[tf.Tensor, State]:
        """Evaluate one time step.

        Args:
          observation: `[B, ...]`.
          previous_action: `[B]` int32; -1 at the first step of an episode.
          reward: `[B]`, which came with the observation; 0 at the first step of an episode.
          *state: as `initial_state` returns it.

        Returns:
          Action values `[B, A]`, and the state for the next time step.
        """
        features = self.core_input(observation, previous_action, reward)
        output, next_state = self._core(features, self._pack(state))
        q_values = mask_values(self._head(output), observation, self._spec)
        return q_values, tuple(tf.nest.flatten(next_state))

    def unroll(
        self, steps: Steps, state: State, num_steps: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, State]:
        """Evaluate the time steps of sequences in their order.

        Args:
          steps: T steps of each sequence.
          state: state before the first step.
          num_steps: `[B]` int32, steps of each sequence that count; None for all.

        Returns:
          Action values `[B, T, A]`, and the state behind the last step that counts.
        """
        length = steps.reward.shape[1]
        features = self.core_input(*map(_flatten_time, steps))
        if state:
            features = tf.reshape(features, [-1, length, features.shape[-1]])
            features, packed = _unroll(
                self._core, tf.transpose(features, [1, 0, 2]), self._pack(state), num_steps
            )
            features = _flatten_time(tf.transpose(features, [1, 0, 2]))
            state = tuple(tf.nest.flatten(packed))
        else:  # A core without memory takes all steps at once.
            features, _ = self._core(features, self._pack(()))
        observations = _flatten_time(steps.observation)
        q_values = mask_values(self._head(features), observations, self._spec)
        return tf.reshape(q_values, [-1, length, self._num_actions]), state

    def core_input(
        self, observation: tf.Tensor, previous_action: tf.Tensor, reward: tf.Tensor
    ) -> tf.Tensor:
        """Return what the core sees of time steps, `[B, F]`; see `__call__`."""
        parts = [tf.cast(self.torso(observation), tf.float32)]
        if self._sees_action:
            # Zeros for -1, which is the last action to ONNX's one-hot encoding.
            actions = tf.range(self._num_actions, dtype=previous_action.dtype)
            is_action = previous_action[:, tf.newaxis] == actions
            parts.append(tf.cast(is_action, tf.float32))
        if self.sees_reward:
            parts.append(rescale(reward)[:, tf.newaxis])
        return tf.concat(parts, axis=1)

    def initial_state(self, batch_size: int) -> State:
        """Return the state before the first step of an episode, `[B, ...]` each."""
        return tuple(tf.nest.flatten(self._core.initial_state(batch_size)))

    def _pack(self, state: State) -> Any:
        return tf.nest.pack_sequence_as(self._core.initial_state(1), state)


def _flatten_time(tensor: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tensor, [-1, *tensor.shape[2:]])


def _unroll(
    core: snt.RNNCore, inputs: tf.Tensor, state: Any, num_steps: tf.Tensor | None = None
) -> tuple[tf.Tensor, Any]:
    """Compute all steps of sequences, as `snt.dynamic_unroll` does.

    The inputs of all steps pass the weights of Sonnet's LSTM and GRU in one product. One for each
    step is slower, above all its gradient: a matrix for each step, which are added up.

    Args:
      core: core whose variables exist.
      inputs: `[T, B, F]` of known T and F.
      state: state before the first step.
      num_steps: `[B]` int32, steps of each sequence that count; None for all.

    Returns:
      Outputs `[T, B, G]`, and the state behind the last step that counts.
    """
    step: Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]] = core
    if make_step := _STEPS.get(type(core)):
        length, _, size = inputs.shape
        products = tf.matmul(tf.reshape(inputs, [-1, size]), core.input_to_hidden) + core.b
        inputs = tf.reshape(products, [length, -1, products.shape[-1]])
        step = make_step(core)
    return snt.dynamic_unroll(step, inputs, state, num_steps)


def _make_lstm_step(core: snt.LSTM) -> Callable[..., tuple[tf.Tensor, snt.LSTMState]]:
    def step(products: tf.Tensor, state: snt.LSTMState) -> tuple[tf.Tensor, snt.LSTMState]:
        gates = products + tf.matmul(state.hidden, core.hidden_to_hidden)
        i, f, g, o = tf.split(gates, 4, axis=1)
        cell = tf.sigmoid(f) * state.cell + tf.sigmoid(i) * tf.tanh(g)
        hidden = tf.sigmoid(o) * tf.tanh(cell)
        if core.projection is not None:
            hidden = tf.matmul(hidden, core.projection)
        return hidden, snt.LSTMState(hidden, cell)

    return step


def _make_gru_step(core: snt.GRU) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    def step(products: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        size = state.shape[1]
        weights = core.hidden_to_hidden
        gates = tf.sigmoid(products[:, : 2 * size] + tf.matmul(state, weights[:, : 2 * size]))
        z, r = tf.split(gates, 2, axis=1)
        a = tf.tanh(products[:, 2 * size :] + tf.matmul(r * state, weights[:, 2 * size :]))
        next_state = (1 - z) * state + z * a
        return next_state, next_state

    return step


# Exactly these classes: a subclass may compute something else.
_STEPS: dict[type, Callable[[Any], Callable[..., Any]]] = {
    snt.LSTM: _make_lstm_step,
    snt.GRU: _make_gru_step,
}
