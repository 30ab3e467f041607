"""The wait for replay servers that do not answer, with its probable cause."""

import functools
import os
from collections.abc import Callable, Sequence

import psutil
import reverb

from apex_agents.replay.tables import if_reachable
from apex_agents.waits import Waiting

_ASK_SECONDS = 1
_NOTICE_SECONDS = 10.0
_NUM_NAMED = 3  # Servers.
_PROXY = "grpc_proxy"  # The environment variable that gRPC reads first.


def await_answer(clients: Sequence[reverb.Client], should_stop: Callable[[], bool]) -> bool:
    """Wait until one of some servers answers; return whether it does before told to stop."""
    addresses = [client.server_address for client in clients]
    others = " or others" if len(addresses) > _NUM_NAMED else ""
    named = " or ".join(addresses[:_NUM_NAMED]) + others
    what = f"an answer of the replay at {named}{_find_cause(addresses)}"
    with Waiting(what, _NOTICE_SECONDS):
        while not should_stop():
            for client in clients:
                if if_reachable(functools.partial(client.server_info, _ASK_SECONDS)) is not None:
                    return True
    return False


def _find_cause(addresses: Sequence[str]) -> str:
    """Return why servers may not be reached, in brackets, or ''."""
    is_local = all(address.startswith("localhost:") for address in addresses)
    loopback = psutil.net_if_stats().get("lo")
    if is_local and loopback is not None and not loopback.isup:
        return " (the loopback interface `lo` is down)"
    proxy = os.environ.get(_PROXY)
    if proxy and not is_local:
        return f" (connections go through {_PROXY}={proxy.rpartition('@')[2]})"
    return ""
