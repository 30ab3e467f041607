"""Processes in the environments of the libraries that benchmarks compare with.

That of sample-factory is `.venv-appo`, that of all others `.venv-peers`.
"""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from our_runs import ROOT

PEER_PYTHON, APPO_PYTHON = (
    ROOT / environment / "bin" / "python" for environment in (".venv-peers", ".venv-appo")
)


def peer_command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script of `benchmarks/peers`."""
    python = APPO_PYTHON if script == "appo.py" else PEER_PYTHON
    if not python.exists():
        environment = python.parents[1].name
        raise SystemExit(f"The other libraries are missing: make {environment}/.installed")
    return [str(python), str(ROOT / "benchmarks" / "peers" / script), *arguments]


def run_peer(command: Sequence[str], timeout: float | None = None) -> list[dict[str, Any]]:
    """Run a command and return the lines of JSON that it prints.

    Raises:
      TimeoutExpired: it took longer than so many seconds.
      CalledProcessError: it failed.
    """
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=timeout, check=True)
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


@contextlib.contextmanager
def peer_process(script: str, *arguments: str) -> Iterator[Callable[[str], float]]:
    """Run a script that answers every word with a number, for as long as the context lasts.

    Yields:
      A function that sends a word and returns the answer.
    """
    pipe = subprocess.PIPE
    command = peer_command(script, *arguments)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(request: str) -> float:
            stdin.write(f"{request}\n")
            return float(stdout.readline())

        yield ask  # The process ends when its standard input is closed.
