"""A network namespace for one command, so that no other process reaches its replay server.

Reverb's server listens on all interfaces and answers every client. Inside a Linux network namespace
there is one interface, a loopback that only the processes of the run share. Ordinary users get it
together with a user namespace, in which they are root; files still belong to the user.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

from apex_agents.nodes.fork_server import close_server

_UNSHARE = ("unshare", "--map-root-user", "--net", "--")
_NAMESPACE = "/proc/self/ns/net"
# Environment variable that tells the command, when it is executed again, which namespace it left.
_LEFT_NAMESPACE = "APEX_AGENTS_LEFT_NAMESPACE"

# From <linux/sockios.h> and <linux/if.h>; struct ifreq is a name and a union of 24 bytes.
_SIOCSIFFLAGS = 0x8914
_LOOPBACK_UP = struct.pack("16sH22x", b"lo", 0x1)


def isolate() -> None:
    """Move this command into a new network namespace.

    Outside of one, this function does not return: it executes the command again inside, under the
    same process id, so that signals, terminal and exit code stay the command's. Call this first.

    Raises:
      ValueError: the system does not allow it; the message says why.
    """
    left = os.environ.pop(_LEFT_NAMESPACE, None)
    if left is None:
        _check_permission()
        os.environ[_LEFT_NAMESPACE] = os.readlink(_NAMESPACE)
        sys.stdout.flush()
        sys.stderr.flush()
        close_server()  # It would lose its parent.
        os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *sys.orig_argv[1:]])
    if left == os.readlink(_NAMESPACE):
        raise _refusal("unshare made no network namespace")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFFLAGS, _LOOPBACK_UP)
    except OSError as error:
        raise _refusal(f"loopback cannot be brought up: {error.strerror}") from error


def _check_permission() -> None:
    """Try whether the system allows namespaces, in a process that ends at once."""
    if shutil.which(_UNSHARE[0]) is None:
        raise ValueError(
            "--isolate: there is no command unshare on the PATH (util-linux has it, Linux only); "
            "install it, or leave the flag out on a network that you trust."
        )
    attempt = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    if attempt.returncode != 0:
        exit_code = f"unshare: exit code {attempt.returncode}"
        raise _refusal((attempt.stderr.strip().splitlines() or [exit_code])[-1])


def _refusal(reason: str) -> ValueError:
    return ValueError(
        f"--isolate: this system gives you no network namespace ({reason}); allow unprivileged "
        "user namespaces (sysctl user.max_user_namespaces, AppArmor, a container's seccomp "
        "profile), or leave the flag out on a network that you trust."
    )
