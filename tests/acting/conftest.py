"""A replay that hands back every item once, in the order in which the items were written."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import reverb
from dm_env import specs

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.environments import EnvironmentSpec
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.tables import TRANSITIONS
from apex_agents.replay.transitions import make_layout


class Item(NamedTuple):
    """One transition with its priority, as written or as expected."""

    observation: Any
    action: Any
    n_step_return: float
    n_step_discount: float
    next_observation: Any
    priority: float


class FifoReplay:
    """A Reverb server whose only table is a queue without a limit, or with the limiter given.

    Attributes:
      learner_steps: of the items that were read.
    """

    def __init__(
        self,
        serve: Callable[..., reverb.Client],
        observation_spec: specs.Array,
        action_spec: specs.Array,
        rate_limiter: reverb.rate_limiters.RateLimiter | None = None,
        n_step: int = 1,
        frame_stack: int = 0,
    ):
        self._spec = EnvironmentSpec(observation_spec, action_spec, rewards=None, discounts=None)
        self._frame_stack = frame_stack
        self._layout = make_layout(self._spec, ReplayConfig(), n_step, frame_stack)
        table = reverb.Table(
            name=TRANSITIONS,
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=100_000,
            max_times_sampled=1,
            rate_limiter=rate_limiter or reverb.rate_limiters.MinSize(1),
            signature=self._layout.signature,
        )
        self.learner_steps: list[int] = []
        self.client = serve(table)

    @property
    def size(self) -> int:
        return self.client.server_info()[TRANSITIONS].current_size

    def make_adder(
        self,
        config: ReplayConfig,
        n_step: int,
        discount: float,
        client: reverb.Client | None = None,
        **kwargs: Any,
    ) -> PrioritizedNStepAdder:
        """Make an adder of this replay, or of another client's."""
        layout = make_layout(self._spec, config, n_step, self._frame_stack)
        client = client or self.client
        return PrioritizedNStepAdder(client, layout, config, n_step, discount, **kwargs)

    def read(self, num_items: int | None = None) -> list[Item]:
        """Take items out: so many, or all that are there."""
        num_items = self.size if num_items is None else num_items
        if not num_items:
            return []
        items: list[Item] = []
        reader = threading.Thread(target=self._read_into, args=(items, num_items), daemon=True)
        reader.start()
        reader.join(timeout=60)  # The client itself waits for ever for items that do not come.
        assert len(items) == num_items
        return items

    def assert_holds(self, expected: list[tuple]) -> None:
        """Take all items out and compare them with the expected ones."""
        items = self.read()
        assert len(items) == len(expected)
        for i, (item, row) in enumerate(zip(items, expected, strict=True)):
            for field, value, wanted in zip(Item._fields, item, row, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-6, err_msg=f"{field} of item {i}")

    def _read_into(self, items: list[Item], num_items: int) -> None:
        samples = self.client.sample(
            TRANSITIONS, num_items, emit_timesteps=False, unpack_as_table_signature=True
        )
        items.extend(map(self._make_item, samples))

    def _make_item(self, sample: reverb.ReplaySample) -> Item:
        item = {name: column[None] for name, column in sample.data.items()}
        transition = self._layout.unpack(item)
        self.learner_steps.append(int(transition.learner_steps[0]))
        columns = transition._asdict()
        fields = [np.asarray(columns[name])[0] for name in Item._fields[:-1]]
        return Item(*fields, sample.info.priority)


@pytest.fixture
def make_fifo_replay(serve) -> Callable[..., FifoReplay]:
    """Start `FifoReplay`s that end with the test."""
    return functools.partial(FifoReplay, serve)
