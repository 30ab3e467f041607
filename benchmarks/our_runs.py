"""Runs of our own command, for as long as something about them is measured."""

import contextlib
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = ROOT / "launch" / "apex_dqn.py"
POLL_SECONDS = 0.02
LONGEST_SECONDS = 120.0

Found = TypeVar("Found")


@contextlib.contextmanager
def our_run(workdir: pathlib.Path, *flags: str) -> Iterator[subprocess.Popen]:
    """Train Ape-X DQN in processes of its own for as long as the context lasts."""
    command = [sys.executable, str(COMMAND), "--lp_launch_type=local_mp", f"--workdir={workdir}"]
    run = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL)
    try:
        yield run
    finally:
        run.terminate()
        run.wait()


def wait_for(look: Callable[[], Found], run: subprocess.Popen) -> Found:
    """Look again and again until there is something, and return it."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not (found := look()):
        if run.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the run ended, or did not begin")
        time.sleep(POLL_SECONDS)
    return found
