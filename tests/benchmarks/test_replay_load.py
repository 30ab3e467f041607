"""How the benchmark of the paper's load counts, with a real server and real frames of Pong."""

import pytest
import replay_load
from serving import replay_server
from traffic import UNLIMITED, Traffic, make_learning, workers

from apex_agents import ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.replay.config import ReplayConfig


def make_traffic(inserts: float, samples: float, **cores: float) -> Traffic:
    return Traffic(inserts, samples, {"server": 0.0, "writers": 0.0, "learner": 0.0, **cores})


LOADS = {
    replay_load.INSERTING: [make_traffic(5_000, 0, server=0.25, writers=1.5)],
    replay_load.SAMPLING: [make_traffic(0, 8_000, server=0.16, learner=1.2)],
    replay_load.BOTH: [make_traffic(6_250, 2_910)],
    "2,500/s and learner": [make_traffic(2_500, 8_000)],
    "5,000/s and learner": [make_traffic(5_000, 4_850)],
}


def test_costs_come_from_loads_of_one_kind():
    assert replay_load.costs(LOADS) == {
        "transition added, server": [pytest.approx(50)],
        "transition added, writer": [pytest.approx(300)],
        "transition sampled, server": [pytest.approx(20)],
        "transition sampled, learner": [pytest.approx(150)],
    }


def test_cores_for_the_papers_load():
    assert replay_load.cores_for_paper(LOADS) == {
        "server": [pytest.approx(0.0125 * 50 + 0.0097 * 20)],
        "writers": [pytest.approx(0.0125 * 300)],
        "learner": [pytest.approx(0.0097 * 150)],
    }


def test_best_of_both_has_the_largest_share_of_both_rates():
    # 0.4 of its inserts and 0.5 of its samples; the others have 0.3 and 0.2 of one of them.
    assert replay_load.best_of_both(LOADS) == "5,000/s and learner"


def test_throttled_load():
    builder = ApexDQNBuilder(ApexDQNConfig(replay=ReplayConfig(max_size=5_000, min_size=300)))
    spec = make_vector_environment(EnvironmentConfig(), 1, seed=0).spec
    with replay_server(builder.make_replay_tables, spec) as server:
        writing = (replay_load.make_inserting, builder, "pong", 0, server.address)
        learning = (make_learning, builder, spec, server.address)
        with workers(writing, learning) as (writer, learner):
            pids = {"server": [server.pid], "writers": [writer.pid], "learner": [learner.pid]}
            site = replay_load.Site(server.address, pids, [writer], learner)
            site.fill(300)
            throttled = site.load(1, 200.0, UNLIMITED)
    assert 100 < throttled.inserts < 230
    assert throttled.samples > 0
    assert all(cores > 0 for cores in throttled.cores.values())
