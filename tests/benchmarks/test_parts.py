"""Tests of the arithmetic of single parts, with numbers that can be counted by hand."""

import math

import dm_env
import end_to_end
import numpy as np
import parameters
import pytest
import replay_load
import scale
from measuring import Spread
from replay_peers import make_transitions
from table_sizes import Costs
from traffic import Traffic


def test_the_target_counts_from_the_first_evaluation_that_reaches_it():
    rows = [
        {"seconds": seconds, "steps": 100 * seconds, "mean_return": value}
        for seconds, value in ((16.0, 474.9), (40.0, 475.0), (44.0, 120.0), (48.0, 500.0))
    ]
    assert end_to_end.solved_at(rows, "seconds", "steps") == (40.0, 4000.0)
    assert end_to_end.solved_at(rows[:1], "seconds", "steps") == (math.inf, math.inf)


def test_end_to_end_compares_with_the_best_other(monkeypatch):
    monkeypatch.setitem(end_to_end.RIVALS, end_to_end.OURS, ("slow", "fast", "absent"))
    seconds = {
        end_to_end.OURS: [40.0, 60.0, 50.0],
        "slow": [300.0, 300.0, 200.0],
        "fast": [80.0, 100.0, 300.0],
    }
    ratio, *times = end_to_end.make_rows(seconds, limit=300.0)
    # Seed by seed 40 / 80, 60 / 100, 50 / 300.
    assert ratio.what == "time to 475, our Ape-X DQN / fast, the best other, by seed"
    assert ratio.value == pytest.approx((40 / 80, 50 / 300, 60 / 100))
    assert [(row.what, row.value) for row in times] == [
        ("time to 475, our Ape-X DQN (solved 3 of 3)", Spread(50.0, 40.0, 60.0)),
        ("time to 475, slow (solved 1 of 3)", Spread(300.0, 200.0, 300.0)),
        ("time to 475, fast (solved 2 of 3)", Spread(100.0, 80.0, 300.0)),
    ]


def test_end_to_end_compares_agents_with_those_of_their_kind():
    dqn, a2c = "Stable-Baselines3's DQN", "Stable-Baselines3's A2C"
    ours = {end_to_end.OURS: [9.0], "our A2C": [12.0], "our A3C": [6.0]}
    seconds = {**ours, dqn: [18.0], a2c: [4.0]}
    ratios = [(row.what, row.value.median, row.holds) for row in end_to_end.make_rows(seconds, 60)]
    assert ratios[:3] == [
        (f"time to 475, our Ape-X DQN / {dqn}, the best other, by seed", 0.5, True),
        (f"time to 475, our A2C / {a2c}, the best other, by seed", 3.0, None),
        (f"time to 475, our A3C / {a2c}, the best other, by seed", 1.5, None),
    ]


def test_agent_steps_count_where_the_task_was_solved():
    solved = [end_to_end.Solved(9.0, 700.0), end_to_end.Solved(), end_to_end.Solved(5.0, 300.0)]
    rows = end_to_end.make_step_rows({"some": solved, "none": [end_to_end.Solved()]})
    assert [(row.what, row.value) for row in rows] == [
        ("agent steps to 475, some", Spread(500.0, 300.0, 700.0))
    ]


def test_shares_of_an_actors_time():
    # 50 fetches per second take the reader a core, and the server 0.2 cores.
    rounds = [Traffic(0.0, 50.0, {"readers": 1.0, "server": 0.2})]
    rows = {row.what: row for row in parameters.make_share_rows(rounds)}
    share = rows["an actor's time for pulling, paper's rhythm"]
    # 20 ms every 400 of 139 frames per second.
    assert share.value.median == pytest.approx(100 * 0.020 * 139 / 400)
    assert share.holds
    server = rows["server, 360 actors that pull"]
    assert server.value.median == pytest.approx(360 * 139 / 400 * 0.004)


def make_load(inserts: float, samples: float, **cores: float) -> list[Traffic]:
    return [Traffic(inserts, samples, {"server": 0.0, "writers": 0.0, "learner": 0.0, **cores})]


LOADS = {
    replay_load.INSERTING: make_load(5_000, 0, server=0.25, writers=1.5),
    replay_load.SAMPLING: make_load(0, 8_000, server=0.16, learner=1.2),
    replay_load.BOTH: make_load(6_250, 2_910),
    "2,500/s and learner": make_load(2_500, 8_000),
    "5,000/s and learner": make_load(5_000, 4_850),
}


def test_costs_come_from_loads_of_one_kind():
    assert replay_load.costs(LOADS) == {
        "transition added, server": [pytest.approx(50)],
        "transition added, writer": [pytest.approx(300)],
        "transition sampled, server": [pytest.approx(20)],
        "transition sampled, learner": [pytest.approx(150)],
    }
    assert replay_load.cores_for_paper(LOADS) == {
        "server": [pytest.approx(0.0125 * 50 + 0.0097 * 20)],
        "writers": [pytest.approx(0.0125 * 300)],
        "learner": [pytest.approx(0.0097 * 150)],
    }


def test_best_of_both_has_the_largest_share_of_both_rates():
    # 0.4 of its inserts and 0.5 of its samples; the others have 0.3 and 0.2 of one of them.
    assert replay_load.best_of_both(LOADS) == "5,000/s and learner"


# Gamma is 0.99.
TIMESTEPS = [
    dm_env.restart(np.float32(0)),
    dm_env.transition(1.0, np.float32(1)),
    dm_env.transition(2.0, np.float32(2)),
    dm_env.transition(4.0, np.float32(3)),
    dm_env.termination(8.0, np.float32(4)),
    dm_env.restart(np.float32(5)),
    dm_env.transition(16.0, np.float32(6)),
    dm_env.transition(32.0, np.float32(7)),
]


def test_transitions_of_three_steps():
    expected = [
        (0, 3, 1 + 0.99 * 2 + 0.99**2 * 4, 0.99**3),
        (1, 4, 2 + 0.99 * 4 + 0.99**2 * 8, 0.0),
        (2, 4, 4 + 0.99 * 8, 0.0),
        (3, 4, 8, 0.0),
    ]
    transitions = list(make_transitions(TIMESTEPS, 3))
    assert np.array(transitions) == pytest.approx(np.array(expected))


def test_costs_of_an_environment_come_from_where_cores_are_free():
    traffic = {
        45: [Traffic(1_564, 0.0, {"actors": 0.4, "replay": 0.1})],
        90: [Traffic(3_000, 0.0, {"actors": 0.9, "replay": 0.12})],
        180: [Traffic(4_000, 0.0, {"actors": 1.8, "replay": 0.1})],
    }
    rows = scale.make_env_rows(traffic, full_cores=1.8)
    values = {row.what: row.value.median for row in rows}
    assert values["CPU of the actors per environment and step"] == pytest.approx(300)
    assert values["CPU of the replay per environment and step"] == pytest.approx(40)
    what = "transitions/s, 90 environments, the most with a free core, of linear"
    assert values[what] == pytest.approx(3_000 / (90 * 139 / 4))


def test_costs_may_grow_as_a_logarithm():
    costs = {10_000: [Costs(10, 2, 1, 0.5)], 1_000_000: [Costs(14, 4, 1.5, 0.5)]}
    rows = [row for row in scale.make_size_rows(costs) if row.aim]
    assert math.log(1_000_000) / math.log(10_000) == pytest.approx(1.5)
    assert [row.value.median for row in rows] == pytest.approx([1.4, 2.0, 1.5, 1.0])
    assert [row.holds for row in rows] == [True, False, True, True]
