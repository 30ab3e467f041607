"""Starts processes by forking one that has imported TensorFlow already, which takes seconds each.

The server imports while its starter does the same on another core, and makes nothing that could not
be shared: no thread of ours, no session, no connection. What it forks becomes a child of the
starter, as if that had started it.
"""

import atexit
import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Protocol

import numpy as np

_MODULES = ("apex_agents.program", "apex_agents.dqn.builder", "apex_agents.dpg.builder")
_PR_SET_CHILD_SUBREAPER = 36
_MAX_MESSAGE_BYTES = 1 << 17
_FIRST_FREE_FD = 512

_server: "ForkServer | None" = None


class Process(Protocol):
    """What is needed of a process that was started; see `subprocess.Popen`."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def terminate(self) -> None: ...


def open_server() -> None:
    """Start the server for `start_process`, where the system has what it takes (Linux)."""
    global _server
    with contextlib.suppress(OSError, AttributeError):
        _server = ForkServer()
        atexit.register(close_server)


def close_server() -> None:
    """End the server, if there is one."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def start_process(
    argv: Sequence[str], env: Mapping[str, str], log: BinaryIO, fds: Sequence[int]
) -> Process:
    """Run a Python script in a process and a session of its own, forked if there is a server.

    Args:
      argv: command, the Python interpreter first.
      env: environment.
      log: gets all output.
      fds: descriptors that it has, too.
    """
    if _server is not None:
        with contextlib.suppress(OSError):  # The server is gone.
            return _server.start_process(argv, env, log, fds)
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=fds,
        start_new_session=True,  # Ctrl-C is for the supervisor, who stops them in order.
    )


class ForkServer:
    """The server, as its starter sees it."""

    def __init__(self) -> None:
        """Start it; it imports in the background.

        Raises:
          OSError: this system cannot.
        """
        _adopt_orphans(True)
        self._socket, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other_end.fileno())],
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # If it fails, so will the nodes, and say why.
                pass_fds=[other_end.fileno()],
                start_new_session=True,
            )

    def start_process(
        self, argv: Sequence[str], env: Mapping[str, str], log: BinaryIO, fds: Sequence[int]
    ) -> "ForkedProcess":
        """See the function of this name; raises an OSError if the server is gone."""
        request = json.dumps({"argv": list(argv), "env": dict(env), "fds": list(fds)}).encode()
        if len(request) > _MAX_MESSAGE_BYTES:
            raise OSError("the environment is too large for a message")
        socket.send_fds(self._socket, [request], [log.fileno(), *fds])
        answer = self._socket.recv(64)
        if not answer:
            raise OSError("the server is gone")
        return ForkedProcess(int(answer))

    def close(self) -> None:
        """End the server; what it forked stays."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        _adopt_orphans(False)


class ForkedProcess:
    """A process that was forked by the server and adopted by this process; see `Process`."""

    def __init__(self, pid: int):
        """Take a child of this process."""
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _adopt_orphans(whether: bool) -> None:
    """Let descendants become children of this process when their parents end, or not any more."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(whether), 0, 0, 0):
        raise OSError("this system does not let processes adopt others")


def _serve(connection: socket.socket) -> None:
    """Fork for every request, until the other end is closed."""
    connection.set_inheritable(False)
    for module in _MODULES:
        importlib.import_module(module)
    while True:
        message, fds, _, _ = socket.recv_fds(connection, _MAX_MESSAGE_BYTES, 64)
        if not message:
            return
        request = json.loads(message)
        reader, writer = os.pipe()
        parent = os.fork()
        if not parent:  # Leaves at once: its child is adopted by whoever started the server.
            child = os.fork()
            if child:
                os.write(writer, str(child).encode())
                os._exit(0)
            connection.close()
            os.close(reader)
            os.close(writer)
            _run(request, fds)
        os.waitpid(parent, 0)
        for descriptor in (writer, *fds):
            os.close(descriptor)
        connection.send(os.read(reader, 64))
        os.close(reader)


def _run(request: dict, fds: Sequence[int]) -> None:
    """Become what was asked for; does not return."""
    os.setsid()  # Ctrl-C is for the supervisor, who stops them in order.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_FREE_FD) for descriptor in fds]
    for descriptor in fds:
        os.close(descriptor)
    log, *others = moved
    for source, target in ((log, 1), (log, 2), *zip(others, request["fds"], strict=True)):
        os.dup2(source, target)
    for descriptor in moved:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"][1:]
    np.random.seed()  # noqa: NPY002  # All would have the server's state.
    exit_code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as leaving:
        exit_code = leaving.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        exit_code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(exit_code if isinstance(exit_code, int) else int(exit_code is not None))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _connection, contextlib.suppress(OSError):
        _serve(_connection)
