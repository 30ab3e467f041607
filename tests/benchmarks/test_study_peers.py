"""Tests of what trains other libraries' agents beside a study."""

import json
import os
import sys
import threading

import peer_processes
import pytest
import study_peers
from our_runs import ROOT

from apex_agents.studies.results import Point, from_csv

STUDY = ROOT / "benchmarks" / "atari_half_hour.py"
# Prints what it was asked to train and where, as a run does that was evaluated twice.
PEER = """
import json, os, sys
print("Not a row.")
for steps in (10, 20):
    row = {"agent_steps": steps, "learner_steps": 2, "seconds": 1.5, "mean_return": 3.0}
    print(json.dumps(row | {"arguments": sys.argv[1:], "cores": sorted(os.sched_getaffinity(0))}))
"""


@pytest.fixture(name="rows")
def fixture_rows(monkeypatch) -> list[dict]:
    """Rows of the peers that are trained in the test, which are short programs."""
    rows = []

    def run_peer(command: list[str]) -> list[dict]:
        found = original(command)
        rows.extend(found)
        return found

    original = study_peers.run_peer
    command = [sys.executable, "-c", PEER]
    monkeypatch.setattr(study_peers, "run_peer", run_peer)
    monkeypatch.setattr(study_peers, "peer_command", lambda *arguments: [*command, *arguments])
    return rows


def train(monkeypatch, path, *flags):
    arguments = ["--study", str(STUDY), "--out", str(path), *flags]
    monkeypatch.setattr(sys, "argv", ["study_peers.py", *arguments])
    study_peers.main()


def test_an_error_loses_no_run_beside_it(monkeypatch, tmp_path):
    both_run, has_died = threading.Barrier(2), threading.Event()

    def train_one(study, peer, task, label, seed, cores):
        both_run.wait(60.0)
        if label == "Stable-Baselines3's DQN":
            has_died.set()
            raise ValueError("it died")
        assert has_died.wait(60.0)
        yield Point(task, label, seed, 10, 2, 1.5, 3.0)

    monkeypatch.setattr(study_peers, "train", train_one)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    with pytest.raises(SystemExit, match="it died"):
        train(monkeypatch, tmp_path / "peers.csv", "--parallel=2")
    (point,) = from_csv((tmp_path / "peers.csv").read_text())
    assert point.setting == "Stable-Baselines3's A2C"


def test_each_algorithm_has_the_time_of_the_study_on_each_task(monkeypatch, rows, tmp_path):
    path = tmp_path / "new" / "peers.csv"
    train(monkeypatch, path, "--seeds=2")
    asked = {tuple(row["arguments"]) for row in rows}
    algorithms = [("atari.py", name) for name in ("dqn", "qr_dqn", "a2c", "ppo")]
    assert asked == {
        (*algorithm, task, f"--seed={seed}", "--limit=1800.0", "--period=120.0")
        for algorithm in (*algorithms, ("appo.py",))
        for task in ("breakout", "space_invaders", "boxing", "seaquest")
        for seed in (0, 1)
    }
    points = from_csv(path.read_text())
    assert len(points) == len(rows) == 2 * len(asked)
    assert points[0] == ("boxing", "Stable-Baselines3's A2C", 0, 10, 2, 1.5, 3.0)


def test_control_has_the_time_and_the_action_repeats_of_the_study(monkeypatch, rows, tmp_path):
    study = ROOT / "benchmarks" / "control_ten_minutes.py"
    train(monkeypatch, tmp_path / "peers.csv", "--study", str(study))
    repeats = {"finger:spin": 2, "walker:walk": 2, "cheetah:run": 4, "hopper:stand": 4}
    assert {tuple(row["arguments"]) for row in rows} == {
        (
            *("control.py", algorithm, task, "--seed=0", f"--action_repeat={repeats[task]}"),
            *("--limit=600.0", "--period=60.0"),
        )
        for algorithm in ("sac", "tqc", "crossq")
        for task in repeats
    }


def test_updates_are_those_of_a_study_without_time(monkeypatch, rows, tmp_path):
    study = ROOT / "configs" / "paper" / "figure_3.py"
    flags = ["--study", str(study), "--seeds=1", "--tasks=walker"]
    train(monkeypatch, tmp_path / "peers.csv", *flags)
    assert rows[0]["arguments"] == [
        *("control.py", "ddpg", "walker:walk", "--seed=0", "--action_repeat=4"),
        *("--max_steps=40000", "--limit=1000000.0"),
    ]


def test_runs_that_are_in_the_file_are_not_run_again(monkeypatch, rows, tmp_path):
    path = tmp_path / "peers.csv"
    train(monkeypatch, path)
    before = path.read_text()
    path.write_text("".join(line for line in before.splitlines(True) if "QR-DQN" not in line))
    rows.clear()
    train(monkeypatch, path)
    assert {row["arguments"][1] for row in rows} == {"qr_dqn"}
    assert path.read_text() == before


def test_parts_of_a_study_are_named_by_regular_expressions(monkeypatch, rows, tmp_path):
    train(monkeypatch, tmp_path / "peers.csv", "--tasks=^break", "--labels=APPO|PPO$")
    assert {tuple(row["arguments"][:2]) for row in rows} == {
        ("appo.py", "breakout"),
        ("atari.py", "ppo"),
    }
    assert len(rows) == 2 * 2


def test_runs_at_once_have_cores_of_their_own(monkeypatch, rows, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    count = min(len(cores), 3)  # There are ten runs: each of these cores gets one.
    train(monkeypatch, tmp_path / "peers.csv", f"--parallel={count}")
    used = {json.dumps(row["cores"]) for row in rows}
    assert used == {json.dumps([core]) for core in cores[:count]}
    with pytest.raises(SystemExit, match=f"more than the {len(cores)} cores"):
        train(monkeypatch, tmp_path / "peers.csv", f"--parallel={len(cores)}", "--cores=2")


def test_studies_without_peers_are_refused(monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="--study is eviction; there are peers for figure_2"):
        study = ROOT / "configs" / "paper" / "eviction.py"
        train(monkeypatch, tmp_path / "peers.csv", "--study", str(study))


@pytest.mark.parametrize(
    ("script", "name", "folder"),
    [("appo.py", "APPO_PYTHON", ".venv-appo"), ("atari.py", "PEER_PYTHON", ".venv-peers")],
)
def test_a_script_runs_in_its_environment(monkeypatch, tmp_path, script, name, folder):
    assert getattr(peer_processes, name) == ROOT / folder / "bin" / "python"
    python = tmp_path / folder / "bin" / "python"
    monkeypatch.setattr(peer_processes, name, python)
    with pytest.raises(SystemExit, match=f"missing: make {folder}/.installed"):
        peer_processes.peer_command(script, "pong")
    python.parent.mkdir(parents=True)
    python.touch()
    path = str(ROOT / "benchmarks" / "peers" / script)
    assert peer_processes.peer_command(script, "pong") == [str(python), path, "pong"]
