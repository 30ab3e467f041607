"""Connection to a Ray cluster, and room on its hosts for the nodes of a program."""

import collections
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Ray would print twenty lines over the live view for every host that is lost.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from apex_agents.cluster.host_agent import HostAgent, HostInfo

_CONNECT_SECONDS = 10.0
_MAX_REASON = 500  # Characters.
_REPORT_SECONDS = 10.0
_OPEN_SECONDS = 120.0  # A worker of Ray takes seconds to start, dozens on one host take more.
# Resources that Ray adds to those that hosts declare.
_INTERNAL = re.compile(r"node:|(object_store_)?memory$|bundle_|.*_group_")
# A bundle of a placement group cannot be empty.
_NEXT_TO_NOTHING = {"CPU": 0.001}


def connect(address: str) -> None:
    """Connect this process to a cluster.

    Args:
      address: 'HOST:PORT' of its head, or 'auto' for the cluster that this machine belongs to.

    Raises:
      ValueError: there is no cluster, or it has a different version of Ray or Python.
    """
    if ray.is_initialized():  # The program that trains, or an earlier run of it, did this.
        connected = ray.get_runtime_context().gcs_address
        if address not in ("auto", connected):
            raise ValueError(
                f"--ray_address={address} cannot be used: this program is connected with the "
                f"cluster {connected}; call ray.shutdown() before."
            )
        return
    if address != "auto":
        _check_address(address)
    sigterm = signal.getsignal(signal.SIGTERM)  # Ray installs another handler.
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a dozen kinds.
        reason = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise ValueError(
            f"--ray_address={address} cannot be used; this command has to run on a host of the "
            f"cluster (`ray start`): {reason}"
        ) from error
    signal.signal(signal.SIGTERM, sigterm)


def _check_address(address: str) -> None:
    """Raise a ValueError unless a server listens there; Ray would try for two minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"--ray_address={address} has to be HOST:PORT or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(f"--ray_address={address} cannot be reached: {error}") from error


class Placement:
    """Room for nodes on the hosts of the cluster.

    Attributes:
      host_agents: a host agent, an actor of Ray, for each node, by the names of the nodes.
    """

    def __init__(self, wanted: Mapping[str, Mapping[str, float]]):
        """Ask for room for nodes that want resources, by their names; `wait` waits for it."""
        self._wanted = wanted
        bundles = [dict(bundle) or _NEXT_TO_NOTHING for bundle in wanted.values()]
        self._group: PlacementGroup = placement_group(bundles)
        self.host_agents: dict[str, Any] = {}

    def wait(self, timeout_seconds: float, report: Callable[[str], None]) -> None:
        """Wait until there is room for all nodes.

        Args:
          timeout_seconds: seconds after which a ValueError says what is missing.
          report: receives a sentence about what is missing every ten seconds.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._group.wait(min(_REPORT_SECONDS, timeout_seconds)):
            hosts = [host["Resources"] for host in ray.nodes() if host["Alive"]]
            lack = (
                f"the nodes want {show_all(self._wanted.values())}; the hosts have "
                f"{show_all(hosts)}, of which {_show(ray.available_resources())} are free"
            )
            if time.monotonic() >= deadline:
                raise ValueError(f"No room for the run after {timeout_seconds:g} s: {lack}.")
            report(f"Waiting for room: {lack}.")

    def open(self, workdir: str, mark: str) -> list[HostInfo]:
        """Start the host agents, and return descriptions of their hosts.

        Args:
          workdir: folder of the run.
          mark: see `HostAgent.host_info`.

        Raises:
          RayError: a host agent cannot run on its host.
        """
        make_agent = ray.remote(HostAgent)
        for index, (name, bundle) in enumerate(self._wanted.items()):
            amounts = dict(bundle)
            self.host_agents[name] = make_agent.options(
                num_cpus=amounts.pop("CPU", 0),
                num_gpus=amounts.pop("GPU", 0),
                resources=amounts,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, index),
                max_restarts=-1,
                # A finite number would be used up until Ray declares a host dead.
                max_task_retries=-1,
            ).remote(name, workdir)
        asked = [agent.host_info.remote(mark) for agent in self.host_agents.values()]
        return ray.get(asked, timeout=_OPEN_SECONDS)

    def close(self) -> None:
        """Give the room back; the host agents and their processes end."""
        remove_placement_group(self._group)


def check_versions(host_info: HostInfo, ours: Mapping[str, str]) -> None:
    """Raise a ValueError unless a host has the same versions as this one; see `versions`."""
    for name, version in ours.items():
        theirs = host_info.versions.get(name)
        if theirs != version:
            raise ValueError(
                f"The host {host_info.ip} has {name} {theirs}, this one has {version}."
            )


def last_line(error: Exception) -> str:
    """Return the message of an error whose text begins with the traceback of another process."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def show_all(amounts: Iterable[Mapping[str, float]]) -> str:
    """Format several amounts of resources; equal ones are counted."""
    counts = collections.Counter(map(_show, amounts))
    return ", ".join(f"{count} x ({shown})" for shown, count in counts.items())


def _show(resources: Mapping[str, float]) -> str:
    """Format amounts of resources without those that Ray adds."""
    shown = {name: amount for name, amount in resources.items() if not _INTERNAL.match(name)}
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(shown.items())) or "nothing"
