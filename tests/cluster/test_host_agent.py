"""Tests of a guard as an ordinary object, with real processes; on a cluster: `tests/cluster`."""

from __future__ import annotations

import pathlib
import sys
import time

import pytest

from apex_agents.cluster import host_agent as ray_guard
from apex_agents.cluster.file_sync import FileState, Piece
from apex_agents.cluster.host_agent import NodeGuard, ProcessReport
from apex_agents.nodes.process import NodeCommand

WAIT = "import time; print('here', flush=True); time.sleep(100)"


@pytest.fixture
def host_agents(tmp_path, monkeypatch):
    """Makes guards of one node in one folder, as if Ray had started them again."""
    monkeypatch.setattr(ray_guard, "entry_argv", lambda job, index: [sys.executable, "-c", WAIT])
    monkeypatch.setattr(ray_guard, "_LOCK_WAIT_SECONDS", 0.3)
    made = []

    def make() -> NodeGuard:
        made.append(NodeGuard("actor_0", str(tmp_path)))
        return made[-1]

    yield make
    for agent_handle in made:
        agent_handle.kill(agent_handle._num_restarts)


def start(agent_handle: NodeGuard, tmp_path: pathlib.Path, num_restarts: int = 0) -> ProcessReport:
    log = tmp_path / "logs" / "actor_0.log"
    agent_handle.start(NodeCommand("actor_0", (), {}, log), b"", 0, num_restarts)
    return agent_handle.look(0, wants_files=False)


def test_a_start_that_is_repeated_starts_nothing(host_agents, tmp_path):
    agent_handle = host_agents()
    assert agent_handle.look(0, wants_files=False) == ProcessReport()
    agent_handle.prepare()
    look = start(agent_handle, tmp_path)
    assert (look.num_restarts, look.ended) == (0, None)
    assert start(agent_handle, tmp_path).pid == look.pid
    assert start(agent_handle, tmp_path, num_restarts=1).pid != look.pid


def test_what_is_asked_too_late_reaches_no_other_process(host_agents, tmp_path):
    agent_handle = host_agents()
    agent_handle.prepare()
    start(agent_handle, tmp_path)
    start(agent_handle, tmp_path, num_restarts=1)
    agent_handle.kill(0)
    agent_handle.ask_to_leave(0)
    time.sleep(0.3)
    assert agent_handle.look(0, wants_files=False).ended is None
    agent_handle.kill(1)
    assert "SIGKILL" in agent_handle.look(0, wants_files=False).ended.description


def test_only_a_guard_that_was_prepared_starts(host_agents, tmp_path):
    with pytest.raises(RuntimeError, match="host was lost"):
        start(host_agents(), tmp_path)


def test_a_new_guard_waits_for_the_process_of_the_old_one(host_agents, tmp_path):
    old, new = host_agents(), host_agents()
    old.prepare()
    start(old, tmp_path)
    old._lock.close()  # As when the guard dies; the process lives.
    with pytest.raises(TimeoutError, match="does not leave"):
        new.prepare()
    old.kill(0)
    assert list(new.prepare()) == ["logs/actor_0.log"]


def test_pieces_that_did_not_arrive_are_sent_again(host_agents, tmp_path):
    agent_handle = host_agents()
    assert agent_handle.prepare() == {}
    agent_handle.provide(Piece("logs/actor_0.csv", 1, 0, b"step\n1\n", True))
    start(agent_handle, tmp_path)
    assert agent_handle.prepare() is None  # What is here is newer than elsewhere.
    log = tmp_path / "logs" / "actor_0.csv"
    log.write_text("step\n1\n2\n")
    first = look_at_csv(agent_handle, 0)
    assert [(p.offset, p.content) for p in first.pieces] == [(7, b"2\n")]
    assert look_at_csv(agent_handle, 0).pieces == first.pieces
    last = look_at_csv(agent_handle, 0)
    assert last.pieces == first.pieces
    assert look_at_csv(agent_handle, last.number).pieces == []
    # A file that was removed is forgotten, and new when it is back.
    log.unlink()
    look_at_csv(agent_handle, last.number)
    assert "logs/actor_0.csv" not in agent_handle._copied
    assert FileState(1, 7) not in agent_handle._copied.values()


def look_at_csv(agent_handle: NodeGuard, last_taken: int) -> ProcessReport:
    look = agent_handle.look(last_taken, wants_files=True)
    return look._replace(pieces=[p for p in look.pieces if p.path.endswith(".csv")])
