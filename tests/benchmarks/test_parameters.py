"""What the benchmark of publishing and fetching parameters measures, with a real server."""

import parameters
import pytest


def test_every_reader_reads_every_version(monkeypatch):
    monkeypatch.setattr(parameters, "PAPER_PULL_SECONDS", 0.5)
    readings, megabytes = parameters.measure([3], rounds=1)
    # 3 convolutions, two hidden layers of 512 on 3136 features, and two output layers.
    numbers = 32 * (4 * 64 + 1) + 64 * (32 * 16 + 1) + 64 * (64 * 9 + 1)
    numbers += 2 * 512 * 3137 + 513 + 6 * 513
    assert megabytes == pytest.approx(4 * numbers / 1e6)
    assert list(readings[3]) == [parameters.IN_TURN, parameters.AT_ONCE]
    for (reading,) in readings[3].values():
        assert len(reading.publish) == 1
        assert len(reading.fetch) == 3
        assert all(milliseconds > 0 for milliseconds in reading.publish + reading.fetch)
        assert reading.reader_cpu > 0


def test_shares_of_an_actors_time():
    rounds = [parameters.Reading([30.0], [40.0], reader_cpu=20.0, server_cpu=4.0)]
    rows = {row.what: row for row in parameters.make_share_rows(rounds, 13.0, own_rate=800.0)}
    paper = rows["an actor's time for pulling, paper's rhythm"]
    # 20 ms every 400 of 139 frames per second; every 100 of 100 lock-steps per second.
    assert paper.value.median == pytest.approx(100 * 0.020 * 139 / 400)
    assert paper.holds
    own = rows["an actor's time for pulling, 8 environments on one core"]
    assert own.value.median == pytest.approx(2.0)
    server = rows["server, 360 actors that pull"]
    assert server.value.median == pytest.approx(360 * 139 / 400 * 0.004)
