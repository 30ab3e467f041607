"""A server that forks Python processes which have imported the slow modules already.

TensorFlow alone takes seconds to import. The server imports it while the command that opened
it does the same on another core, and starts no threads or connections, which a fork cannot share.
What it forks becomes a child of the command, as after `subprocess.Popen`. The fork server of
`multiprocessing` puts the current folder first on its path, has its processes import the command's
main module again, and takes them for dead when it ends itself.
"""

import atexit
import contextlib
import ctypes
import fcntl
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import numpy as np
import psutil

_PR_SET_CHILD_SUBREAPER = 36
_MAX_REQUEST_BYTES = 1 << 20
_END_SECONDS = 10.0  # Time for the server to exit after it has closed its connection.
# Runs the script that the next argument names as Python does, but with neither the current folder
# nor that of the script on the path: a `random.py` there would take the place of Python's.
_RUN_SCRIPT = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); del sys.argv[0]; "
    "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')",
)

_server: "ForkServer | None" = None


def open_server(modules: Sequence[str] = ()) -> "ForkServer | None":
    """Open the server that `start_process` uses; None where the system has none to give.

    Args:
      modules: names of the modules that it imports, in the background.
    """
    global _server
    close_server()
    with contextlib.suppress(OSError):
        _server = ForkServer(modules)
        atexit.register(close_server)
    return _server


def has_server() -> bool:
    """Return whether there is a server that `start_process` uses."""
    return _server is not None


def close_server() -> None:
    """Close the server, if there is one."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def script_argv(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a Python script, for which no folder is put on the path."""
    return [*_RUN_SCRIPT, script, *arguments]


def start_process(
    argv: Sequence[str], env: Mapping[str, str], log: BinaryIO, fds: Sequence[int]
) -> "ChildProcess":
    """Run a Python script in a new process and session, forked if there is a server.

    Args:
      argv: command of the script, see `script_argv`.
      env: all environment variables.
      log: file that receives all output.
      fds: descriptors that the process inherits under the same numbers.

    Raises:
      OSError: the process cannot be started.
    """
    if _server is not None:
        try:
            return _server.start_process(argv, env, log, fds)
        except ConnectionError:
            logging.warning(
                "The process from which nodes are forked %s. They are started without it, and "
                "import TensorFlow themselves, which takes longer.",
                _server.describe_end(),
            )
            close_server()
        except (OSError, psutil.NoSuchProcess):
            pass  # The request is too large, or the process has ended and SIGCHLD is ignored.
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=fds,
        start_new_session=True,  # Ctrl-C reaches the command alone, which stops nodes in order.
    )


class ForkServer:
    """The server as the command sees it; `pid` is its process id."""

    def __init__(self, modules: Sequence[str]) -> None:
        # Orphans among the descendants of this process become its children.
        if not prctl(_PR_SET_CHILD_SUBREAPER, 1):
            raise OSError("this system does not let processes adopt others")
        self._socket, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = os.fdopen(os.memfd_create("errors"), "w+b")
        with other_end:
            self._process = subprocess.Popen(
                script_argv(__file__, str(other_end.fileno()), *modules),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[other_end.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid

    def start_process(
        self, argv: Sequence[str], env: Mapping[str, str], log: BinaryIO, fds: Sequence[int]
    ) -> "ForkedProcess":
        """Fork a process.

        Raises:
          ConnectionError: the server has ended.
          OSError: the request is too large.
          NoSuchProcess: the process has ended, and the command ignores the end of its children.
        """
        request = json.dumps({"argv": list(argv), "env": dict(env), "fds": list(fds)}).encode()
        socket.send_fds(self._socket, [request], [log.fileno(), *fds])
        answer = self._socket.recv(64)
        if not answer:
            raise ConnectionResetError("the fork server has ended")
        return ForkedProcess(int(answer))

    def describe_end(self) -> str:
        """Return a predicate that says how the server has ended, with its last line of errors."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        error = lines[-1] if lines else "without a message"
        return f"has ended with exit code {self._process.returncode} ({error})"

    def close(self) -> None:
        """End the server; the processes that it forked continue."""
        self._socket.close()
        self._errors.close()
        self._process.kill()
        self._process.wait()
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


class ForkedProcess(psutil.Process):
    """A process that the server forked and this process adopted, with the methods of `Popen`."""

    def poll(self) -> int | None:
        with contextlib.suppress(psutil.TimeoutExpired):
            return self.wait(timeout=0) or 0  # None: the program has waited for it.
        return None

    def send_signal(self, sig: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            super().send_signal(sig)


ChildProcess = subprocess.Popen | ForkedProcess


def prctl(option: int, value: int | bytes) -> bool:
    """Set an attribute of this process, and return whether the system does so.

    <linux/prctl.h> has the options.
    """
    return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0


def _serve(connection: socket.socket) -> bool:
    """Answer every request with the id of a new process.

    Returns:
      True in such a process, which has become the requested one but for its script; False once the
      other end is closed.
    """
    while True:
        message, fds, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 64)
        if not message:
            return False
        reader, writer = os.pipe()
        parent = os.fork()
        if not parent:  # It exits at once, so that the command adopts its child.
            if os.fork():
                os._exit(0)
            os.setsid()  # Ctrl-C reaches the command alone, which stops nodes in order.
            os.write(writer, str(os.getpid()).encode())
            os.close(reader)
            os.close(writer)
            connection.close()
            _become(json.loads(message), fds)
            return True
        os.waitpid(parent, 0)
        for descriptor in (writer, *fds):
            os.close(descriptor)
        connection.send(os.read(reader, 64))
        os.close(reader)


def _become(request: dict, fds: Sequence[int]) -> None:
    """Take over the descriptors, the environment and the arguments of a request."""
    # Descriptors move out of the way first: one may have the number that another is to get.
    first_free = max([2, *request["fds"], *fds]) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, first_free) for descriptor in fds]
    for source, target in zip([moved[0], *moved], [1, 2, *request["fds"]], strict=True):
        os.dup2(source, target)
    for descriptor in {*fds, *moved}.difference(request["fds"]):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"][len(_RUN_SCRIPT) :]
    np.random.seed()  # noqa: NPY002  # Otherwise all processes would draw the same numbers.


if __name__ == "__main__":
    _descriptor, *_modules = sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # A command that ignores it hands that on.
    for _module in _modules:
        importlib.import_module(_module)
    _is_requested = False
    with socket.socket(fileno=int(_descriptor)) as _connection, contextlib.suppress(OSError):
        _is_requested = _serve(_connection)
    if _is_requested:
        runpy.run_path(sys.argv[0], run_name="__main__")
