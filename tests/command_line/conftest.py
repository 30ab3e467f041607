"""Command lines that are run within milliseconds."""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

SERVER = pathlib.Path(__file__).with_name("command_line_server.py")

# `(flags, folder, script="apex_dqn.py")` gives exit code, standard output and standard error.
RunCommandLine = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def run_command_line() -> Iterator[RunCommandLine]:
    """Run a command in a folder, up to where training would begin; it leaves with code 0 there."""
    with subprocess.Popen(
        [sys.executable, str(SERVER)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run(
            flags: Sequence[str], folder: pathlib.Path, script: str = "apex_dqn.py"
        ) -> tuple[int, str, str]:
            request = {"script": script, "flags": flags, "folder": str(folder)}
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            exit_code, stdout, stderr = json.loads(server.stdout.readline())
            return exit_code, stdout, stderr

        yield run
        server.stdin.close()
