"""Tests of a run's folder on two hosts, which is two folders here."""

from __future__ import annotations

import errno
import os
import pathlib

import pytest

from apex_agents.cluster.file_sync import FileState, FileSync, NodeFiles, take_some
from apex_agents.runs.csv_file import RowReader


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
    """A node's files on its host and in the command's folder."""

    def __init__(self, node: str, there: pathlib.Path, here: pathlib.Path):
        self.there = NodeFiles(str(there), node)
        self.sync = FileSync(str(here), node)

    def fetch(self, max_bytes: int = 1000) -> list[tuple[str, int, bytes]]:
        """Fetch what is new on the host."""
        removed = [path for path in self.sync.known if path not in self.there.states()]
        changes = take_some(self.there.changes(self.sync.known), max_bytes)
        assert self.sync.receive(changes, removed)
        return [(change.path, change.offset, change.content) for change in changes]

    def provide(self) -> list[str]:
        """Give a host what the command's folder has, and nothing else."""
        self.there.remove_all_but(self.sync.paths())
        sent = []
        for change in self.sync.outgoing(self.there.states()):
            self.there.write(change)
            sent.append(change.path)
        return sent


def test_what_was_written_first_comes_first_and_a_checkpoint_is_complete_last(there, here):
    folder = "checkpoints/learner-000000000100"
    write(there, f"{folder}/state.index", "x", modified=0)
    for name in ("progress.json", "parameters.npz", "state.data-00000-of-00001"):
        write(there, f"{folder}/{name}", "x")  # All at one time of the clock.
    write(there, "checkpoints/last.npz", "x", modified=2)
    paths = [path for path, _, _ in Copy("learner", there, here).fetch()]
    assert paths[0] == f"{folder}/state.index"
    assert paths[3:] == [f"{folder}/progress.json", "checkpoints/last.npz"]


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
    # Incomplete files, and files that stay where they are.
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


def test_files_of_several_learners_belong_to_one_node(there, here):
    files = {
        "parameter_server": ["logs/learner.csv", "logs/learner_histograms.csv"],
        "learner_0": ["logs/learner_0.csv", "logs/learner_0_histograms.csv"],
    }
    for name in [name for names in files.values() for name in names]:
        write(there, name, f"{name}\n")
    for node, names in files.items():
        assert sorted(path for path, _, _ in Copy(node, there, here).fetch()) == names


def test_only_new_lines_of_logs_are_sent(there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n2", modified=1)
    assert copy.fetch() == [("logs/actor_0.csv", 0, b"step\n1\n")]
    assert copy.fetch() == []
    # The next process removes the incomplete row of one that was killed.
    write(there, "logs/actor_0.csv", "step\n1\n3\n", modified=2)
    assert copy.fetch() == [("logs/actor_0.csv", 7, b"3\n")]
    assert (here / "logs" / "actor_0.csv").read_text() == "step\n1\n3\n"


def test_files_without_a_whole_line_are_sent_once(there, here):
    copy = Copy("learner", there, here)
    write(there, "checkpoints/learner-000000000100/state", "")
    write(there, "logs/learner.log", "no end")
    assert sorted(copy.fetch()) == [
        ("checkpoints/learner-000000000100/state", 0, b""),
        ("logs/learner.log", 0, b""),
    ]
    assert copy.fetch() == []
    assert (here / "logs" / "learner.log").read_text() == ""


@pytest.mark.parametrize(
    ("is_here", "is_there", "sent"),
    [
        ("step\n1\n2, to", "step\n1\n2\n", (7, b"2\n")),  # An incomplete row makes room.
        ("step\n1\n", "new\n1\n", (0, b"new\n1\n")),  # A shorter log begins anew.
    ],
)
def test_lines_here_that_are_not_those_there_are_replaced(is_here, is_there, sent, there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n")
    copy.fetch()
    write(here, "logs/actor_0.csv", is_here)
    write(there, "logs/actor_0.csv", is_there, modified=2)
    assert copy.fetch() == [("logs/actor_0.csv", *sent)]
    assert (here / "logs" / "actor_0.csv").read_text() == is_there


def test_files_are_fetched_up_to_a_size(there, here):
    copy = Copy("learner", there, here)
    for second, name in enumerate(["checkpoints/last.npz", "summary.json", "logs/learner.csv"]):
        write(there, name, "0123\n", modified=second)
    assert [path for path, _, _ in copy.fetch(max_bytes=6)] == [
        "checkpoints/last.npz",
        "summary.json",
    ]
    assert [path for path, _, _ in copy.fetch(max_bytes=6)] == ["logs/learner.csv"]


def test_a_file_is_replaced_as_a_whole(there, here):
    copy = Copy("learner", there, here)
    write(here, "checkpoints/last.npz", "before")
    write(there, "checkpoints/last.npz", "01234567")
    with (here / "checkpoints" / "last.npz").open() as reader:
        copy.fetch()
        assert reader.read() == "before"
    assert (here / "checkpoints" / "last.npz").read_text() == "01234567"
    assert [path.name for path in (here / "checkpoints").iterdir()] == ["last.npz"]


def test_a_host_gets_what_the_command_has_and_nothing_else(there, here):
    copy = Copy("learner", there, here)
    write(here, "checkpoints/last.npz", "same")
    write(there, "checkpoints/last.npz", "same")
    write(here, "logs/learner.csv", "step\n1\n")
    write(there, "logs/learner.csv", "step\n1\n2\n", modified=2)
    write(there, "summary.json", "of an earlier run")
    write(there, "logs/actor_0.csv", "of another node\n")
    assert copy.provide() == ["logs/learner.csv"]
    assert (there / "logs" / "learner.csv").read_text() == "step\n1\n"
    assert not (there / "summary.json").exists()
    assert (there / "logs" / "actor_0.csv").exists()
    assert copy.fetch() == []
    write(there, "logs/learner.csv", "step\n1\n3\n", modified=3)
    assert copy.fetch() == [("logs/learner.csv", 7, b"3\n")]


def test_a_file_that_was_removed_there_stays_unless_it_is_the_summary(there, here):
    for node, name, stays in [
        ("evaluator", "checkpoints/best.npz", True),
        ("learner", "summary.json", False),  # The learner was restarted: the run continues.
    ]:
        copy = Copy(node, there, here)
        write(there, name, "first")
        copy.fetch()
        (there / name).unlink()
        assert copy.fetch() == []
        assert copy.sync.known == {}
        assert (here / name).exists() == stays
        write(there, name, "first")
        assert copy.fetch() == [(name, 0, b"first")]


def test_what_could_not_be_written_is_fetched_again_as_a_whole(there, here):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n")
    copy.fetch()
    (here / "logs" / "actor_0.csv").unlink()  # So that nothing can be appended.
    write(there, "logs/actor_0.csv", "step\n1\n2\n", modified=2)
    assert not copy.sync.receive(copy.there.changes(copy.sync.known), [])
    assert copy.sync.known == {}
    assert copy.fetch() == [("logs/actor_0.csv", 0, b"step\n1\n2\n")]
    assert copy.sync.known == {"logs/actor_0.csv": FileState(2 * 10**9, 9)}


def test_of_a_log_that_could_not_be_written_the_new_lines_are_fetched_again(
    there, here, monkeypatch
):
    copy = Copy("actor_0", there, here)
    write(there, "logs/actor_0.csv", "step\n1\n")
    copy.fetch()
    reader = RowReader(here / "logs" / "actor_0.csv")
    rows = reader.read()
    write(there, "logs/actor_0.csv", "step\n1\n2\n", modified=2)

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "utime", fail)  # After the lines have been written.
    assert not copy.sync.receive(copy.there.changes(copy.sync.known), [])
    monkeypatch.undo()
    rows += reader.read()
    assert copy.fetch() == [("logs/actor_0.csv", 7, b"2\n")]
    rows += reader.read()
    assert [row["step"] for row in rows] == [1.0, 2.0]
    assert (here / "logs" / "actor_0.csv").read_text() == "step\n1\n2\n"
