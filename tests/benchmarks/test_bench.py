"""Tests of what sums the benchmarks up."""

import importlib
import signal
import sys

import bench
import figure
import pytest
from measuring import Report, Row, Spread, at_least, at_most, report, spread

ROWS = [
    Row("agent steps/s", Spread(1500.0, 1400.4, 1600.0), "steps/s"),
    at_least("share", Spread(0.5, 0.4, 0.6), 0.5),
    at_most("bytes", Spread(0.51, 0.4, 0.6), 0.5),
]


@pytest.fixture
def keep_sigterm():
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("part", bench.PARTS)
def test_every_part_is_a_script(part, keep_sigterm, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [part, "--help"])
    with pytest.raises(SystemExit) as ending:
        importlib.import_module(part).main()
    assert not ending.value.code
    assert "--rounds" in capsys.readouterr().out


def test_table_says_what_holds():
    assert bench.to_cells("acting", ROWS) == [
        ("acting", "agent steps/s", "1,500 (1,400 to 1,600) steps/s", "", ""),
        ("acting", "share", "0.5 (0.4 to 0.6)", ">= 0.5", "yes"),
        ("acting", "bytes", "0.51 (0.4 to 0.6)", "<= 0.5", "no"),
    ]


@pytest.mark.parametrize(
    ("num_hosts", "game", "num_cores"), [(1, "pong", 16), (4, "pong, 4 replays", 64)]
)
def test_estimate_for_larger_machines(num_hosts, game, num_cores):
    """A core of an actor adds 1000/s, of the server 10,000/s; samples take 1.94 cores."""
    costs = {
        "CPU per transition added, server": 100.0,
        "CPU per transition sampled, server": 50.0,
        "CPU per transition sampled, learner": 150.0,
        "network per transition sampled": 5_000.0,
    }
    replay_load = [Row(f"{game}: {what}", spread([cost])) for what, cost in costs.items()]
    acting = [
        Row(f"agent steps/s, {num_envs} environments", spread([rate]))
        for num_envs, rate in ((1, 500.0), (32, 1_000.0))
    ]
    reports = [
        Report(part, "today", rows, {})
        for part, rows in (("acting", acting), ("replay_load", replay_load))
    ]
    estimate = bench.estimate_larger_machines(reports, num_hosts)
    added = (num_cores - 1.94) / (0.001 + 0.0001)
    assert f"{num_hosts} x 16 cores" in estimate
    assert "1.5 cores of the learner's reader and 0.5 of the replay" in estimate
    assert f"{added:,.0f} transitions per second" in estimate
    assert f"actors on {added / 1_000:.1f} cores" in estimate
    assert "48 MB/s" in estimate
    assert bench.estimate_larger_machines(reports, 2) is None
    assert bench.estimate_larger_machines(reports[:1], num_hosts) is None
    assert bench.estimate_larger_machines(reports[1:], num_hosts) is None


def test_figure_of_what_was_measured(tmp_path):
    assert figure.draw(str(tmp_path), tmp_path) == []
    shares = {1: Spread(0.2, 0.1, 0.3), 8: Spread(0.5, 0.4, 0.6)}
    report("acting", str(tmp_path), ROWS, {"num_envs": [1, 8], "share": shares})
    report("unknown", str(tmp_path), ROWS)
    assert figure.draw(str(tmp_path), tmp_path) == [tmp_path / "bench_acting.png"]
    rounds = [{"inserts": n, "samples": n, "cores": {"actors": n, "replay": n}} for n in (1, 3)]
    costs = [{"sample": 9.0, "update": 1.0}]
    series = {"num_envs": {45: rounds, 90: rounds}, "sizes": {100: costs, 1000: costs}}
    report("scale", str(tmp_path), ROWS, series)
    report("replay_load", str(tmp_path), ROWS, {"pong": {"4 writers": rounds}})
    report("replay_peers", str(tmp_path), ROWS, {"bytes": {"ours": [1.0], "other": [2.0]}})
    seconds = {"limit": 300.0, "seconds": {"ours": [1.0], "other": [300.0]}}
    report("end_to_end", str(tmp_path), ROWS, seconds)
    report("learner", str(tmp_path), ROWS, {"atari": Spread(0.9, 0.8, 1.0)})
    files = figure.draw(str(tmp_path), tmp_path)
    assert [file.name for file in files] == [f"bench_{part}.png" for part in sorted(figure.PANELS)]
    assert all(file.stat().st_size > 5_000 for file in files)
