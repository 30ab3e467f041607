"""How the benchmark of scale waits, counts and judges."""

import numpy as np
import pytest
import scale
import table_sizes
from table_sizes import Costs
from traffic import Traffic


def make_traffic(inserts: float, actors: float, replay: float) -> Traffic:
    return Traffic(inserts, 0.0, {"actors": actors, "replay": replay})


class Clock:
    """Stands for `time`; passes when somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_waiting_envs_count_what_the_actor_does_as_a_part_of_the_step(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(scale, "time", clock)
    environment = scale.WaitingEnvironments(3)
    assert (environment.reset().step_type == 0).all()
    ends = []
    for actor_seconds in (0.01, 0.0, 0.05, 0.01):  # The third is longer than a step.
        clock.sleep(actor_seconds)
        timestep = environment.step(np.zeros(3, int))
        ends.append(clock.now - 100)
    assert timestep.observation.shape == (3, 8)
    step = 4 / 139
    expected = [step, 2 * step, 2 * step + 0.05, 3 * step + 0.05]
    assert ends == pytest.approx(expected)


def test_env_rows_take_the_costs_from_where_cores_are_free(monkeypatch):
    monkeypatch.setattr(scale, "FULL_CORES", 1.8)
    traffic = {
        45: [make_traffic(1_564, 0.4, 0.1)],
        90: [make_traffic(3_000, 0.9, 0.12)],
        180: [make_traffic(4_000, 1.8, 0.1)],
    }
    rows = {row.what: row.value.median for row in scale.make_env_rows(traffic)}
    assert rows["CPU of the actors per environment and step"] == pytest.approx(300)
    assert rows["CPU of the replay per environment and step"] == pytest.approx(40)
    what = "transitions/s, 90 environments, the most with a free core, of linear"
    assert rows[what] == pytest.approx(3_000 / (90 * 139 / 4))


def test_size_rows_allow_the_growth_of_a_logarithm():
    costs = {10_000: [Costs(10, 2, 1, 0.5)], 1_000_000: [Costs(14, 4, 1.5, 0.5)]}
    rows = [row for row in scale.make_size_rows(costs) if row.aim]
    assert [row.value.median for row in rows] == pytest.approx([1.4, 2.0, 1.5, 1.0])
    assert [row.holds for row in rows] == [True, False, True, True]


@pytest.mark.slow
def test_costs_of_a_real_table():
    costs = table_sizes.measure([2_000], rounds=1)
    assert list(costs) == [2_000]
    (round_costs,) = costs[2_000]
    assert 0 < round_costs.sample_cpu < 1_000
    assert 0 < round_costs.sample < 1_000
    assert 0 < round_costs.update < 1_000
