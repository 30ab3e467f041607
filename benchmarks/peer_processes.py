"""Processes in the environment of the libraries that benchmarks compare with: `.venv-peers`."""

import contextlib
import subprocess
from collections.abc import Iterator

from our_runs import ROOT

ENVIRONMENT = ROOT / ".venv-peers"


def peer_command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script of `benchmarks/peers`."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise SystemExit("The other libraries are missing: make .venv-peers/.installed")
    return [str(python), str(ROOT / "benchmarks" / "peers" / script), *arguments]


class PeerProcess:
    """A process that answers every word with a number."""

    def __init__(self, process: subprocess.Popen):
        """Talk to a process through its pipes."""
        self._process = process

    def ask(self, request: str) -> float:
        """Wait for the answer to one request."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextlib.contextmanager
def peer_process(script: str, *arguments: str) -> Iterator[PeerProcess]:
    """Run a script that answers requests for as long as the context lasts."""
    command = peer_command(script, *arguments)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield PeerProcess(process)  # It ends when its standard input does.
