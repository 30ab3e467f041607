"""Sequences of time steps of one episode in the replay (Kapturowski et al. 2019, section 2.3).

A row is one time step: what came with it and what was done at it. Every row is written once, and
neighbouring sequences, which overlap, refer to the same rows. An item has three columns, or two:

- `frames`, for images: the newest frame of each step, and before them the older frames of the first
  step's stack;
- `steps`: a float32 vector `[S_t..., A_{t-1}..., r_t, d_t, learner steps]` for each step, without
  the images of S_t: all that precedes A_t, which is in the next row;
- `head`: a float32 vector `[number of rows, burn-in steps, trained steps, states...]`.

The rows of an item are burn-in steps, trained steps and the steps that their targets need. Short
ones are padded when they are read, so that padding takes no memory.
"""

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import reverb
import tensorflow as tf

from apex_agents.environments.frames import Frames, SlideCheck, find_frames, restore
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import Reference, RowStream, estimate_bytes_per_item, row_bytes

_NUM_COUNTS = 3  # At the beginning of a head.
_NUM_SCALARS = 3  # At the end of a step.
_CHUNKS_PER_ITEM = 6


class SequenceSizes(NamedTuple):
    """Time steps of an item.

    Attributes:
      burn_in: l, steps from which the recurrent state is computed before the first trained one;
        fewer at the beginning of an episode.
      trained: m, steps that are learned from; fewer at the end of an episode.
      following: n, steps behind them, for the targets of the last ones.
      stride: trained steps between the beginnings of two neighbours; m - stride are in both.
    """

    burn_in: int
    trained: int
    following: int
    stride: int

    @property
    def total(self) -> int:
        """L = l + m + n, rows of an item at most."""
        return self.burn_in + self.trained + self.following


class Steps(NamedTuple):
    """Time steps in their order, as a recurrent network gets them.

    Attributes:
      observation: `[B, T, ...]`, S_t.
      previous_action: `[B, T]` int32 or `[B, T, D]`, A_{t-1}; -1 at the first step of an episode.
      reward: `[B, T]`, r_t, which came with S_t; 0 at the first step of an episode.
    """

    observation: tf.Tensor
    previous_action: tf.Tensor
    reward: tf.Tensor


class Sequences(NamedTuple):
    """A batch of sequences; what a short one lacks is filled with its last or first rows.

    Attributes:
      state: recurrent state of the policy before the first step, flat, `[B, ...]` each.
      burn_in: l steps, of which only the first `num_burn_in` count.
      num_burn_in: `[B]` int32.
      steps: m trained steps, and n behind them.
      action: `[B, m]` int32 or `[B, m, D]`, A_t of the trained steps.
      discount: `[B, m + n]`, d_t of the environment, which came with S_t.
      is_real: `[B, m + n]` bool, whether there is such a step.
      is_trained: `[B, m]` bool, whether it is learned from.
      acted_states: recurrent states that acting had before the first and before the last trained
        step, `[B, ...]` each; nothing unless the layout keeps them.
      learner_steps: `[B]`, learner steps of the parameters that chose the first trained action.
    """

    state: tuple[tf.Tensor, ...]
    burn_in: Steps
    num_burn_in: tf.Tensor
    steps: Steps
    action: tf.Tensor
    discount: tf.Tensor
    is_real: tf.Tensor
    is_trained: tf.Tensor
    acted_states: tuple[tuple[tf.Tensor, ...], ...]
    learner_steps: tf.Tensor


class SequenceLayout:
    """Rows of time steps, and items that refer to them; see `replay.layout.Layout`."""

    def __init__(
        self,
        spec: Any,
        replay: ReplayConfig,
        sizes: SequenceSizes,
        state_shapes: Sequence[tuple[int, ...]],
        frame_stack: int = 0,
        keeps_acted_states: bool = False,
    ):
        """Lay out the time steps of an environment.

        Args:
          spec: specification of one environment; observations include the stacked frames.
          replay: replicas.
          sizes: steps of a sequence.
          state_shapes: shape of each part of a policy's state, for one environment.
          frame_stack: frames that are stacked along the first axis of an observation, oldest first;
            0 if observations are no stacks.
          keeps_acted_states: whether items have the states of acting at two trained steps, to
            measure how those of the learner differ.
        """
        self._spec = spec
        self._replay = replay
        self.num_states = 3 if keeps_acted_states else 1
        self._state_shapes = [tuple(shape) for shape in state_shapes]
        self._frames = frames = find_frames(spec, frame_stack)
        self.sizes = sizes
        # Frames of an observation before its newest one.
        self._num_older = max(frames.stack, 1) - 1 if frames else 0
        state_size = self.num_states * sum(math.prod(shape) for shape in self._state_shapes)
        step_size = math.prod(spec.actions.shape) + _NUM_SCALARS
        self.padded_shapes: dict[str, Any] = {"head": [_NUM_COUNTS + state_size]}
        if frames is not None:
            self.padded_shapes["frames"] = [sizes.total + self._num_older, *frames.shape]
        step_size += math.prod(spec.observations.shape) if frames is None else frames.rest_size
        self.padded_shapes["steps"] = [sizes.total, step_size]
        dtypes = {"frames": tf.as_dtype(frames.dtype)} if frames else {}
        self.signature = {
            name: tf.TensorSpec(
                [None, *shape[1:]] if len(shape) > 1 else shape, dtypes.get(name, tf.float32)
            )
            for name, shape in self.padded_shapes.items()
        }
        self._chunk_length = -(-sizes.total // _CHUNKS_PER_ITEM)
        bytes_of_row = [
            row_bytes(shape[1:], self.signature[name].dtype)
            for name, shape in self.padded_shapes.items()
            if name != "head"
        ]
        head_bytes = 4.0 * (_NUM_COUNTS + state_size)
        self.bytes_per_item = estimate_bytes_per_item(
            replay, bytes_of_row, self._chunk_length, sizes.total, sizes.stride, head_bytes
        )

    def make_writer(self, client: reverb.Client) -> "SequenceWriter":
        num_rows = self.sizes.total + self._num_older
        # Whole chunks travel with an item; of heads there is one per item.
        chunk_lengths = [self._chunk_length, 1, self._chunk_length]
        stream = RowStream(client, chunk_lengths, self._replay.replicas, num_rows=num_rows)
        return SequenceWriter(stream, num_rows, self._frames)

    def unpack(self, item: Mapping[str, tf.Tensor]) -> Sequences:
        sizes = self.sizes
        counts = tf.cast(item["head"][:, :_NUM_COUNTS], tf.int32)
        num_rows, num_burn_in, num_trained = [counts[:, i, tf.newaxis] for i in range(_NUM_COUNTS)]
        state, *acted_states = self._unpack_states(item["head"][:, _NUM_COUNTS:])
        # Rows behind the burn-in stand for those that a short one lacks.
        burn_in, *_ = self._take_rows(item, tf.minimum(tf.range(sizes.burn_in), num_rows - 1))
        positions = tf.range(sizes.trained + sizes.following)
        rows = tf.minimum(num_burn_in + positions, num_rows - 1)
        steps, discount, learner_steps = self._take_rows(item, rows)
        next_rows = tf.minimum(rows[:, : sizes.trained] + 1, num_rows - 1)
        following, *_ = self._take_rows(item, next_rows)
        return Sequences(
            state=state,
            burn_in=burn_in,
            num_burn_in=counts[:, 1],
            steps=steps,
            action=following.previous_action,
            discount=discount,
            is_real=num_burn_in + positions < num_rows,
            is_trained=positions[: sizes.trained] < num_trained,
            acted_states=tuple(acted_states),
            learner_steps=learner_steps[:, 0],
        )

    def _take_rows(
        self, item: Mapping[str, tf.Tensor], rows: tf.Tensor
    ) -> tuple[Steps, tf.Tensor, tf.Tensor]:
        """Return the steps of rows `[B, T]`, their discounts and their learner steps."""
        action_size = math.prod(self._spec.actions.shape)
        numbers = tf.gather(item["steps"], rows, batch_dims=1)
        observed, action, scalars = tf.split(numbers, [-1, action_size, _NUM_SCALARS], axis=2)
        batch_shape = [-1, rows.shape[1]]
        if self._frames is None:
            observation = restore(observed, batch_shape, self._spec.observations)
        else:
            stack = rows[..., tf.newaxis] + tf.range(self._num_older + 1)
            frames = tf.gather(item["frames"], stack, batch_dims=1)
            observation = self._frames.merge(frames, observed, batch_shape)
        reward, discount, learner_steps = tf.unstack(scalars, axis=2)
        steps = Steps(observation, restore(action, batch_shape, self._spec.actions), reward)
        return steps, discount, learner_steps

    def _unpack_states(self, flat: tf.Tensor) -> list[tuple[tf.Tensor, ...]]:
        sizes = [math.prod(shape) for shape in self._state_shapes] * self.num_states
        shapes = self._state_shapes * self.num_states
        parts = tf.split(flat, sizes, axis=1) if sizes else []
        parts = [tf.reshape(part, [-1, *shape]) for part, shape in zip(parts, shapes, strict=True)]
        step = len(self._state_shapes)
        return [tuple(parts[i * step : (i + 1) * step]) for i in range(self.num_states)]


class SequenceWriter:
    """Writes every time step once; items refer to consecutive ones."""

    def __init__(self, stream: RowStream, num_rows: int, of_observation: Frames | None):
        """Take the stream.

        Args:
          stream: stream of the columns frames, head and steps.
          num_rows: newest rows that an item can refer to.
          of_observation: how observations come apart; None if they have no frames.
        """
        self.stream = stream
        self._of_observation = of_observation
        self._is_stack = bool(of_observation and of_observation.stack)
        self._num_older = of_observation.stack - 1 if of_observation and self._is_stack else 0
        self._frames: collections.deque[Reference] = collections.deque(maxlen=num_rows)
        self._steps: collections.deque[Reference] = collections.deque(maxlen=num_rows)
        self._slide = SlideCheck()

    def begin_episode(self, observation: np.ndarray) -> None:
        """Write the older frames of the first observation."""
        self._frames.clear()
        self._steps.clear()
        for index in range(self._num_older):
            self._frames.append(self.stream.append(observation[index], None, None)[0])

    def add_step(self, observation: np.ndarray, step: np.ndarray) -> None:
        """Write a row.

        Args:
          observation: S_t; of a stack the newest frame is written.
          step: `[A_{t-1}..., r_t, d_t, learner steps]`.

        Raises:
          ValueError: the stack did not slide by one frame since the step before.
        """
        frame, rest = None, observation
        if self._of_observation is not None:
            frame, rest = self._of_observation.split(observation)
            if self._is_stack:
                self._slide.follow(frame, is_first=not self._steps)
                frame = frame[-1]
        step = np.concatenate([np.ravel(rest), step], dtype=np.float32, casting="unsafe")
        frame_reference, _, step_reference = self.stream.append(frame, None, step)
        self._frames.append(frame_reference)
        self._steps.append(step_reference)

    def add_item(self, num_rows: int, head: np.ndarray, priority: float) -> None:
        """Add a sequence of the newest `num_rows` steps."""
        _, head_reference, _ = self.stream.append(None, head, None)
        item = {"head": head_reference, "steps": list(self._steps)[-num_rows:]}
        if self._of_observation is not None:
            item["frames"] = list(self._frames)[-(num_rows + self._num_older) :]
        self.stream.create_item(item, priority)


def pack_head(
    num_rows: int, num_burn_in: int, num_trained: int, states: Sequence[Sequence[np.ndarray]]
) -> np.ndarray:
    """Return the head of an item with so many steps of each kind and these recurrent states."""
    counts = np.array([num_rows, num_burn_in, num_trained], np.float32)
    parts = [np.ravel(part) for state in states for part in state]
    return np.concatenate([counts, *parts], dtype=np.float32, casting="unsafe")
