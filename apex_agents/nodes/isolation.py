"""A network namespace of the command's own, so that nobody outside reaches the replay server.

Reverb's server listens on all interfaces and answers whoever asks. Inside a Linux network namespace
"all interfaces" is one loopback, which only the processes of the run share. The kernel gives it to
ordinary users together with a user namespace, in which they count as root; files still get their
own name, and processes are seen from outside as ever.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys

_UNSHARE = ("unshare", "--map-root-user", "--net", "--")
_NAMESPACE = "/proc/self/ns/net"
# Environment variable that tells the command, when it begins anew, which namespace it has left.
_LEFT_NAMESPACE = "APEX_AGENTS_LEFT_NAMESPACE"

# From <linux/sockios.h> and <linux/if.h>; struct ifreq is a name and a union of 24 bytes.
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1
_IFREQ = "16sH22x"


def isolate() -> None:
    """Go on in a network namespace of this command's own; returns only in there.

    Outside, the command is executed anew within one, under its process id: signals, terminal and
    exit code stay the command's, and what it did before is done again. So this comes first.

    Raises:
      ValueError: the system does not allow it; says why.
    """
    left = os.environ.pop(_LEFT_NAMESPACE, None)
    if left is None:
        _check_permission()
        os.environ[_LEFT_NAMESPACE] = os.readlink(_NAMESPACE)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *sys.orig_argv[1:]])
    if left == os.readlink(_NAMESPACE):
        raise _refusal("unshare made no network namespace")
    try:
        _bring_loopback_up()
    except OSError as error:
        raise _refusal(f"loopback cannot be brought up: {error.strerror}") from error


def _check_permission() -> None:
    """Find out, in a process that ends at once, whether namespaces can be had."""
    if shutil.which(_UNSHARE[0]) is None:
        raise ValueError(
            "--isolate: there is no command unshare on the PATH (util-linux has it, Linux only); "
            "install it, or leave the flag out on a network where you trust everybody."
        )
    attempt = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    if attempt.returncode != 0:
        said = attempt.stderr.strip().splitlines() or [f"unshare: exit code {attempt.returncode}"]
        raise _refusal(said[-1])


def _refusal(reason: str) -> ValueError:
    return ValueError(
        f"--isolate: this system gives you no network namespace ({reason}); have unprivileged user "
        "namespaces allowed (sysctl user.max_user_namespaces, AppArmor, a container's seccomp "
        "profile), or leave the flag out on a network where you trust everybody."
    )


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack(_IFREQ, b"lo", 0))
        name, interface_flags = struct.unpack(_IFREQ, request)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_IFREQ, name, interface_flags | _IFF_UP))
