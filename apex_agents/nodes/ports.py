"""Ports for servers that share theirs, as Reverb's do."""

import socket


def reserve_port() -> socket.socket:
    """Take a free port that stays ours, also while its server is started again.

    A Reverb server shares its port with whoever shares it too, as this socket does without ever
    accepting a connection; others, who look for a port that nobody has, find it taken.

    Returns:
      The reservation, which ends when it is closed; `getsockname()[1]` is the port.
    """
    dual = socket.has_dualstack_ipv6()
    reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if dual:
        reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    reservation.bind(("", 0))
    return reservation
