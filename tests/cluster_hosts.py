"""Hosts for tests, made of namespaces of this machine: each has a network, processes and mounts.

Needs root and the tools `ip`, `mount`, `unshare` and `nsenter`. The hosts share files but for
`PRIVATE`. Their links lead to a switch in a namespace of its own, so that nothing of the machine's
network changes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD_PORT = 6379
_TEMPORARY = pathlib.Path(tempfile.gettempdir(), f"apex_hosts_{os.getpid()}")
# Where Ray has its files, on each host its own; paths of sockets may have 107 bytes.
_RAY = "/tmp/ray"
# Every host but the first has a folder of its own here.
PRIVATE = _TEMPORARY / "private"
# Generous, for busy machines: two cores are not much for three hosts.
_START_SECONDS = 480
_NUM_TRIES = 3
_PATIENT = {
    # Ray's 15 leaves a worker 3 % of a core that another program computes on.
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": str(_START_SECONDS),
    "RAY_agent_register_timeout_ms": str(1000 * _START_SECONDS),
}


def missing() -> str:
    """Says what this machine lacks, '' if nothing."""
    if os.geteuid():
        return "namespaces of networks need root"
    for tool in ("ip", "mount", "unshare", "nsenter"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    try:
        _Space().close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"namespaces are not allowed: {error}"
    return "" if pathlib.Path("/dev/net/tun").exists() else "there is no /dev/net/tun"


class _Space:
    """Namespaces of a network, processes and mounts; they end with their first process."""

    def __init__(self) -> None:
        self._outer = subprocess.Popen(
            ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
            # Its first process adopts all orphans, and has to wait for them.
            + ["sh", "-c", "echo ready; while :; do sleep 1000 & wait $!; done"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._outer.stdout is not None
        if self._outer.stdout.readline() != b"ready\n":
            raise OSError("unshare failed")
        (child,) = psutil.Process(self._outer.pid).children()
        self.pid = child.pid
        self.ip("link", "set", "lo", "up")

    def enter(self, *argv: str) -> list[str]:
        """Returns the command that runs another one in here."""
        return [
            "nsenter",
            f"--target={self.pid}",
            "--net",
            "--pid",
            "--mount",
            f"--wd={ROOT}",
            *argv,
        ]

    def ip(self, *arguments: str) -> None:
        self.run("ip", *arguments)

    def run(self, *argv: str) -> None:
        subprocess.run(self.enter(*argv), check=True, capture_output=True)

    def close(self) -> None:
        """Ends all processes in here at once, as a host does that loses its power."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._outer.wait()


class Host:
    """A host.

    Attributes:
      name: for people.
      ip: its address.
      folder: its own files.
    """

    def __init__(self, name: str, number: int, switch: _Space):
        self.name = name
        self.ip = f"10.77.0.{number}"
        self.folder = _TEMPORARY / name
        self.folder.mkdir()
        self.space = _Space()
        self.link = Link(switch, f"tap{number}", self.space)
        switch.ip("link", "set", f"tap{number}", "master", "switch")
        self.space.ip("address", "add", f"{self.ip}/24", "dev", "eth0")
        self.space.run("mkdir", "--parents", _RAY)
        self.space.run("mount", "--bind", str(self.folder), _RAY)
        if number > 1:
            self.space.run("mount", "-t", "tmpfs", "tmpfs", str(PRIVATE))

    def popen(self, *argv: str, **options) -> subprocess.Popen:
        """Starts a command here."""
        return subprocess.Popen(
            self.space.enter(*argv),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **options,
        )

    def start_ray(self, head: Host, *options: str) -> None:
        """Starts Ray, as its head if this is it, and waits until it is there."""
        place = ["--head", f"--port={HEAD_PORT}"]
        if head is not self:
            place = [f"--address={head.ip}:{HEAD_PORT}"]
        # Ray 2.60's raylet waits 15 s for an agent of its own and then aborts, after which
        # `ray start` never ends: they go before other programs on these cores, and have more
        # than one try.
        command = (
            *("nice", "-n", "-10", ray(), "start"),
            *place,
            f"--node-ip-address={self.ip}",
            f"--node-name={self.name}",
            f"--object-store-memory={200 << 20}",
            "--disable-usage-stats",
            *options,
        )
        log = self.folder / "start.log"
        for _ in range(_NUM_TRIES):
            with log.open("w") as output:
                process = self.popen(
                    *command,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **_PATIENT},
                )
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert process.wait(_START_SECONDS / _NUM_TRIES) == 0, log.read_text()
                return
            for started in self.processes():
                with contextlib.suppress(psutil.Error):
                    if any("ray" in part for part in started.cmdline()):
                        started.kill()
            process.wait()
        raise TimeoutError(log.read_text())

    @contextlib.contextmanager
    def changed_file(self, path: pathlib.Path, content: str) -> Iterator[None]:
        """Lets this host alone have another content of a file."""
        other = self.folder / path.name
        other.write_text(content)
        self.space.run("mount", "--bind", str(other), str(path))
        try:
            yield
        finally:
            self.space.run("umount", str(path))

    def processes(self) -> list[psutil.Process]:
        """Lists the living processes of this host, as seen from outside."""
        space = os.readlink(f"/proc/{self.space.pid}/ns/pid")
        alive = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                is_here = os.readlink(f"/proc/{process.pid}/ns/pid") == space
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def node(self, name: str) -> psutil.Process:
        """Finds the process of a node by its name."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    if process.name() == name[:15]:
                        return process
            time.sleep(0.2)
        raise AssertionError(f"no {name} on host {self.name}")

    def close(self) -> None:
        """Ends the host and all that is on it."""
        self.space.close()
        self.link.close()


class Link:
    """A cable between the switch and a host, which can be slow and lose packets."""

    def __init__(self, switch: _Space, tap: str, space: _Space):
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(switch.pid), tap, str(space.pid), "eth0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        switch.ip("link", "set", tap, "up")
        space.ip("link", "set", "eth0", "up")

    def degrade(self, delay_seconds: float, loss: float) -> None:
        """Delays packets, each way, and loses this share of them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{delay_seconds} {loss}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Hosts:
    """Hosts at a switch; Ray's head is to be on the first."""

    def __init__(self) -> None:
        shutil.rmtree(_TEMPORARY, ignore_errors=True)
        PRIVATE.mkdir(parents=True)
        self._switch = _Space()
        self._switch.ip("link", "add", "switch", "type", "bridge")
        self._switch.ip("link", "set", "switch", "up")
        self.by_name: dict[str, Host] = {}
        self._num_added = 0

    @property
    def head(self) -> Host:
        return next(iter(self.by_name.values()))

    def add(self, name: str) -> Host:
        self._num_added += 1
        host = self.by_name[name] = Host(name, self._num_added, self._switch)
        return host

    def free_name(self) -> str:
        """Returns the next letter."""
        return chr(ord("A") + self._num_added)

    def lose(self, name: str) -> None:
        """Takes the power from a host."""
        self.by_name.pop(name).close()

    def close(self) -> None:
        for host in self.by_name.values():
            host.close()
        self._switch.close()
        shutil.rmtree(_TEMPORARY, ignore_errors=True)


def ray() -> str:
    """Returns where Ray's command is."""
    return str(pathlib.Path(sys.executable).with_name("ray"))


def _carry(switch_pid: str, switch_name: str, host_pid: str, host_name: str) -> None:
    """Carries packets between two network namespaces; lines of input say how well."""
    import fcntl
    import heapq
    import random
    import select
    import struct

    set_interface, tap_without_header = 0x400454CA, 0x1002
    ends = []
    for pid, name in ((switch_pid, switch_name), (host_pid, host_name)):
        with open(f"/proc/{pid}/ns/net") as space:
            setns(space.fileno())
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, set_interface, struct.pack("16sH", name.encode(), tap_without_header))
        ends.append(end)
    with contextlib.suppress(PermissionError):
        os.nice(-10)  # A cable does not wait for a core.
    print("ready", flush=True)
    other = dict(zip(ends, reversed(ends), strict=True))
    delay, loss, packets = 0.0, 0.0, 0
    on_its_way: list[tuple[float, int, int, bytes]] = []
    while True:
        wait = max(on_its_way[0][0] - time.monotonic(), 0.0) if on_its_way else None
        readable, _, _ = select.select([0, *ends], [], [], wait)
        if 0 in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay, loss = map(float, line.split())
        for end in ends:
            with contextlib.suppress(BlockingIOError, OSError):
                while end in readable:
                    packet = os.read(end, 1 << 16)
                    packets += 1
                    if random.random() >= loss:
                        due = time.monotonic() + delay
                        heapq.heappush(on_its_way, (due, packets, other[end], packet))
        while on_its_way and on_its_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(on_its_way)
            with contextlib.suppress(OSError):  # An end that is down.
                os.write(end, packet)


def setns(descriptor: int) -> None:
    """Moves this process to a namespace; `os.setns` came with Python 3.12."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    _carry(*sys.argv[1:])
