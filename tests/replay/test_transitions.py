"""Tests of how transitions are packed and written; `test_adder` has whole episodes."""

from __future__ import annotations

import numpy as np
import pytest
import reverb
from dm_env import specs

from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.frames import find_frames
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.layout import RowStream
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import FrameWriter, make_layout, pack_outcome


def test_outcome():
    action = np.array([0.5, -1.0], np.float32)
    outcome = pack_outcome(action, 3.5, 0.25, learner_steps=12, num_steps=2)
    assert outcome.tolist() == [0.5, -1.0, 3.5, 0.25, 12, 2]
    assert outcome.dtype == np.float32


# 1e39 is finite as a Python float, infinite as a float32.
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e39])
def test_no_outcome_unless_all_its_numbers_are_finite(bad):
    good = (np.array([0.5, 1.0]), 1.0, 0.9, 0, 1)
    assert pack_outcome(*good) is not None
    for index, wrong in enumerate((np.array([0.5, bad]), bad, bad)):
        assert pack_outcome(*good[:index], wrong, *good[index + 1 :]) is None


class CountingStream(RowStream):
    """Remembers the frames of its rows, None where a row has none."""

    def __init__(self, client: reverb.Client, chunk_length: int):
        super().__init__(client, 2 * [chunk_length])
        self.frames: list[int | None] = []

    def append(self, *row: np.ndarray | None) -> list:
        frame = row[0]
        self.frames.append(None if frame is None else int(frame[0]))
        return super().append(*row)


class Frames:
    """A queue of items of frames of one number, and the writer of an environment.

    An observation is a stack of two frames, n is 2.
    """

    def __init__(self, serve):
        observations = specs.Array((2, 1), np.int32)
        spec = EnvironmentSpec(observations, specs.DiscreteArray(9), rewards=None, discounts=None)
        self.layout = make_layout(spec, ReplayConfig(), n_step=2, frame_stack=2)
        table = reverb.Table(
            name=TRANSITIONS,
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=100,
            max_times_sampled=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=self.layout.signature,
        )
        self._client = serve(table)
        self.stream = CountingStream(self._client, chunk_length=5)
        self.writer = FrameWriter(self.stream, 2, find_frames(spec, 2))

    def step(self, number: int, *num_steps: int) -> None:
        """Take a step to the frame `number`, where transitions of so many steps end."""
        self.writer.begin_step(stack(number - 1, number))
        for steps in num_steps:
            outcome = pack_outcome(np.int64(1), 0.0, 1.0, learner_steps=0, num_steps=steps)
            assert self.writer.add_item(stack(number - 1 - steps, number - steps), outcome, 1.0)
        self.writer.end_step()

    def read(self, num_items: int) -> list[tuple[list, list]]:
        """Return the first and the last observation of each item."""
        self.stream.flush()
        samples = self._client.sample(
            TRANSITIONS, num_items, emit_timesteps=False, unpack_as_table_signature=True
        )
        items = [{name: column[None] for name, column in s.data.items()} for s in samples]
        transitions = map(self.layout.unpack, items)
        return [
            (np.ravel(t.observation).tolist(), np.ravel(t.next_observation).tolist())
            for t in transitions
        ]


def stack(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)[:, None]


def test_a_frame_is_written_once_for_all_items_that_refer_to_it(serve):
    frames = Frames(serve)
    frames.writer.begin_episode(stack(0, 1))
    frames.step(2)
    frames.step(3, 2)
    frames.step(4, 2)
    # The first frame is repeated before itself: an item has four frames whatever its length.
    assert frames.stream.frames == [0, 0, 1, 2, 3, 4]
    assert frames.read(2) == [([0, 1], [2, 3]), ([1, 2], [3, 4])]


def test_where_several_transitions_end_further_rows_have_no_frame(serve):
    frames = Frames(serve)
    frames.writer.begin_episode(stack(0, 1))
    frames.step(2)
    frames.step(3, 2, 1)
    assert frames.stream.frames == [0, 0, 1, 2, 3, None]
    assert frames.read(2) == [([0, 1], [2, 3]), ([1, 2], [2, 3])]
