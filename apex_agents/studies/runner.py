"""Trains the runs of a study, a few at once, and stops them in order when told to.

Runs at once share the cores out, so that their learners do not compete for the same ones.
"""

import contextlib
import ctypes
import functools
import itertools
import math
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from apex_agents.exit_codes import EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_TERMINATED
from apex_agents.studies.study import Run
from apex_agents.user_code import path_to_inherit

FINISHED, FAILED, STOPPED, NOT_STARTED = "finished", "failed", "stopped", "not started"
PRUNED = "pruned"
_REASONS = {STOPPED: "it can be resumed", PRUNED: "worse than other runs"}

_PERIOD_SECONDS = 0.2
_MAX_TAIL_BYTES = 8192
_PR_SET_PDEATHSIG = 1  # From <linux/prctl.h>.
_libc = ctypes.CDLL(None)
# What Rich raises when the reader of a pipe has exited or a disk is full; the study continues.
_OUTPUT_ERRORS = (OSError, SystemExit)


class _Process(NamedTuple):
    """An active run."""

    popen: subprocess.Popen
    started_at: float
    slot: int
    log_start: int  # Bytes of its log that earlier commands have written.


class Runner:
    """The runs of a study while they are trained.

    Attributes:
      endings: how each run has ended so far, NOT_STARTED if it has not.
      signals: the signals that `stop` was called with.
    """

    def __init__(self, runs: Sequence[Run], num_parallel: int, num_planned: int = 0):
        """Queue the runs that are not finished, for `step` to start.

        Args:
          runs: runs of which some may be finished.
          num_parallel: number of runs that are active at once, each on its share of the cores.
          num_planned: number of runs with those that will be added, if it is known.
        """
        self.endings = {run: FINISHED if run.is_finished else NOT_STARTED for run in runs}
        self.signals: list[int] = []
        self._num_parallel = num_parallel
        self._num_planned = num_planned
        self._interrupted: dict[Run, str] = {}  # Interrupted runs and their endings.
        self._running: dict[Run, _Process] = {}
        self._num_sent = 0
        self._is_closed = False

    def add(self, run: Run) -> None:
        """Queue another run."""
        self.endings[run] = NOT_STARTED

    def has_room(self) -> bool:
        """Return whether another run would be started by the next step."""
        is_open = not (self._is_closed or self.signals)
        return is_open and len(self._running) + len(self._waiting()) < self._num_parallel

    def interrupt(self, run: Run, ending: str) -> None:
        """Stop an active run as Ctrl-C does; it becomes STOPPED or PRUNED unless it finishes."""
        if run in self._running and run not in self._interrupted:
            self._interrupted[run] = ending
            self._running[run].popen.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Stop the active runs as Ctrl-C does, and start no other."""
        self._is_closed = True
        for run in self._running:
            self.interrupt(run, STOPPED)

    def is_done(self) -> bool:
        """Return whether no run is active and none will be started."""
        return not (self._running or self._waiting())

    def stop(self, signum: int) -> None:
        """Have the next step signal the active runs and start no other; for signal handlers."""
        self.signals.append(signum)

    def suspend(self) -> None:
        """Stop the active runs, which stop their nodes, and this process until it is continued."""
        self._signal_all(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._signal_all(signal.SIGCONT)

    def step(self) -> list[str]:
        """Start as many runs as may be active; return a line for each that has started or ended."""
        for signum in self.signals[self._num_sent :]:
            self._num_sent += 1
            self._signal_all(signum)
        exited = [run for run, one in self._running.items() if one.popen.poll() is not None]
        lines = [self._end(run) for run in exited]
        for run in self._waiting():
            if len(self._running) < self._num_parallel:
                lines.append(self._start(run))
        return lines

    def newest_output(self) -> list[str]:
        """Return a line for each active run: its name and its last line of output."""
        return [
            f"{run.name}: {_read_tail(run.log, process.log_start)[-1]}"
            for run, process in self._running.items()
        ]

    def _waiting(self) -> list[Run]:
        """Return the runs that are to be started."""
        if self._is_closed or self.signals:
            return []
        unstarted = (run for run, ending in self.endings.items() if ending == NOT_STARTED)
        return [run for run in unstarted if run not in self._running]

    def _signal_all(self, signum: int) -> None:
        for process in list(self._running.values()):
            process.popen.send_signal(signum)

    def _start(self, run: Run) -> str:
        """Start a run in a separate session, so that Ctrl-C reaches it through `stop` only."""
        taken = {process.slot for process in self._running.values()}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        cores = share_cores(sorted(os.sched_getaffinity(0)), self._num_parallel)[slot]
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            with run.log.open("ab") as log:
                log_start = log.tell()
                popen = subprocess.Popen(
                    run.argv,
                    env={**os.environ, **path_to_inherit()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=functools.partial(_prepare, cores),
                )
        except OSError as error:
            self.endings[run] = FAILED
            return f"{self._label(run)} failed: {error}"
        self._running[run] = _Process(popen, time.monotonic(), slot, log_start)
        return f"{self._label(run)} starts; its output goes to {run.log}"

    def _end(self, run: Run) -> str:
        popen, started_at, _, log_start = self._running.pop(run)
        exit_code = popen.returncode if popen.returncode >= 0 else 128 - popen.returncode
        if exit_code == EXIT_SUCCESS:
            ending, reason = FINISHED, run.summary().get("reason", "it does not say why")
        elif run in self._interrupted:
            ending = self._interrupted[run]
            reason = _REASONS[ending]
        elif self.signals or exit_code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
            ending, reason = STOPPED, _REASONS[STOPPED]
        else:
            ending, reason = FAILED, f"exit code {exit_code}: {last_words(run.log, log_start)}"
        self.endings[run] = ending
        return f"{self._label(run)} {ending} after {time.monotonic() - started_at:.0f} s ({reason})"

    def _label(self, run: Run) -> str:
        number, total = list(self.endings).index(run) + 1, max(len(self.endings), self._num_planned)
        return f"[{number}/{total}] {run.name}"


def train(
    runner: Runner,
    screen: "Screen",
    max_seconds: float = math.inf,
    before_step: Callable[[], bool] = lambda: False,
) -> None:
    """Train until all runs have ended; Ctrl-C and SIGTERM end them, Ctrl-Z stops them until `fg`.

    Args:
      runner: the runs.
      screen: where their progress is shown.
      max_seconds: seconds after which the active runs are stopped.
      before_step: called several times a second; may add runs and interrupt some. Returns whether
        it has more to do, although no run is active.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: runner.stop(signum))
    signal.signal(signal.SIGTSTP, lambda signum, frame: runner.suspend())
    ends_at = time.monotonic() + max_seconds
    is_told = False
    while True:
        if time.monotonic() >= ends_at:
            runner.close()
        has_more = before_step()
        if runner.is_done() and not (has_more and not runner.signals):
            return
        for line in runner.step():
            screen.print(line)
        if runner.signals and not is_told:
            screen.print("Stopping; press Ctrl-C again to end everything at once.")
            is_told = True
        screen.show(runner.newest_output())
        time.sleep(_PERIOD_SECONDS)


class Screen:
    """Lines that stay, and below them the newest output of each active run.

    Where the output is no terminal there are only the lines that stay.
    """

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def print(self, text: str | Markdown) -> None:
        """Print a line or a table that stays."""
        with contextlib.suppress(*_OUTPUT_ERRORS):
            is_line = isinstance(text, str)
            self._console.print(text, markup=False, highlight=False, soft_wrap=is_line)

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines below those that stay."""
        texts = [Text(line, style="cyan", no_wrap=True, overflow="ellipsis") for line in lines]
        with contextlib.suppress(*_OUTPUT_ERRORS):
            self._live.start()
            self._live.update(Group(*texts), refresh=True)

    def print_table(self, markdown: str) -> None:
        """Print a table in place of the lines of `show`."""
        with contextlib.suppress(*_OUTPUT_ERRORS):
            self._live.stop()
        self.print(Markdown(markdown) if self._console.is_terminal else f"\n{markdown}")


def share_cores(cores: Sequence[int], num_slots: int) -> list[Sequence[int]]:
    """Return the cores of each slot, as many as of the others where that is possible.

    With more slots than cores each slot has one core, which others have, too.
    """
    if num_slots > len(cores):
        return [[cores[slot % len(cores)]] for slot in range(num_slots)]
    ends = [len(cores) * slot // num_slots for slot in range(num_slots + 1)]
    return [cores[first:end] for first, end in itertools.pairwise(ends)]


def _prepare(cores: Sequence[int]) -> None:
    """Keep this process to its cores, and have it end with its parent, even by SIGKILL."""
    os.sched_setaffinity(0, cores)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_words(log: pathlib.Path, start: int = 0) -> str:
    """Return the line of a log that says why its command failed, or else its last line.

    Args:
      log: path of the log.
      start: number of bytes at its beginning that are another command's.
    """
    lines = _read_tail(log, start)
    reasons = [line for line in lines if line.startswith(("error: ", "Node "))]
    return (reasons or lines)[-1]


def _read_tail(log: pathlib.Path, start: int) -> list[str]:
    """Return the last lines of a log after its first bytes; '(no output)' without any."""
    text = ""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - _MAX_TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()] or ["(no output)"]
