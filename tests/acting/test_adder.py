"""Tests of the adder against a real Reverb server: every item and every priority.

Unless a case says otherwise gamma is 0.9, rewards are powers of two, and the step with observation
k takes action k, with q = 10 * (k + 1) for it and a value of 1 more than that.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import hypothesis
import numpy as np
import pytest
import reverb
from dm_env import specs
from hypothesis import strategies as st
from waiting import TIMEOUT_SECONDS, wait_for

from apex_agents.acting.adder import PrioritizedNStepAdder
from apex_agents.acting.policy import PolicyOutput
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.priorities import make_priority_fn
from apex_agents.waits import NodeMemory, write_waits

FIRST, MID, LAST = dm_env.StepType.FIRST, dm_env.StepType.MID, dm_env.StepType.LAST
GAMMA = 0.9
NAN = np.nan
SCALAR = specs.Array((), np.int64)
DISCRETE = specs.DiscreteArray(100)


class Step(NamedTuple):
    """One time step with what the policy returned for it."""

    step_type: dm_env.StepType
    reward: float | None
    discount: float | None
    observation: Any
    action: Any = 0
    q_taken: float = 0.0
    value: float = 0.0


def add_all(adder: PrioritizedNStepAdder, steps: list[Step]) -> None:
    for step in steps:
        output = PolicyOutput(np.asarray(step.action), np.asarray(step.q_taken), step.value)
        adder.add(dm_env.TimeStep(*step[:3], np.asarray(step.observation)), output)


# Four steps of one episode; each case appends its own end.
START = [
    Step(FIRST, None, None, 0, 0, 10, 11),
    Step(MID, 1, 1, 1, 1, 20, 21),
    Step(MID, 2, 1, 2, 2, 30, 31),
    Step(MID, 4, 1, 3, 3, 40, 41),
]
TERMINATION = Step(LAST, 8, 0, 4, 4, NAN, NAN)
TRUNCATION = Step(LAST, 8, 1, 4, 4, NAN, 51)


class Case(NamedTuple):
    """`expected` rows: observation, action, R, D, next observation, priority."""

    n_step: int
    steps: list[Step]
    expected: list[tuple]


CASES = {
    "n=1, termination": Case(
        1,
        [*START, TERMINATION],
        [
            (0, 0, 1, 0.9, 1, 1 + 0.9 * 21 - 10),
            (1, 1, 2, 0.9, 2, 2 + 0.9 * 31 - 20),
            (2, 2, 4, 0.9, 3, 4 + 0.9 * 41 - 30),
            (3, 3, 8, 0, 4, 40 - 8),
        ],
    ),
    "n=1, truncation": Case(
        1,
        [*START, TRUNCATION],
        [
            (0, 0, 1, 0.9, 1, 1 + 0.9 * 21 - 10),
            (1, 1, 2, 0.9, 2, 2 + 0.9 * 31 - 20),
            (2, 2, 4, 0.9, 3, 4 + 0.9 * 41 - 30),
            (3, 3, 8, 0.9, 4, 8 + 0.9 * 51 - 40),
        ],
    ),
    "n=3, termination": Case(
        3,
        [*START, TERMINATION],
        [
            (0, 0, 1 + 0.9 * 2 + 0.81 * 4, 0.729, 3, 1 + 0.9 * 2 + 0.81 * 4 + 0.729 * 41 - 10),
            (1, 1, 2 + 0.9 * 4 + 0.81 * 8, 0, 4, 20 - (2 + 0.9 * 4 + 0.81 * 8)),
            (2, 2, 4 + 0.9 * 8, 0, 4, 30 - (4 + 0.9 * 8)),
            (3, 3, 8, 0, 4, 40 - 8),
        ],
    ),
    "n=3, truncation": Case(
        3,
        [*START, TRUNCATION],
        [
            (0, 0, 1 + 0.9 * 2 + 0.81 * 4, 0.729, 3, 1 + 0.9 * 2 + 0.81 * 4 + 0.729 * 41 - 10),
            (1, 1, 2 + 0.9 * 4 + 0.81 * 8, 0.729, 4, 2 + 0.9 * 4 + 0.81 * 8 + 0.729 * 51 - 20),
            (2, 2, 4 + 0.9 * 8, 0.81, 4, 4 + 0.9 * 8 + 0.81 * 51 - 30),
            (3, 3, 8, 0.9, 4, 8 + 0.9 * 51 - 40),
        ],
    ),
    "episode shorter than n, termination": Case(
        5,
        [*START[:2], Step(LAST, 2, 0, 2, 2, NAN, NAN)],
        [
            (0, 0, 1 + 0.9 * 2, 0, 2, 10 - (1 + 0.9 * 2)),
            (1, 1, 2, 0, 2, 20 - 2),
        ],
    ),
    "episode of one step": Case(
        3,
        [START[0], Step(LAST, 2, 1, 1, 1, NAN, 31)],
        [(0, 0, 2, 0.9, 1, 2 + 0.9 * 31 - 10)],
    ),
    "discounts of the environment": Case(
        3,
        [
            Step(FIRST, None, None, 0, 0, 10, 11),
            Step(MID, 1, 0.5, 1, 1, 20, 21),
            Step(MID, 2, 0.25, 2, 2, 30, 31),
            Step(MID, 4, 0.8, 3, 3, 40, 41),
            Step(LAST, 8, 0.6, 4, 4, NAN, 51),
        ],
        [
            (
                *(0, 0, 1 + 0.45 * 2 + 0.45 * 0.225 * 4, 0.45 * 0.225 * 0.72, 3),
                10 - (1 + 0.45 * 2 + 0.45 * 0.225 * 4 + 0.45 * 0.225 * 0.72 * 41),
            ),
            (
                *(1, 1, 2 + 0.225 * 4 + 0.225 * 0.72 * 8, 0.225 * 0.72 * 0.54, 4),
                20 - (2 + 0.225 * 4 + 0.225 * 0.72 * 8 + 0.225 * 0.72 * 0.54 * 51),
            ),
            (2, 2, 4 + 0.72 * 8, 0.72 * 0.54, 4, 30 - (4 + 0.72 * 8 + 0.72 * 0.54 * 51)),
            (3, 3, 8, 0.54, 4, 40 - (8 + 0.54 * 51)),
        ],
    ),
    "two episodes": Case(
        2,
        [
            *START[:2],
            Step(LAST, 2, 0, 2, 2, NAN, NAN),
            Step(FIRST, None, None, 5, 5, 60, 61),
            Step(MID, 16, 1, 6, 6, 70, 71),
            Step(MID, 32, 1, 7, 7, 80, 81),
            Step(LAST, 64, 1, 8, 8, NAN, 91),
        ],
        [
            (0, 0, 1 + 0.9 * 2, 0, 2, 10 - (1 + 0.9 * 2)),
            (1, 1, 2, 0, 2, 20 - 2),
            (5, 5, 16 + 0.9 * 32, 0.81, 7, 16 + 0.9 * 32 + 0.81 * 81 - 60),
            (6, 6, 32 + 0.9 * 64, 0.81, 8, 32 + 0.9 * 64 + 0.81 * 91 - 70),
            (7, 7, 64, 0.9, 8, 64 + 0.9 * 91 - 80),
        ],
    ),
    "abandoned episode": Case(
        2,
        [
            *START[:3],
            Step(FIRST, None, None, 5, 5, 60, 61),
            Step(MID, 16, 1, 6, 6, 70, 71),
            Step(MID, 32, 1, 7, 7, 80, 81),
        ],
        [
            (0, 0, 1 + 0.9 * 2, 0.81, 2, 1 + 0.9 * 2 + 0.81 * 31 - 10),
            (5, 5, 16 + 0.9 * 32, 0.81, 7, 16 + 0.9 * 32 + 0.81 * 81 - 60),
        ],
    ),
    "reward and discount of FIRST": Case(
        1,
        [Step(FIRST, 1000, 0, 0, 0, 10, 11), Step(MID, 1, 1, 1, 1, 20, 21)],
        [(0, 0, 1, 0.9, 1, 1 + 0.9 * 21 - 10)],
    ),
    "priorities at both bounds": Case(
        1,
        [
            Step(FIRST, None, None, 0, 0, 19, 0),
            Step(MID, 1, 1, 1, 1, 0, 20),  # 1 + 0.9 * 20 - 19 = 0
            Step(MID, -1e9, 1, 2, 2, 0, 0),
            Step(LAST, 1e9, 0, 3, 3, 0, 0),
        ],
        [
            (0, 0, 1, 0.9, 1, 1e-6),
            (1, 1, -1e9, 0.9, 2, 1e6),
            (2, 2, 1e9, 0, 3, 1e6),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_items_and_priorities(name, make_fifo_replay):
    case = CASES[name]
    replay = make_fifo_replay(SCALAR, DISCRETE)
    adder = replay.make_adder(ReplayConfig(), case.n_step, GAMMA)
    add_all(adder, case.steps)
    adder.close()
    replay.assert_holds(case.expected)
    assert adder.num_steps == len(case.expected)
    assert adder.num_not_finite == 0


def test_replicas(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    adder = replay.make_adder(ReplayConfig(replicas=2), 3, GAMMA)
    add_all(adder, [*START[:2], Step(LAST, 2, 0, 2)])
    adder.close()
    first = (0, 0, 1 + 0.9 * 2, 0, 2, 10 - (1 + 0.9 * 2))
    second = (1, 1, 2, 0, 2, 20 - 2)
    replay.assert_holds([first, first, second, second])
    assert adder.num_steps == 2


def test_new_transitions_may_get_the_largest_priority_so_far(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    config = ReplayConfig(initial_priority="max")
    priority_fn = make_priority_fn(config)
    adder = replay.make_adder(config, 1, GAMMA, priority_fn=priority_fn)
    steps = [
        Step(FIRST, None, None, 0, 0, 10, 0),
        Step(MID, 3, 1, 1, 1, 20, 0),
        Step(MID, 4, 1, 2, 2, 12, 0),
        Step(MID, 5, 1, 3, 3, 1, 0),
        Step(MID, 31, 1, 4, 4, 50, 0),
    ]
    add_all(adder, steps)
    adder.close()
    # Absolute TD errors are 7, 16, 7 and 30.
    replay.assert_holds(
        [(0, 0, 3, 0.9, 1, 7), (1, 1, 4, 0.9, 2, 16), (2, 2, 5, 0.9, 3, 16), (3, 3, 31, 0.9, 4, 30)]
    )


def test_priorities_of_a_function_of_the_users_fit_into_the_table(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    chosen = {1.0: 0.0, 2.0: -3.0, 3.0: np.inf, 4.0: NAN, 5.0: 7.0}
    priority_fn = chosen.__getitem__
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA, priority_fn=priority_fn)
    steps = [Step(MID, td_error, 1, index, 0) for index, td_error in enumerate(chosen, 1)]
    add_all(adder, [Step(FIRST, None, None, 0, 0), *steps])
    adder.close()
    assert (adder.num_steps, adder.num_not_finite) == (4, 1)
    replay.assert_holds(
        [
            *((0, 0, 1, 0.9, 1, 1e-6), (1, 0, 2, 0.9, 2, 3.0), (2, 0, 3, 0.9, 3, 1e6)),
            (4, 0, 5, 0.9, 5, 7.0),
        ]
    )


@pytest.mark.parametrize("bad", [NAN, np.inf, -np.inf])
def test_transitions_that_are_not_finite_are_left_out(bad, make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA)
    add_all(
        adder,
        [
            Step(FIRST, None, None, 0, 0, 10, 11),
            Step(MID, bad, 1, 1, 1, 20, 21),  # Spoils 0 -> 1.
            Step(MID, 2, 1, 2, 2, 30, bad),  # Spoils 1 -> 2.
            Step(MID, 4, 1, 3, 3, bad, 41),  # Spoils 3 -> 4.
            Step(MID, 8, 1, 4, 4, 50, 51),
            Step(LAST, 16, 0, 5, 5, NAN, NAN),
        ],
    )
    adder.close()
    replay.assert_holds([(2, 2, 4, 0.9, 3, 4 + 0.9 * 41 - 30), (4, 4, 16, 0, 5, 50 - 16)])
    assert adder.num_steps == 2
    assert adder.num_not_finite == 3


@pytest.mark.fault(
    breaks="observations, rewards, values or actions that are not finite",
    holds="no transition with them reaches the replay; they are counted",
)
def test_observations_and_returns_that_are_not_finite_are_left_out(make_fifo_replay):
    replay = make_fifo_replay(specs.Array((), np.float32), DISCRETE)
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA)
    add_all(
        adder,
        [
            Step(FIRST, None, None, 0, 0, 10, 11),
            Step(MID, 1, 1, np.inf, 1, 20, 21),  # Spoils 0 -> 1 and 1 -> 2, though q is finite.
            Step(MID, 2, 1, 2, 2, 30, 31),
            Step(MID, 1e39, 1, 3, 3, 40, 41),  # Is infinite as a float32: spoils 2 -> 3.
            Step(MID, 8, 1, 4, 4, 50, 51),
        ],
    )
    adder.close()
    replay.assert_holds([(3, 3, 8, 0.9, 4, 8 + 0.9 * 51 - 40)])
    assert (adder.num_steps, adder.num_not_finite) == (1, 3)


def test_reward_that_is_not_finite_spoils_every_transition_that_holds_it(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    adder = replay.make_adder(ReplayConfig(), 2, GAMMA)
    add_all(adder, [*START[:2], Step(MID, NAN, 1, 2, 2, 30, 31), START[3], TERMINATION])
    adder.close()
    replay.assert_holds([(2, 2, 4 + 0.9 * 8, 0, 4, 30 - (4 + 0.9 * 8)), (3, 3, 8, 0, 4, 40 - 8)])
    assert adder.num_not_finite == 2


# Frames `[2, 3]`; an observation is a stack of three. Frame k shows k in every corner differently.
STACK = specs.Array((3, 2, 3), np.uint8)


def frame(number: int) -> np.ndarray:
    return np.array([[number, number + 50, 255 - number], [1, 2 * number, 100 - number]], np.uint8)


def frames(*numbers: int) -> np.ndarray:
    return np.stack([frame(number) for number in numbers])


def stacked(steps: list[Step], *history: int) -> list[Step]:
    """Let frame `k` of an episode, counted from `history`, be the newest of its k-th step."""
    numbers = [*history, *(history[-1] + 1 + i for i in range(len(steps) - 1))]
    return [step._replace(observation=frames(*numbers[i : i + 3])) for i, step in enumerate(steps)]


STACKED_CASES = {
    "n=1": Case(
        1,
        stacked([*START, TERMINATION], 7, 8, 9),
        [
            (frames(7, 8, 9), 0, 1, 0.9, frames(8, 9, 10), 1 + 0.9 * 21 - 10),
            (frames(8, 9, 10), 1, 2, 0.9, frames(9, 10, 11), 2 + 0.9 * 31 - 20),
            (frames(9, 10, 11), 2, 4, 0.9, frames(10, 11, 12), 4 + 0.9 * 41 - 30),
            (frames(10, 11, 12), 3, 8, 0, frames(11, 12, 13), 40 - 8),
        ],
    ),
    "FIRST repeats its frame, as resets do": Case(
        1,
        stacked([*START[:2], Step(LAST, 2, 1, 2, 2, NAN, 31)], 9, 9, 9),
        [
            (frames(9, 9, 9), 0, 1, 0.9, frames(9, 9, 10), 1 + 0.9 * 21 - 10),
            (frames(9, 9, 10), 1, 2, 0.9, frames(9, 10, 11), 2 + 0.9 * 31 - 20),
        ],
    ),
    "episode shorter than the stack and than n, then another": Case(
        5,
        stacked([START[0], Step(LAST, 1, 1, 1, 1, NAN, 21)], 7, 8, 9)
        + stacked([*START[:2], Step(LAST, 2, 0, 2, 2, NAN, NAN)], 30, 31, 32),
        [
            (frames(7, 8, 9), 0, 1, 0.9, frames(8, 9, 10), 1 + 0.9 * 21 - 10),
            (frames(30, 31, 32), 0, 1 + 0.9 * 2, 0, frames(32, 33, 34), 10 - (1 + 0.9 * 2)),
            (frames(31, 32, 33), 1, 2, 0, frames(32, 33, 34), 20 - 2),
        ],
    ),
}


@pytest.mark.parametrize("name", STACKED_CASES)
def test_stacked_frames(name, make_fifo_replay):
    case = STACKED_CASES[name]
    replay = make_fifo_replay(STACK, DISCRETE, n_step=case.n_step, frame_stack=3)
    adder = replay.make_adder(ReplayConfig(), case.n_step, GAMMA)
    add_all(adder, case.steps)
    adder.close()
    replay.assert_holds(case.expected)


def test_n_may_change_within_an_episode(make_fifo_replay):
    replay = make_fifo_replay(STACK, DISCRETE, n_step=3, frame_stack=3)
    adder = replay.make_adder(ReplayConfig(), 3, GAMMA)
    steps = stacked([*START, TERMINATION], 7, 8, 9)
    add_all(adder, steps[:2])
    adder.n_step = 1  # Two transitions have as many steps and more now, and end with the next one.
    add_all(adder, steps[2:3])
    adder.n_step = 2
    add_all(adder, steps[3:])
    adder.close()
    replay.assert_holds(
        [
            (frames(7, 8, 9), 0, 1 + 0.9 * 2, 0.81, frames(9, 10, 11), 1.8 + 1 + 0.81 * 31 - 10),
            (frames(8, 9, 10), 1, 2, 0.9, frames(9, 10, 11), 2 + 0.9 * 31 - 20),
            (frames(9, 10, 11), 2, 4 + 0.9 * 8, 0, frames(11, 12, 13), 30 - (4 + 0.9 * 8)),
            (frames(10, 11, 12), 3, 8, 0, frames(11, 12, 13), 40 - 8),
        ]
    )


def test_nothing_is_sent_before_the_first_observation(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    adder = replay.make_adder(ReplayConfig(), 3, GAMMA)
    adder.flush()
    adder.close()
    assert (replay.size, adder.num_steps) == (0, 0)


def test_frames_that_are_not_finite_are_left_out(make_fifo_replay):
    replay = make_fifo_replay(specs.Array((2, 1), np.float32), DISCRETE, n_step=1, frame_stack=2)
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA)
    newest = [0.0, 1.0, 2.0, NAN, 4.0, 5.0, 6.0]
    stacks = [np.array([[a], [b]], np.float32) for a, b in itertools.pairwise(newest)]
    # q and values are finite, as those of a network whose activation is 0 for NaN.
    steps = [Step(MID, 1, 1, stack, k, 0, 10) for k, stack in enumerate(stacks)]
    add_all(adder, [steps[0]._replace(step_type=FIRST), *steps[1:]])
    adder.close()
    replay.assert_holds(
        [([[0], [1]], 0, 1, 0.9, [[1], [2]], 10), ([[4], [5]], 4, 1, 0.9, [[5], [6]], 10)]
    )
    assert (adder.num_steps, adder.num_not_finite) == (2, 3)


def shifted(stack: np.ndarray) -> np.ndarray:
    """Return the stack after one more step."""
    return np.concatenate([stack[1:], stack[-1:] + 1])


@pytest.mark.parametrize("num_good_steps", [0, 1, 40])
def test_images_that_are_no_stacks_are_refused(num_good_steps, make_fifo_replay):
    replay = make_fifo_replay(STACK, DISCRETE, n_step=1, frame_stack=3)
    adder = replay.make_adder(ReplayConfig(), 1, GAMMA)
    observation = frames(7, 8, 9)
    add_all(adder, [Step(FIRST, None, None, observation)])
    for _ in range(num_good_steps):
        observation = shifted(observation)
        add_all(adder, [Step(MID, 0, 1, observation)])
    with pytest.raises(ValueError, match=r"agent\.frame_stack is 3.*\(3, 2, 3\)"):
        # Red, green and blue of an image that moves, for example.
        add_all(adder, [Step(MID, 0, 1, observation + 2 * k) for k in range(1, 20)])


class Stream(NamedTuple):
    """What one environment gives, and how it is stored."""

    observations: specs.Array
    actions: specs.Array
    frame_stack: int
    n_step: int
    config: ReplayConfig
    episodes: list[list[Step]]


VECTOR_DTYPES = [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.float32, np.float64]
ACTION_SPECS = [
    specs.DiscreteArray(100, np.int32),
    specs.DiscreteArray(100, np.int64),
    specs.BoundedArray((3,), np.float32, -1, 1),
]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw episodes of vectors, images or stacks of frames, with random ends and discounts."""
    frame_stack = draw(st.sampled_from([0, 0, 1, 3]))
    is_image = bool(frame_stack) or draw(st.booleans())
    shape = draw(st.sampled_from([(2, 3), (1, 1, 1), (2, 3, 3)] if is_image else [(), (1,), (5,)]))
    dtype = np.uint8 if is_image else draw(st.sampled_from(VECTOR_DTYPES))
    actions = draw(st.sampled_from(ACTION_SPECS))
    ends = st.sampled_from(["termination", "truncation", "abandoned"])
    lengths = draw(st.lists(st.tuples(st.integers(1, 12), ends), min_size=1, max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    limit = 2 if dtype is np.bool_ else 100

    def make_episode(num_steps: int, end: str) -> list[Step]:
        contents = random.integers(limit, size=(num_steps + max(frame_stack, 1), *shape))
        episode = []
        for t in range(num_steps + 1):
            is_last = t == num_steps and end != "abandoned"
            step_type = FIRST if t == 0 else LAST if is_last else MID
            discount = float(end == "truncation") if is_last else random.choice([0.0, 0.5, 1.0])
            observation = contents[t : t + frame_stack] if frame_stack else contents[t]
            action = random.uniform(-1, 1, 3) if actions.shape else random.integers(100)
            numbers = random.normal(size=3)
            episode.append(Step(step_type, numbers[0], discount, observation, action, *numbers[1:]))
        return [s._replace(observation=np.asarray(s.observation, dtype)) for s in episode]

    return Stream(
        specs.Array((frame_stack, *shape) if frame_stack else shape, dtype),
        actions,
        frame_stack,
        n_step=draw(st.integers(1, 8)),
        # Removal by priority gives every transition a chunk of its own.
        config=ReplayConfig(eviction_policy=draw(st.sampled_from(["fifo", "prioritized"]))),
        episodes=[make_episode(*episode) for episode in lengths],
    )


def naive_items(episode: list[Step], n_step: int) -> list[tuple]:
    """Write the definition out, from the whole episode at once."""
    items = []
    length = len(episode) - 1
    for t in range(length):
        end = min(t + n_step, length)
        if end < t + n_step and episode[-1].step_type != LAST:
            break
        n_step_return, n_step_discount = 0.0, 1.0
        for step in episode[t + 1 : end + 1]:
            n_step_return += n_step_discount * step.reward
            n_step_discount *= GAMMA * step.discount
        target = n_step_return + n_step_discount * episode[end].value
        items.append(
            (
                *(episode[t].observation, episode[t].action, n_step_return, n_step_discount),
                *(episode[end].observation, max(abs(target - episode[t].q_taken), 1e-6)),
            )
        )
    return items


@hypothesis.given(stream=streams())
@hypothesis.settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],  # Makes new replays.
)
def test_random_streams_give_the_items_of_a_naive_loop(make_fifo_replay, stream):
    n_step, frame_stack = stream.n_step, stream.frame_stack
    replay = make_fifo_replay(
        stream.observations, stream.actions, n_step=n_step, frame_stack=frame_stack
    )
    adder = replay.make_adder(stream.config, n_step, GAMMA)
    for episode in stream.episodes:
        add_all(adder, episode)
    adder.close()
    replay.assert_holds([item for e in stream.episodes for item in naive_items(e, n_step)])


class FlushRecorder:
    """A client whose writers note, at each flush, the items so far and `max_pending`."""

    def __init__(self, client: reverb.Client, num_items: Callable[[], int]):
        self._client = client
        self._num_items = num_items
        self.flushes: list[tuple[int, int]] = []

    def trajectory_writer(self, **kwargs: Any) -> reverb.TrajectoryWriter:
        writer = self._client.trajectory_writer(**kwargs)
        flush = writer.flush

        def record_and_flush(max_pending: int, timeout_ms: int | None) -> None:
            self.flushes.append((self._num_items(), max_pending))
            flush(max_pending, timeout_ms)

        writer.flush = record_and_flush
        return writer


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ReplayConfig(insert_batch=4, max_in_flight=10), [(4, 6), (8, 6), (12, 6)]),
        (ReplayConfig(insert_batch=4, max_in_flight=4, replicas=2), [(4, 0), (8, 0), (12, 0)]),
        (ReplayConfig(), []),
    ],
    ids=["batches of 4", "replicas fill batches too", "less than one batch"],
)
def test_items_are_sent_in_batches(config, expected, make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    client = FlushRecorder(replay.client, lambda: adder.num_steps * config.replicas)
    adder = replay.make_adder(config, 1, GAMMA, client)
    num_transitions = 13 // config.replicas
    add_all(adder, [START[0], *[Step(MID, 0, 1, 0, value=1)] * num_transitions])
    assert client.flushes == expected
    adder.close()
    assert replay.size == num_transitions * config.replicas


class Background:
    """Adds steps in a thread until `stop` is called, and counts the attempts to send."""

    def __init__(self, replay: Any, config: ReplayConfig, steps: list[Step]):
        self.memory = NodeMemory()  # The memory of the thread.
        self._attempts = threading.Semaphore(0)
        self._stop = threading.Event()
        self.adder = replay.make_adder(config, 1, GAMMA, should_stop=self._is_stopped)
        self._thread = threading.Thread(target=self._add, args=(steps,), daemon=True)
        self._thread.start()

    def _add(self, steps: list[Step]) -> None:
        write_waits(self.memory)
        add_all(self.adder, steps)

    def _is_stopped(self) -> bool:
        self._attempts.release()  # The adder asks before each attempt.
        return self._stop.is_set()

    def wait_until_blocked(self, at_least: int = 0) -> int:
        """Wait until attempts fail one after the other, and return the transitions so far.

        Args:
          at_least: transitions that the replay accepts in any case.
        """
        wait_for(lambda: self.adder.num_steps >= at_least)
        while self._attempts.acquire(blocking=False):
            """Those before do not count."""
        num_transitions, num_attempts = -1, 0
        while num_attempts < 3:
            assert self._attempts.acquire(timeout=TIMEOUT_SECONDS)
            is_same = self.adder.num_steps == num_transitions
            num_attempts = num_attempts + 1 if is_same else 0
            num_transitions = self.adder.num_steps
        return num_transitions

    def stop(self) -> None:
        self._stop.set()
        self.join()

    def join(self) -> None:
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()


NUMBERED = [Step(FIRST, None, None, 0), *[Step(MID, 0, 1, k, value=k) for k in range(1, 41)]]


def test_holds_at_most_max_in_flight_while_the_replay_accepts_nothing(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE, reverb.rate_limiters.Queue(4))
    config = ReplayConfig(insert_batch=4, max_in_flight=8)
    background = Background(replay, config, NUMBERED)
    # 4 are in the table; the batch that makes it 8 unconfirmed ones is the last.
    assert background.wait_until_blocked(at_least=4 + 8) == 4 + 8
    assert replay.size == 4
    # Every transition taken out lets one in; four of them are room for the next batch.
    assert [int(item.next_observation) for item in replay.read(4)] == [1, 2, 3, 4]
    assert background.wait_until_blocked(at_least=8 + 8) == 8 + 8
    assert replay.size == 4
    background.stop()
    background.adder.close()  # Ends, although the replay accepts nothing.


@pytest.mark.parametrize("samples_per_insert", [2.0, None])
def test_what_it_waits_for_while_the_replay_accepts_nothing(samples_per_insert, make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE, reverb.rate_limiters.Queue(4))
    config = ReplayConfig(insert_batch=4, max_in_flight=8, samples_per_insert=samples_per_insert)
    background = Background(replay, config, NUMBERED)
    background.wait_until_blocked()
    what = background.memory.wait().what
    assert what.startswith("the replay to accept items")
    assert ("agent.replay.samples_per_insert" in what) is (samples_per_insert is not None)
    background.stop()
    assert background.memory.wait() is None


def test_transitions_tell_with_which_parameters_their_action_was_chosen(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE)
    learner_steps = itertools.count(100)
    adder = replay.make_adder(
        ReplayConfig(), 2, GAMMA, learner_steps_fn=lambda: next(learner_steps)
    )
    add_all(adder, [*START, TERMINATION])
    adder.close()
    assert [int(item.observation) for item in replay.read()] == [0, 1, 2, 3]
    assert replay.learner_steps == [100, 101, 102, 103]


def test_blocked_adder_loses_and_repeats_nothing(make_fifo_replay):
    replay = make_fifo_replay(SCALAR, DISCRETE, reverb.rate_limiters.Queue(4))
    config = ReplayConfig(insert_batch=4, max_in_flight=8)
    steps = [*NUMBERED, Step(LAST, 0, 0, 41)]
    background = Background(replay, config, steps + steps)
    items = []
    for num_items in (30, 10, 1, 41):
        background.wait_until_blocked()  # The adder has to try again.
        items += replay.read(num_items)
    background.join()
    background.adder.close()
    assert [int(item.observation) for item in items] == [*range(41), *range(41)]
    assert [int(item.next_observation) for item in items] == [*range(1, 42), *range(1, 42)]
    assert replay.size == 0
