"""Runs commands one after the other, or a few at once, and ends them when told to."""

import collections
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

_CANNOT_START = 126  # As shells have it.
_PR_SET_PDEATHSIG = 1  # Of Linux.
_libc = ctypes.CDLL(None)

# Of the end of a log.
_MAX_TAIL_BYTES = 8192


class Job(NamedTuple):
    """A command.

    Attributes:
      name: for people.
      argv: the command line.
      log: file that its output is added to; its folder is made.
    """

    name: str
    argv: tuple[str, ...]
    log: pathlib.Path


class Event(NamedTuple):
    """A job that has started or ended.

    Attributes:
      job: which.
      exit_code: None if it has started; 128 + n if signal n has ended it, 126 if it could not be
        started.
      error: why it could not be started.
    """

    job: Job
    exit_code: int | None
    error: str = ""


class RunQueue:
    """Keeps some commands running until all have run, or until it is stopped."""

    def __init__(self, jobs: Sequence[Job], num_parallel: int):
        """Remember what to run, and how many at once; `step` starts them."""
        self._waiting = collections.deque(jobs)
        self._num_parallel = num_parallel
        self._running: list[tuple[Job, subprocess.Popen]] = []
        self._signals: collections.deque[int] = collections.deque()

    @property
    def running(self) -> list[Job]:
        """The jobs that run now, in the order in which they were started."""
        return [job for job, _ in self._running]

    def is_done(self) -> bool:
        """Return whether nothing runs and nothing waits."""
        return not (self._running or self._waiting)

    def stop(self, signum: int) -> None:
        """Have the next step start nothing more, and send a signal to what runs.

        Safe to call while a step is done, from a handler of signals.
        """
        self._signals.append(signum)

    def step(self) -> list[Event]:
        """Start what there is room for; return what has happened since the last step."""
        while self._signals:
            signum = self._signals.popleft()
            self._waiting.clear()
            for _, process in self._running:
                process.send_signal(signum)
        events = []
        for job, process in list(self._running):
            if process.poll() is not None:
                self._running.remove((job, process))
                code = process.returncode
                events.append(Event(job, code if code >= 0 else 128 - code))
        while self._waiting and len(self._running) < self._num_parallel:
            job = self._waiting.popleft()
            try:
                self._running.append((job, _start(job)))
            except OSError as error:
                events.append(Event(job, _CANNOT_START, str(error)))
                continue
            events.append(Event(job, None))
        return events


def _start(job: Job) -> subprocess.Popen:
    """Start a command in a session of its own: Ctrl-C reaches it through `stop` only, once."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        return subprocess.Popen(
            job.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _end_with_parent() -> None:
    """Have this process terminated when its parent dies, even if that is killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def last_words(log: pathlib.Path) -> str:
    """Return the line in which a command says why it failed, or else its last one."""
    text = ""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(-min(_MAX_TAIL_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith(("error: ", "Node "))]
    return (reasons or lines or ["(no output)"])[-1]
