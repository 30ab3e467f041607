"""The memory through which a node tells its supervisor what it waits for, and how it fares.

A thread that waits cannot report anything, and no thread of its process can while code in C holds
Python's lock. So the name and the time of a wait are written down before it begins, which takes a
microsecond, and read from outside.
"""

import collections
import contextlib
import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from apex_agents.repeating import Repeating

# The messages of a node: it has begun its work; the program is to stop; it goes on without what it
# could not save or read.
WORKS, STOP, LACKS = b"w", b"s", b"l"
_MESSAGES = WORKS + STOP + LACKS

# Since when in the time of `time.monotonic`, 0 for no wait; `Wait`'s seconds; what is waited for.
_WAIT = struct.Struct("ddd232s")
_FAILURE = struct.Struct("768s")
_MESSAGES_AT = _WAIT.size + _FAILURE.size
_NUM_BYTES = _MESSAGES_AT + len(_MESSAGES)

_LONG_SECONDS = 60.0
_STEP_SECONDS = 10
_FACTOR = 6.0


class Wait(NamedTuple):
    """A wait that has not ended; `str` makes a predicate for the node's name of it."""

    what: str  # A noun phrase that follows "waits for".
    seconds: float  # How long it has lasted.
    notice_seconds: float = _LONG_SECONDS  # Time after which it is worth a line of the log.
    limit_seconds: float = math.inf  # Time after which its node is restarted.

    def __str__(self) -> str:
        return f"has waited for {self.seconds:.0f} s for {self.what}"

    def within(self, seconds: float) -> "Wait":
        """Return it as if it had begun so many seconds ago at the earliest."""
        return self._replace(seconds=min(self.seconds, seconds))

    def in_steps(self) -> tuple[str, int]:
        """Return what is waited for and how long, a multiple of ten seconds; `("", 0)` below."""
        seconds = int(self.seconds) // _STEP_SECONDS * _STEP_SECONDS
        return (self.what, seconds) if seconds else ("", 0)


class NodeMemory:
    """What a node waits for, that it works, that the program is to stop, and why it failed."""

    def __init__(self, descriptor: int = -1):
        """Map the memory of a descriptor; by default, some of this process alone."""
        self._memory = mmap.mmap(descriptor, _NUM_BYTES)

    @classmethod
    @contextlib.contextmanager
    def share(cls) -> Iterator[tuple["NodeMemory", int]]:
        """Make one, and yield it with a descriptor that a new process may inherit meanwhile."""
        descriptor = os.memfd_create("node")
        try:
            os.ftruncate(descriptor, _NUM_BYTES)
            yield cls(descriptor), descriptor
        finally:
            os.close(descriptor)

    def replace_wait(self, wait: bytes) -> bytes:
        """Write down a wait as `Waiting` packs it; return the one that was there."""
        before, self._memory[: _WAIT.size] = self._memory[: _WAIT.size], wait
        return before

    def wait(self) -> Wait | None:
        """Return what the node waits for, None if it does not wait."""
        since, notice_seconds, limit_seconds, what = _WAIT.unpack_from(self._memory)
        if not since:
            return None
        return Wait(_decode(what), time.monotonic() - since, notice_seconds, limit_seconds)

    def say(self, message: bytes) -> None:
        """Write down a message, `WORKS`, `STOP` or `LACKS`, which stays."""
        place = _MESSAGES_AT + _MESSAGES.index(message)
        self._memory[place : place + 1] = message

    def messages(self) -> bytes:
        """Return the messages so far."""
        return self._memory[_MESSAGES_AT:_NUM_BYTES].replace(b"\0", b"")

    def fail(self, error: BaseException) -> None:
        """Write down the error that ends the node: its type and the first line of its message."""
        _FAILURE.pack_into(self._memory, _WAIT.size, describe(error).encode(errors="replace"))

    def failure(self) -> str:
        """Return the error that has ended the node, '' if none has."""
        return _decode(*_FAILURE.unpack_from(self._memory, _WAIT.size))


class _OfThread(threading.local):
    memory = NodeMemory()  # Of threads that are no nodes; nobody reads it.


_of_thread = _OfThread()


class Waiting:
    """Names what the thread waits for in a `with` block; waits within it hide it meanwhile."""

    def __init__(
        self,
        what: str,
        notice_seconds: float = _LONG_SECONDS,
        limit_seconds: float = math.inf,
    ):
        """Prepare any number of waits, one after the other; `Wait` describes the arguments."""
        self._arguments = notice_seconds, limit_seconds, what.encode(errors="replace")

    def __enter__(self) -> None:
        self._memory = _of_thread.memory
        self._before = self._memory.replace_wait(_WAIT.pack(time.monotonic(), *self._arguments))

    def __exit__(self, *error: Any) -> None:
        self._memory.replace_wait(self._before)


class Notices:
    """Decides which waits of a node are worth a line: long ones, again when they last far longer.

    What a node waits for again and again is worth another line only when it takes six times as long
    as it did before.
    """

    def __init__(self) -> None:
        """Begin with no line."""
        self._told: dict[str, float] = {}  # The longest time that had a line, by what it was for.

    def is_due(self, wait: Wait) -> bool:
        """Return whether a line is due, and count it as written."""
        told = self._told.get(wait.what)
        if wait.seconds < (wait.notice_seconds if told is None else _FACTOR * told):
            return False
        self._told[wait.what] = wait.seconds
        return True


@contextlib.contextmanager
def reporting(
    memories: Mapping[str, NodeMemory],
    report: Callable[[str, Wait], None],
    period_seconds: float = 1.0,
) -> Iterator[None]:
    """Report the long waits of threads of this process, whose memories may be added meanwhile."""
    notices: dict[str, Notices] = collections.defaultdict(Notices)

    def look() -> None:
        for name, memory in list(memories.items()):
            wait = memory.wait()
            if wait is not None and notices[name].is_due(wait):
                report(name, wait)

    with contextlib.closing(Repeating("Reporting waits", look, period_seconds)):
        yield


@contextlib.contextmanager
def reporting_thread(
    name: str, report: Callable[[str, Wait], None], period_seconds: float = 1.0
) -> Iterator[None]:
    """Report the long waits of this thread, under a name, while it is in a `with` block."""
    before, memory = _of_thread.memory, NodeMemory()
    write_waits(memory)
    try:
        with reporting({name: memory}, report, period_seconds):
            yield
    finally:
        write_waits(before)


def write_waits(memory: NodeMemory) -> None:
    """Write what this thread waits for, and what it says, into a memory from now on."""
    _of_thread.memory = memory


def say(message: bytes) -> None:
    """Tell the supervisor of this thread's node, if there is one, a message."""
    _of_thread.memory.say(message)


def describe(error: BaseException) -> str:
    """Return the type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def _decode(text: bytes) -> str:
    return text.rstrip(b"\0").decode(errors="replace")
