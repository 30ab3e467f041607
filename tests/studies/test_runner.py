"""Tests of commands that run one after the other or a few at once, and of what is shown of them."""

import errno
import io
import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from rich.console import Console
from waiting import TIMEOUT_SECONDS, wait_for

from apex_agents.studies.runner import (
    FAILED,
    FINISHED,
    NOT_STARTED,
    PRUNED,
    STOPPED,
    Runner,
    Screen,
    last_words,
    share_cores,
)
from apex_agents.studies.study import Run

# In short parts: a signal that arrives just before a long one would be handled at its end.
WAIT_QUIETLY = "import time; [time.sleep(0.1) for _ in range(6_000)]"
WAIT = f"print('waits', flush=True); {WAIT_QUIETLY}"
WAIT_FOR_CTRL_C = f"import signal, sys; signal.signal(2, lambda *_: sys.exit(130)); {WAIT}"


@pytest.fixture
def make_run(tmp_path):
    def make(seed: int, code: str) -> Run:
        return Run("catch", (), seed, tmp_path / str(seed), (sys.executable, "-c", code))

    return make


def finish(runner: Runner) -> list[str]:
    """Step to the end; return how the runs have ended."""

    def is_done() -> bool:
        runner.step()
        return runner.is_done()

    wait_for(is_done)
    return list(runner.endings.values())


def start_waiting(runs: list[Run], num_parallel: int) -> Runner:
    """Start runs that print 'waits', and return when they have done so."""
    runner = Runner(runs, num_parallel)
    runner.step()
    wait_for(lambda: all(last_words(run.log) == "waits" for run in runs[:num_parallel]))
    return runner


def test_runs_one_after_the_other(make_run, tmp_path):
    file = tmp_path / "order"
    runs = [make_run(seed, f"open({str(file)!r}, 'a').write('{seed} ')") for seed in range(3)]
    runner, num_active = Runner(runs, 1), []

    def is_done() -> bool:
        runner.step()
        num_active.append(len(runner.newest_output()))
        return runner.is_done()

    wait_for(is_done)
    assert set(runner.endings.values()) == {FINISHED}
    assert max(num_active) == 1
    assert file.read_text() == "0 1 2 "


@pytest.mark.parametrize(
    ("num_cores", "expected"),
    [
        (2, [[0], [1]]),
        (5, [[0, 1], [2, 3, 4]]),
        (1, [[0], [0]]),
    ],
)
def test_two_slots_share_the_cores(num_cores, expected):
    assert share_cores(list(range(num_cores)), 2) == expected


def test_slots_that_are_more_than_the_cores_have_one_each():
    assert share_cores([3, 5], 3) == [[3], [5], [3]]


def test_a_run_keeps_to_the_cores_of_a_free_slot(make_run):
    code = "import os; print(sorted(os.sched_getaffinity(0)), flush=True)"
    runs = [make_run(0, f"{code}; {WAIT_QUIETLY}"), make_run(1, code), make_run(2, code)]
    of_first, of_others = share_cores(sorted(os.sched_getaffinity(0)), 2)
    runner = Runner(runs[:1], 2)
    runner.step()
    wait_for(lambda: last_words(runs[0].log) == str(of_first))
    for run in runs[1:]:
        runner.add(run)

    def is_last() -> bool:
        runner.step()
        return len(runner.newest_output()) == 1 and runner.has_room()

    wait_for(is_last)
    assert [last_words(run.log) for run in runs[1:]] == 2 * [str(of_others)]
    runner.stop(signal.SIGKILL)
    assert finish(runner) == [STOPPED, FINISHED, FINISHED]


def test_a_run_finds_the_modules_that_this_process_finds(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "my_update.py").write_text("NUMBER = 7")
    code = "; ".join(
        (
            "from apex_agents.presets import find_config, load_config_file",
            "load_config_file(find_config('a2c_cartpole'))",
            "import my_update",
            "print(my_update.NUMBER)",
        )
    )
    run = make_run(0, code)
    assert finish(Runner([run], 1)) == [FINISHED], run.log.read_text()
    assert last_words(run.log) == "7"


def test_a_failure_stops_no_other_run(make_run, tmp_path):
    runs = [make_run(seed, "") for seed in range(5)]
    runs[1] = make_run(1, "raise SystemExit(1)")
    runs[2] = runs[2]._replace(argv=("/nothing",))
    (tmp_path / "3").touch()  # It is in the way of a folder.
    assert finish(Runner(runs, 1)) == [FINISHED, FAILED, FAILED, FAILED, FINISHED]


def test_some_runs_at_once(make_run):
    runs = [make_run(seed, WAIT) for seed in range(3)]
    runner = start_waiting(runs, 2)
    assert runner.step() == []
    assert [line.rpartition(": ")[0] for line in runner.newest_output()] == [
        "catch, seed 0",
        "catch, seed 1",
    ]
    runner.stop(signal.SIGKILL)
    assert finish(runner) == [STOPPED, STOPPED, NOT_STARTED]
    assert not runs[2].log.exists()


def test_a_stopped_run_may_end_in_its_own_way(make_run):
    run = make_run(0, WAIT_FOR_CTRL_C)
    runner = start_waiting([run], 1)
    runner.stop(signal.SIGINT)
    assert finish(runner) == [STOPPED]
    assert runner.signals == [signal.SIGINT]


def test_a_run_that_is_added_and_interrupted(make_run):
    runner = Runner([], 1, num_planned=5)
    assert runner.is_done() and runner.has_room()
    pruned, other = make_run(0, WAIT_FOR_CTRL_C), make_run(1, "")
    runner.add(pruned)
    assert not runner.has_room()
    (line,) = runner.step()
    assert line.startswith("[1/5] ")
    runner.interrupt(other, PRUNED)  # It is not active.
    wait_for(lambda: last_words(pruned.log) == "waits")
    runner.interrupt(pruned, PRUNED)
    runner.add(other)
    assert finish(runner) == [PRUNED, FINISHED]


def test_every_signal_reaches_a_run_once(make_run):
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: print('told', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    )
    run = make_run(0, code + WAIT)
    runner = start_waiting([run], 1)
    runner.stop(signal.SIGINT)
    runner.step()
    wait_for(lambda: last_words(run.log) == "told")
    runner.step()
    assert not runner.is_done()
    runner.stop(signal.SIGTERM)
    assert finish(runner) == [STOPPED]
    assert run.log.read_text().split() == ["waits", "told"]


def test_a_run_that_another_process_stops_has_not_failed(make_run):
    assert finish(Runner([make_run(0, "raise SystemExit(143)")], 1)) == [STOPPED]
    assert finish(Runner([make_run(0, "import os; os.kill(os.getpid(), 15)")], 1)) == [STOPPED]
    assert finish(Runner([make_run(0, "import os; os.kill(os.getpid(), 9)")], 1)) == [FAILED]


def test_a_finished_run_is_not_started(make_run):
    run = make_run(0, "")._replace(is_finished=True)
    assert finish(Runner([run], 1)) == [FINISHED]
    assert not run.folder.exists()


def test_output_of_a_resumed_run_is_appended(make_run):
    run = make_run(0, "import sys; print('out'); print('err', file=sys.stderr)")
    for _ in range(2):
        finish(Runner([run], 1))
    assert sorted(run.log.read_text().split()) == ["err", "err", "out", "out"]


def stop_waiting(run: Run) -> None:
    """Start a run that prints 'waits', see that this is its newest output, and stop it."""
    runner = Runner([run], 1)
    runner.step()
    wait_for(lambda: runner.newest_output() == [f"{run.name}: waits"])
    runner.stop(signal.SIGTERM)
    finish(runner)


def test_what_an_earlier_command_has_printed_is_not_shown(make_run):
    run = make_run(0, WAIT)
    run.folder.mkdir()
    run.log.write_text("error: too small\n")
    stop_waiting(run)

    run = make_run(1, "raise SystemExit(1)")
    run.folder.mkdir()
    run.log.write_text("error: too small\n")
    lines = []
    runner = Runner([run], 1)
    wait_for(lambda: lines.extend(runner.step()) or runner.is_done())
    assert lines[-1].endswith("(exit code 1: (no output))")


def test_the_newest_output_of_a_run_that_continues_after_a_failure(make_run):
    stop_waiting(make_run(0, f"print('Node actor_0 failed.'); {WAIT}"))


def test_the_end_of_a_run_is_told_with_its_reason(make_run):
    run = make_run(0, "")
    run.folder.mkdir()
    (run.folder / "config.json").write_text("{}")
    (run.folder / "summary.json").write_text(json.dumps({"reason": "target reached"}))
    lines = []
    runner = Runner([run], 1)
    wait_for(lambda: lines.extend(runner.step()) or runner.is_done())
    assert len(lines) == 2
    assert "target reached" in lines[1]


def test_runs_end_with_a_parent_that_is_killed(make_run):
    run = make_run(0, WAIT)
    code = (
        "import pathlib, sys, time\n"
        "from apex_agents.studies.study import Run\n"
        "from apex_agents.studies.runner import Runner\n"
        f"run = Run('catch', (), 0, pathlib.Path({str(run.folder)!r}), {run.argv!r})\n"
        "Runner([run], 1).step()\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_for(lambda: last_words(run.log) == "waits")
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    child.wait(TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "(no output)"),
        ("", "(no output)"),
        ("starts\n[10 s] learns\n\n", "[10 s] learns"),
        ("starts\nerror: no such field\n", "error: no such field"),
        ("Node learner failed. learner.log ends with:\n  | Traceback\n", "Node learner failed."),
        ("x" * 100_000 + "\nlast\n", "last"),
    ],
)
def test_last_words(text, words, tmp_path):
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    assert last_words(log).startswith(words)


# A command that trains: it stops itself as one with nodes does.
STOPS_ITSELF = f"import os, signal; signal.signal(20, lambda *_: os.kill(os.getpid(), 19)); {WAIT}"
COMMAND = """
import pathlib, signal, sys, time
from apex_agents.studies.study import Run
from apex_agents.studies.runner import Runner
folder = pathlib.Path(sys.argv[1])
runs = [Run("catch", (), s, folder / str(s), (sys.executable, "-c", sys.argv[2])) for s in (0, 1)]
runner = Runner(runs, 2)
signal.signal(signal.SIGTSTP, lambda *_: runner.suspend())
while True:
    runner.step()
    time.sleep(0.01)
"""


def test_ctrl_z_stops_all_active_runs_and_continues_them(tmp_path):
    # In a session of its own, in which SIGTSTP does nothing by default.
    argv = [sys.executable, "-c", COMMAND, str(tmp_path), STOPS_ITSELF]
    with subprocess.Popen(argv, start_new_session=True) as command:
        logs = [tmp_path / str(seed) / "output.log" for seed in (0, 1)]
        wait_for(lambda: [last_words(log) for log in logs if log.exists()] == ["waits", "waits"])
        processes = [psutil.Process(command.pid), *psutil.Process(command.pid).children()]
        assert len(processes) == 3
        command.send_signal(signal.SIGTSTP)
        wait_for(lambda: all(p.status() == psutil.STATUS_STOPPED for p in processes))
        command.send_signal(signal.SIGCONT)
        wait_for(lambda: all(p.status() != psutil.STATUS_STOPPED for p in processes))
        command.kill()  # Its runs end with it.
    wait_for(lambda: not any(p.is_running() for p in processes[1:]))


TABLE = "| task | runs |\n| ---- | ---- |\n| pong | 1 finished |\n"
PIPED = """
import sys
from rich.console import Console
from apex_agents.studies.runner import Screen
screen = Screen(Console())
sys.stdin.read()  # Until the reader of the output has exited.
for _ in range(3):
    screen.print("a line")
    screen.show(["another"])
screen.print_table("| a |")
print("still alive", file=sys.stderr)
"""


def show_everything(is_terminal: bool, file: io.StringIO) -> None:
    screen = Screen(Console(file=file, force_terminal=is_terminal, width=60))
    screen.print("pong, seed 0 [1] starts")
    screen.show(["pong, seed 0: learns"])
    screen.print_table(TABLE)


def test_a_file_gets_the_lines_that_stay():
    file = io.StringIO()
    show_everything(False, file)
    assert file.getvalue().split("\n") == ["pong, seed 0 [1] starts", "", *TABLE.split("\n"), ""]


def test_a_terminal_gets_the_newest_output_and_a_drawn_table(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    show_everything(True, file)
    assert "pong, seed 0 [1] starts" in file.getvalue()
    assert "pong, seed 0: learns" in file.getvalue()
    assert "1 finished" in file.getvalue()
    assert "|" not in file.getvalue()
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")  # The cursor.


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_full_disk_ends_nothing(is_terminal, monkeypatch):
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TERM", "xterm-256color")
    show_everything(is_terminal, FullDisk())


def test_a_reader_that_has_exited_ends_nothing():
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PIPED]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read().startswith("still alive")
