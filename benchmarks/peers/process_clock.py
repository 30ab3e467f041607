"""The clock of a run of another library: what counts is the time since the process started."""

import os
import pathlib
import time

_FIELDS = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
_STARTED_AT = int(_FIELDS[19]) / os.sysconf("SC_CLK_TCK")  # Since the machine was booted.


def seconds_of_process() -> float:
    """Return the seconds since this process started, to a hundredth."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _STARTED_AT
