"""Tests of what a node says of its waits, and of which of them are worth a line."""

import math
import threading

import pytest
from waiting import wait_for

from apex_agents.waits import (
    NodeMemory,
    Notices,
    Wait,
    Waiting,
    reporting,
    reporting_thread,
    write_waits,
)


def test_a_wait_is_seen_while_it_lasts(memory):
    assert memory.wait() is None
    with Waiting("environment 3", notice_seconds=10.0, limit_seconds=90.0):
        wait = memory.wait()
    assert (wait.what, wait.notice_seconds, wait.limit_seconds) == ("environment 3", 10.0, 90.0)
    assert wait.seconds >= 0
    assert memory.wait() is None


def test_a_wait_that_ends_with_an_error_is_over(memory):
    with pytest.raises(KeyError), Waiting("environment 3"):
        raise KeyError
    assert memory.wait() is None


def test_a_shorter_name_leaves_nothing_of_a_longer_one(memory):
    for what in ("the replay at localhost:12345", "data", "x" * 1000, "Umgebung für dich"):
        with Waiting(what):
            assert memory.wait().what == what[:232]
            assert math.isinf(memory.wait().limit_seconds)


def test_a_thread_writes_for_itself_alone(memory):
    inside, leave = threading.Event(), threading.Event()
    other = NodeMemory()

    def wait_elsewhere(memory: NodeMemory | None) -> None:
        if memory is not None:
            write_waits(memory)
        with Waiting("elsewhere"):
            inside.set()
            leave.wait()

    for memory_of_thread in (other, None):
        thread = threading.Thread(target=wait_elsewhere, args=(memory_of_thread,))
        thread.start()
        inside.wait()
        assert memory.wait() is None
        leave.set()
        thread.join()
        inside.clear(), leave.clear()


def test_memory_is_shared_by_its_descriptor():
    with NodeMemory.share() as (ours, descriptor):
        theirs = NodeMemory(descriptor)
    write_waits(theirs)
    with Waiting("an answer"):
        assert ours.wait().what == "an answer"
    theirs.fail(ValueError("in the middle"))
    assert ours.failure() == "ValueError: in the middle"
    write_waits(NodeMemory())


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
    assert memory.failure() == ""
    memory.fail(error)
    assert memory.failure().startswith(failure)
    assert "\n" not in memory.failure() and "log" not in memory.failure()
    assert memory.wait() is None


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


def test_the_same_slow_step_again_and_again_has_one_line():
    notices = Notices()
    due = [notices.is_due(Wait(what, 70.0)) for what in ("step", "step", "reset", "step")]
    assert due == [True, False, True, False]
    assert not notices.is_due(Wait("step", 419.0))
    assert notices.is_due(Wait("step", 420.0))


def test_waits_of_threads_are_reported_with_their_names(memory):
    reports = []
    memories = {}
    with reporting(memories, lambda *report: reports.append(report), period_seconds=0.001):
        memories["actor_0"] = memory
        with Waiting("step", notice_seconds=0.0):
            wait_for(lambda: reports)
    (name, wait) = reports[0]
    assert (name, wait.what) == ("actor_0", "step")


def test_the_waits_of_a_thread_are_reported_while_it_is_in_the_block():
    memory, reported, told = NodeMemory(), [], threading.Event()
    write_waits(memory)

    def report(name: str, wait: Wait) -> None:
        reported.append((name, wait.what))
        told.set()

    with reporting_thread("The check", report, period_seconds=0.01), Waiting("a step", 0.0):
        assert told.wait(60)
        assert memory.wait() is None
    with Waiting("another step"):
        assert memory.wait().what == "another step"  # It is the same as before the block.
    assert reported == [("The check", "a step")]
    write_waits(None)
