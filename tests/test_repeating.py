"""Tests of what is done again and again in the background."""

import queue
import threading

from apex_agents.repeating import Repeating


def test_failures_are_reported_once_in_a_row_and_end_nothing():
    failures = iter([OSError("a\nfirst"), OSError("first"), KeyError("x"), None, KeyError("x")])
    reports: list[str] = []
    over = threading.Event()

    def fail() -> None:
        failure = next(failures, StopIteration)
        if failure is StopIteration:
            over.set()
        elif failure is not None:
            raise failure

    repeating = Repeating("Counting", fail, 0.001, reports.append)
    assert over.wait(60)
    assert repeating.close()
    assert [report.partition(": ")[2] for report in reports] == [
        "OSError: first",
        "KeyError: 'x'",
        "KeyError: 'x'",  # It had worked meanwhile.
    ]
    assert all(report.startswith("Counting failed") for report in reports)


def test_closing_waits_for_the_present_call_as_long_as_it_is_told():
    calls: queue.Queue = queue.Queue()
    leave = threading.Event()

    def call() -> None:
        calls.put(None)
        leave.wait()

    repeating = Repeating("Waiting", call, 0.001)
    calls.get(timeout=60)
    assert not repeating.close(timeout_seconds=0)
    leave.set()
    assert repeating.close()
    assert calls.empty()
