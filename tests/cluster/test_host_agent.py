"""Tests of a guard as an ordinary object, with real processes; on a cluster: `tests/cluster`."""

from __future__ import annotations

import pathlib
import sys
import time

import pytest

from apex_agents.cluster import host_agent as ray_guard
from apex_agents.cluster.file_sync import FileState, Piece
from apex_agents.cluster.host_agent import Look, NodeGuard
from apex_agents.nodes.process import NodeCommand

WAIT = "import time; print('here', flush=True); time.sleep(100)"


@pytest.fixture
def guards(tmp_path, monkeypatch):
    """Makes guards of one node in one folder, as if Ray had started them again."""
    monkeypatch.setattr(ray_guard, "entry_argv", lambda job, index: [sys.executable, "-c", WAIT])
    monkeypatch.setattr(ray_guard, "_LOCK_WAIT_SECONDS", 0.3)
    made = []

    def make() -> NodeGuard:
        made.append(NodeGuard("actor_0", str(tmp_path)))
        return made[-1]

    yield make
    for guard in made:
        guard.kill(guard._num_restarts)


def start(guard: NodeGuard, tmp_path: pathlib.Path, num_restarts: int = 0) -> Look:
    log = tmp_path / "logs" / "actor_0.log"
    guard.start(NodeCommand("actor_0", (), {}, log), b"", 0, num_restarts)
    return guard.look(0, wants_files=False)


def test_a_start_that_is_repeated_starts_nothing(guards, tmp_path):
    guard = guards()
    assert guard.look(0, wants_files=False) == Look()
    guard.prepare()
    look = start(guard, tmp_path)
    assert (look.num_restarts, look.ended) == (0, None)
    assert start(guard, tmp_path).pid == look.pid
    assert start(guard, tmp_path, num_restarts=1).pid != look.pid


def test_what_is_asked_too_late_reaches_no_other_process(guards, tmp_path):
    guard = guards()
    guard.prepare()
    start(guard, tmp_path)
    start(guard, tmp_path, num_restarts=1)
    guard.kill(0)
    guard.ask_to_leave(0)
    time.sleep(0.3)
    assert guard.look(0, wants_files=False).ended is None
    guard.kill(1)
    assert "SIGKILL" in guard.look(0, wants_files=False).ended.description


def test_only_a_guard_that_was_prepared_starts(guards, tmp_path):
    with pytest.raises(RuntimeError, match="host was lost"):
        start(guards(), tmp_path)


def test_a_new_guard_waits_for_the_process_of_the_old_one(guards, tmp_path):
    old, new = guards(), guards()
    old.prepare()
    start(old, tmp_path)
    old._lock.close()  # As when the guard dies; the process lives.
    with pytest.raises(TimeoutError, match="does not leave"):
        new.prepare()
    old.kill(0)
    assert list(new.prepare()) == ["logs/actor_0.log"]


def test_pieces_that_did_not_arrive_are_sent_again(guards, tmp_path):
    guard = guards()
    assert guard.prepare() == {}
    guard.provide(Piece("logs/actor_0.csv", 1, 0, b"step\n1\n", True))
    start(guard, tmp_path)
    assert guard.prepare() is None  # What is here is newer than elsewhere.
    log = tmp_path / "logs" / "actor_0.csv"
    log.write_text("step\n1\n2\n")
    first = look_at_csv(guard, 0)
    assert [(p.offset, p.content) for p in first.pieces] == [(7, b"2\n")]
    assert look_at_csv(guard, 0).pieces == first.pieces
    last = look_at_csv(guard, 0)
    assert last.pieces == first.pieces
    assert look_at_csv(guard, last.number).pieces == []
    # A file that was removed is forgotten, and new when it is back.
    log.unlink()
    look_at_csv(guard, last.number)
    assert "logs/actor_0.csv" not in guard._copied
    assert FileState(1, 7) not in guard._copied.values()


def look_at_csv(guard: NodeGuard, last_taken: int) -> Look:
    look = guard.look(last_taken, wants_files=True)
    return look._replace(pieces=[p for p in look.pieces if p.path.endswith(".csv")])
