"""The time that has passed since the start of a run, measured once for all of its processes."""

import os
import time
from collections.abc import Callable

# Environment variable of a node's process: start of the run by the clock of the node's machine.
STARTED_AT = "APEX_AGENTS_STARTED_AT"


class Stopwatch:
    """Measures seconds by a clock that is never set, and continues where it is unpickled.

    The wall clock is set by hand, by NTP and by the host of a virtual machine. This one, Python's
    `time.monotonic`, is the same for all processes of a machine; on Linux it stops while the
    machine sleeps, when nothing is learned either. Each host of a cluster has one of its own, so
    that a pickled stopwatch holds the seconds that it has measured.

    Attributes:
      started_at: time of the start by this machine's clock.
    """

    def __init__(
        self, started_at: float | None = None, clock: Callable[[], float] = time.monotonic
    ):
        """Start at a time of the clock, by default now."""
        self._clock = clock
        self.started_at = clock() if started_at is None else started_at

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return self._clock() - self.started_at

    def __reduce__(self) -> tuple:
        return _resume, (self.seconds(),)


def _resume(seconds: float) -> Stopwatch:
    """Continue after so many seconds, in a process of a node at the time that has passed since."""
    started_at = os.environ.get(STARTED_AT)
    return Stopwatch(time.monotonic() - seconds if started_at is None else float(started_at))
