"""Trainings with our own command, for as long as something about them is measured."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS = 120.0

Found = TypeVar("Found")


@contextlib.contextmanager
def our_run(
    workdir: pathlib.Path, *flags: str, agent: str = "apex_dqn"
) -> Iterator[subprocess.Popen]:
    """Train in processes of its own for as long as the context lasts; Ctrl-C ends it.

    Args:
      workdir: work directory of the run.
      *flags: further flags of the command.
      agent: name of the script in `launch/`.
    """
    script = str(ROOT / "launch" / f"{agent}.py")
    command = [sys.executable, script, "--lp_launch_type=local_mp", f"--workdir={workdir}", *flags]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield run
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()


def wait_for(
    look: Callable[[], Found], run: subprocess.Popen, seconds: float = START_SECONDS
) -> Found:
    """Call a function until it returns something true, and return that.

    Raises:
      TimeoutError: it takes longer than `seconds`, or the run has ended.
    """
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if run.poll() is not None:
            raise TimeoutError(f"the run ended with exit code {run.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was found within {seconds:.0f} s")
        time.sleep(0.02)
    return found
