"""Tests of what a node tells its supervisor, and of which waits are worth a line."""

import math
import threading

import pytest
from waiting import wait_for

from apex_agents.waits import (
    STOP,
    WORKS,
    NodeMemory,
    Notices,
    Wait,
    Waiting,
    reporting,
    reporting_thread,
    say,
    write_waits,
)


def test_a_wait_is_seen_while_it_lasts(memory):
    assert memory.wait() is None
    with Waiting("environment 3", notice_seconds=10.0, limit_seconds=90.0):
        wait = memory.wait()
    assert (wait.what, wait.notice_seconds, wait.limit_seconds) == ("environment 3", 10.0, 90.0)
    assert wait.seconds >= 0
    assert memory.wait() is None
    with pytest.raises(KeyError), Waiting("environment 3"):
        raise KeyError
    assert memory.wait() is None


def test_a_wait_within_another_hides_it_meanwhile(memory):
    with Waiting("the end"):
        since = memory.wait()
        with Waiting("the replay", limit_seconds=9.0):
            assert (memory.wait().what, memory.wait().limit_seconds) == ("the replay", 9.0)
        assert (memory.wait().what, memory.wait().limit_seconds) == ("the end", math.inf)
        assert memory.wait().seconds >= since.seconds  # It has lasted from its beginning.
    assert memory.wait() is None


def test_a_shorter_name_leaves_nothing_of_a_longer_one(memory):
    for what in ("the replay at localhost:12345", "data", "x" * 1000, "Umgebung für dich"):
        with Waiting(what):
            assert memory.wait().what == what[:232]


@pytest.mark.parametrize("is_node", [True, False])
def test_a_thread_writes_for_itself_alone(is_node, memory):
    inside, leave = threading.Event(), threading.Event()

    def wait_elsewhere() -> None:
        if is_node:
            write_waits(NodeMemory())
        with Waiting("elsewhere"):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=wait_elsewhere)
    thread.start()
    inside.wait()
    assert memory.wait() is None
    leave.set()
    thread.join()


def test_memory_is_shared_by_its_descriptor(memory):
    with NodeMemory.share() as (ours, descriptor):
        write_waits(NodeMemory(descriptor))
    assert ours.messages() == b""
    say(STOP)
    with Waiting("an answer"):
        say(WORKS)
        assert ours.wait().what == "an answer"
    assert (ours.wait(), ours.failure()) == (None, "")
    assert ours.messages() == WORKS + STOP


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RuntimeError("the simulator has crashed\nwith its log"), "RuntimeError: the simulator"),
        (KeyError("speed"), "KeyError: 'speed'"),
        (AssertionError(), "AssertionError"),
        (OSError("\n\n  no room\n"), "OSError: no room"),
        (ValueError("x" * 5000), "ValueError: xxx"),
    ],
)
def test_a_failure_is_its_type_and_its_first_line(error, failure):
    memory = NodeMemory()
    memory.fail(error)
    assert memory.failure().startswith(failure)
    assert "\n" not in memory.failure() and "log" not in memory.failure()
    assert (memory.wait(), memory.messages()) == (None, b"")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, ("", 0)), (9.9, ("", 0)), (10.0, ("x", 10)), (69.9, ("x", 60)), (7200.4, ("x", 7200))],
)
def test_waits_are_shown_in_steps_of_ten_seconds(seconds, shown):
    assert Wait("x", seconds).in_steps() == shown


def test_a_wait_is_no_longer_than_the_time_since_its_supervisor_was_stopped():
    assert Wait("x", 90.0).within(5.0).seconds == 5.0
    assert Wait("x", 90.0).within(500.0).seconds == 90.0


def test_a_long_wait_has_a_line_again_when_it_lasts_six_times_as_long():
    notices = Notices()
    due = [s for s in range(1, 2200) if notices.is_due(Wait("x", float(s), notice_seconds=10.0))]
    assert due == [10, 60, 360, 2160]
    # The same slow step again and again has one line.
    notices = Notices()
    waits = [("step", 70), ("step", 70), ("reset", 70), ("step", 70), ("step", 419), ("step", 420)]
    due = [notices.is_due(Wait(what, float(seconds))) for what, seconds in waits]
    assert due == [True, False, True, False, False, True]


def test_waits_of_threads_are_reported_with_their_names(memory):
    reports, memories = [], {}
    with reporting(memories, lambda *report: reports.append(report), period_seconds=0.001):
        memories["actor_0"] = memory
        with Waiting("step", notice_seconds=0.0):
            wait_for(lambda: reports)
    (name, wait) = reports[0]
    assert (name, wait.what) == ("actor_0", "step")


def test_the_waits_of_a_thread_are_reported_while_it_is_in_the_block(memory):
    reported, told = [], threading.Event()

    def report(name: str, wait: Wait) -> None:
        reported.append((name, wait.what))
        told.set()

    with reporting_thread("The check", report, period_seconds=0.01), Waiting("a step", 0.0):
        assert told.wait(60)
        assert memory.wait() is None
    with Waiting("another step"):
        assert memory.wait().what == "another step"  # It is the same as before the block.
    assert reported == [("The check", "a step")]
