"""Tests of copies of a run's folder on two hosts, which are two folders here."""

from __future__ import annotations

import os
import pathlib

import pytest

from apex_agents.running import mirror
from apex_agents.running.mirror import NodeFiles


@pytest.fixture
def there(tmp_path) -> pathlib.Path:
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path) -> pathlib.Path:
    return tmp_path / "here"


def write(folder: pathlib.Path, name: str, content: str, modified: int = 1) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (modified, modified))


def fetch(node: str, there: pathlib.Path, here: pathlib.Path) -> list[tuple[str, int, bytes]]:
    """Brings what is new there, and says what that was."""
    copy = NodeFiles(str(here), node)
    pieces = NodeFiles(str(there), node).read_newer(copy.states())
    copy.write(pieces)
    return [(piece.path, piece.offset, piece.content) for piece in pieces]


def test_files_belong_to_one_node(there, here):
    files = {
        "replay": ["logs/replay.csv", "actor_steps.json"],
        "learner": [
            "logs/learner.csv",
            "logs/learner_histograms.csv",
            "checkpoints/learner-000000000100/progress.json",
            "checkpoints/last.npz",
            "summary.json",
        ],
        "evaluator": ["logs/evaluator.csv", "checkpoints/best.npz", "videos/000000000100.mp4"],
        "actor_1": ["logs/actor_1.csv", "logs/actor_1.1.csv", "logs/actor_1.log"],
        "actor_10": ["logs/actor_10.csv"],
    }
    # What is written as long as it is not complete, and what stays where it is.
    write(there, "checkpoints/learner-000000000200.partial/progress.json", "x")
    write(there, "checkpoints/last.npz.partial", "x")
    write(there, "checkpoints/replay/2026/DONE", "x")
    write(there, "nodes.json", "x")
    for name in [name for names in files.values() for name in names]:
        write(there, name, f"{name}\n")
    for node, names in files.items():
        assert sorted(path for path, _, _ in fetch(node, there, here)) == sorted(names)
        assert fetch(node, there, here) == []
    for name in [name for names in files.values() for name in names]:
        assert (here / name).read_text() == f"{name}\n"
        assert (here / name).stat().st_mtime == 1


def test_of_logs_only_new_lines_are_sent(there, here):
    write(there, "logs/actor_0.csv", "step\n1\n2", modified=1)
    assert fetch("actor_0", there, here) == [("logs/actor_0.csv", 0, b"step\n1\n")]
    # The torn row, of a process that was killed, is cut off by the next one.
    write(there, "logs/actor_0.csv", "step\n1\n3\n", modified=2)
    assert fetch("actor_0", there, here) == [("logs/actor_0.csv", 7, b"3\n")]
    assert (here / "logs" / "actor_0.csv").read_text() == "step\n1\n3\n"


def test_a_log_that_begins_anew_is_sent_from_its_beginning(there, here):
    write(there, "logs/actor_0.csv", "step\n1\n2\n3\n", modified=1)
    fetch("actor_0", there, here)
    write(there, "logs/actor_0.csv", "other\n1\n", modified=2)
    assert fetch("actor_0", there, here) == [("logs/actor_0.csv", 0, b"other\n1\n")]
    assert (here / "logs" / "actor_0.csv").read_text() == "other\n1\n"


def test_the_newest_version_wins(there, here):
    write(there, "checkpoints/last.npz", "old", modified=1)
    write(here, "checkpoints/last.npz", "new", modified=2)
    assert fetch("learner", there, here) == []
    assert fetch("learner", here, there) == [("checkpoints/last.npz", 0, b"new")]
    assert (there / "checkpoints" / "last.npz").read_text() == "new"
    write(there, "checkpoints/last.npz", "x", modified=3)  # Shorter.
    fetch("learner", there, here)
    assert (here / "checkpoints" / "last.npz").read_text() == "x"


def test_large_files_come_in_pieces(there, here, monkeypatch):
    monkeypatch.setattr(mirror, "_MAX_BYTES", 4)
    write(there, "checkpoints/last.npz", "0123456789")
    write(there, "summary.json", "end")
    states = iter(range(100))
    while fetch("learner", there, here):
        assert next(states) < 10
    assert (here / "checkpoints" / "last.npz").read_text() == "0123456789"
    assert (here / "summary.json").read_text() == "end"


def test_what_was_removed_is_not_brought_back(there, here):
    write(there, "checkpoints/learner-000000000100/progress.json", "old")
    copy = NodeFiles(str(here), "learner")
    copy.write(NodeFiles(str(there), "learner").read_newer(copy.states()))
    assert copy.states()
    (here / "checkpoints/learner-000000000100/progress.json").unlink()
    assert NodeFiles(str(there), "learner").read_newer(copy.states()) == []
    # Nor does the other side get an empty file.
    assert copy.read_newer({}) == []
