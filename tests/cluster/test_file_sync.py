"""Tests of copies of a run's folder on two hosts, which are two folders here."""

from __future__ import annotations

import os
import pathlib

import pytest

from apex_agents.cluster import file_sync as mirror
from apex_agents.cluster.file_sync import FileState, NodeFiles, after, take_some


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


class Copy:
    """A copy of what a node writes, which gets what is new there."""

    def __init__(self, node: str, there: pathlib.Path, here: pathlib.Path):
        self._there, self._here = NodeFiles(str(there), node), NodeFiles(str(here), node)
        self._known: dict[str, FileState] = {}

    def fetch(self) -> list[tuple[str, int, bytes]]:
        pieces = take_some(self._there.read_new(self._there.states(), self._known))
        for piece in pieces:
            self._here.write(piece)
            self._known[piece.path] = after(piece)
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
        copy = Copy(node, there, here)
        assert sorted(path for path, _, _ in copy.fetch()) == sorted(names)
        assert copy.fetch() == []
    for name in [name for names in files.values() for name in names]:
        assert (here / name).read_text() == f"{name}\n"
        assert (here / name).stat().st_mtime == 1


def test_of_logs_only_new_lines_are_sent(there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n2", modified=1)
    assert copy.fetch() == [("logs/actor_0.csv", 0, b"step\n1\n")]
    assert copy.fetch() == []
    # The torn row, of a process that was killed, is cut off by the next one.
    write(there, "logs/actor_0.csv", "step\n1\n3\n", modified=2)
    assert copy.fetch() == [("logs/actor_0.csv", 7, b"3\n")]
    assert (here / "logs" / "actor_0.csv").read_text() == "step\n1\n3\n"


def test_a_torn_row_here_makes_room_for_the_next(there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n")
    copy.fetch()
    write(here, "logs/actor_0.csv", "step\n1\n2, to")
    write(there, "logs/actor_0.csv", "step\n1\n2\n", modified=2)
    copy.fetch()
    assert (here / "logs" / "actor_0.csv").read_text() == "step\n1\n2\n"


def test_a_log_that_begins_anew_is_sent_from_its_beginning(there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n2\n3\n", modified=1)
    copy.fetch()
    write(there, "logs/actor_0.csv", "other\n1\n", modified=2)
    assert copy.fetch() == [("logs/actor_0.csv", 0, b"other\n1\n")]
    assert (here / "logs" / "actor_0.csv").read_text() == "other\n1\n"


def test_a_file_is_there_when_it_is_complete(there, here, monkeypatch):
    monkeypatch.setattr(mirror, "_MAX_BYTES", 4)
    copy = Copy("learner", there, here)
    write(here, "checkpoints/last.npz", "before")
    write(there, "checkpoints/last.npz", "01234567")
    assert copy.fetch() == [("checkpoints/last.npz", 0, b"0123")]
    assert (here / "checkpoints" / "last.npz").read_text() == "before"
    assert copy.fetch() == [("checkpoints/last.npz", 4, b"4567")]
    assert (here / "checkpoints" / "last.npz").read_text() == "01234567"
    assert copy.fetch() == []
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["last.npz"]


def test_what_was_written_first_comes_first(there, here):
    names = ["state.index", "state.data", "progress.json"]
    for second, name in enumerate(names):
        write(there, f"checkpoints/learner-000000000100/{name}", name, modified=second)
    fetched = Copy("learner", there, here).fetch()
    assert [content.decode() for _, _, content in fetched] == names


def test_empty_files_are_sent(there, here):
    copy = Copy("learner", there, here)
    write(there, "checkpoints/learner-000000000100/state", "")
    write(there, "logs/learner.log", "")
    assert len(copy.fetch()) == 2
    assert copy.fetch() == []
    assert (here / "logs" / "learner.log").read_text() == ""


def test_removing(here):
    files = NodeFiles(str(here), "learner")
    write(here, "summary.json", "of the run before")
    files.remove(["summary.json", "checkpoints/last.npz"])
    assert files.states() == {}
