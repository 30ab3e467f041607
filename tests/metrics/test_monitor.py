"""Tests of the thread that shows a run and exports its rows."""

import io
import os
import pty
import threading

import pytest
from rich.console import Console
from waiting import TIMEOUT_SECONDS, wait_for

from apex_agents.metrics import monitor as monitor_module
from apex_agents.metrics.monitor import LiveView, Monitor, PlainLines, make_view
from apex_agents.metrics.run_state import RunState
from apex_agents.runs.folder import RunFolder


class Recorder:
    """Takes part as a view and as an export."""

    is_live = True

    def __init__(self, fails: bool = False):
        self.fails = fails
        self.notes: list[str] = []
        self.names: list[str] = []
        self.num_closes = 0

    def show(self, state: RunState, note: str = "") -> None:
        self.notes.append(note)
        if self.fails:
            raise RuntimeError("cannot draw")

    def write(self, items) -> None:
        self.names += [name for item in items for name in getattr(item, "values", {})]

    def close(self) -> None:
        self.num_closes += 1


@pytest.fixture
def state(written_run) -> RunState:
    return RunState(RunFolder(written_run.folder))


def follow(*arguments) -> Monitor:
    return Monitor(*arguments, period_seconds=0.02)


def test_new_rows_are_exported_and_old_ones_are_not(written_run, state):
    written_run.append("learner", learner_steps=1, loss=0.5)
    view, export = Recorder(), Recorder()
    watcher = follow(state, view, [export])
    wait_for(lambda: len(view.notes) > 2)
    assert export.names == []
    watcher.note = "Stopping."
    written_run.append("learner", learner_steps=2, loss=0.25)
    wait_for(lambda: export.names)
    wait_for(lambda: "Stopping." in view.notes)
    written_run.append("replay", actor_steps=5)
    watcher.close()
    assert export.names == ["learner/learner_steps", "learner/loss", "replay/actor_steps"]
    assert view.notes[-1] == ""  # It has stopped.
    assert (view.num_closes, export.num_closes) == (1, 1)


def test_a_failed_look_at_the_run_is_told_once_and_tried_again(
    written_run, state, caplog, monkeypatch
):
    num_failures, refresh = 0, state.refresh

    def fail():
        nonlocal num_failures
        num_failures += 1
        raise OSError("stale file handle")

    export = Recorder()
    watcher = follow(state, Recorder(), [export])
    monkeypatch.setattr(state, "refresh", fail)
    wait_for(lambda: num_failures > 2)
    monkeypatch.setattr(state, "refresh", refresh)
    written_run.append("learner", learner_steps=1)
    wait_for(lambda: export.names == ["learner/learner_steps"])
    watcher.close()
    (record,) = caplog.records
    assert record.getMessage() == "The run cannot be watched: OSError: stale file handle"


class Broken(Recorder):
    """A user-defined export that fails at its first row, and again when it is closed."""

    def write(self, items) -> None:
        super().write(items)
        if self.names:
            raise KeyError("no network")

    def close(self) -> None:
        super().close()
        raise KeyError("no network")


def test_a_display_or_an_export_that_fails_gets_nothing_more_and_the_others_do(
    written_run, state, caplog
):
    view, broken, export = Recorder(fails=True), Broken(), Recorder()
    watcher = follow(state, view, [broken, export])
    for step in (1, 2):
        written_run.append("learner", learner_steps=step)
        wait_for(lambda: len(export.names) == step)  # noqa: B023  # It is called here.
    watcher.close()
    assert (len(view.notes), broken.names) == (1, ["learner/learner_steps"])
    assert (broken.num_closes, export.num_closes, view.num_closes) == (1, 1, 1)
    assert [record.args for record in caplog.records] == [
        ("The display", "RuntimeError: cannot draw"),
        ("The export Broken", "KeyError: 'no network'"),
    ]


class Slow(Recorder):
    """An export that takes its first row when it is allowed to."""

    def __init__(self):
        super().__init__()
        self.begun, self.may_end, self.has_ended = (threading.Event() for _ in range(3))

    def write(self, items) -> None:
        super().write(items)
        if self.names:
            self.begun.set()
            assert self.may_end.wait(TIMEOUT_SECONDS)
            self.has_ended.set()


@pytest.mark.parametrize("is_busy", [True, False])
def test_the_end_waits_for_what_is_busy_and_for_nothing_else(
    written_run, state, monkeypatch, is_busy
):
    monkeypatch.setattr(monitor_module, "_CLOSE_SECONDS", 0.01)
    export, num_looks = Slow(), 0
    watcher = follow(state, Recorder(), [export])
    written_run.append("learner", learner_steps=1)
    assert export.begun.wait(TIMEOUT_SECONDS)

    def look() -> bool:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 3:
            export.may_end.set()
        return is_busy

    watcher.close(look)
    assert export.has_ended.is_set() is is_busy
    export.may_end.set()


def test_lines_appear_every_ten_seconds_once_the_replay_has_a_row(written_run, state):
    now = 1000.0
    lines: list[str] = []
    view = PlainLines(lines.append, clock=lambda: now)

    def count_lines(seconds_later: float) -> int:
        nonlocal now
        now += seconds_later
        state.refresh()
        view.show(state)
        return len(lines)

    assert count_lines(30) == 0
    written_run.append_everything()
    assert [count_lines(seconds) for seconds in (0, 0, 9, 1, 9.5, 0.5)] == [1, 1, 1, 2, 2, 3]
    view = PlainLines(lines.append, clock=lambda: now)
    assert [count_lines(seconds) for seconds in (9, 1)] == [3, 4]


def test_a_warning_is_printed_once_and_at_once(written_run, state):
    lines: list[str] = []
    view = PlainLines(lines.append, clock=lambda: 1000.0)
    for share in (0.1, 0.9, 0.95):
        written_run.append("learner", learner_steps=1, priorities_at_bound_fraction=share)
        state.refresh()
        view.show(state)
    assert [line.partition(" ")[0] for line in lines] == ["warning:"]
    assert "90%" in lines[0]


def test_what_is_printed_appears_above_the_live_view(written_run, state):
    written_run.append_everything()
    state.refresh()
    console = Console(file=io.StringIO(), force_terminal=True, width=90, height=40)
    view = LiveView(console)
    view.show(state)
    print("Node actor_0 was killed.")
    view.show(state)
    view.close()
    output = console.file.getvalue()
    first, rest = output.split("Node actor_0 was killed.")
    assert first.count("some_run") == 1
    assert rest.count("some_run") >= 1


@pytest.mark.parametrize(
    ("wanted", "terminal", "expected"),
    [(True, "xterm", LiveView), (False, "xterm", PlainLines), (True, "dumb", PlainLines)],
)
def test_live_only_in_a_terminal_that_can(wanted, terminal, expected, monkeypatch):
    monkeypatch.setenv("TERM", terminal)
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stdout, os.fdopen(leader):
        monkeypatch.setattr("sys.stdout", stdout)
        assert isinstance(make_view(wanted, print), expected)


def test_lines_where_the_output_is_no_terminal():
    assert isinstance(make_view(True, print), PlainLines)
