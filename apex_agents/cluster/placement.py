"""Hosts of a Ray cluster for the nodes of a program. Needs the package ray."""

import collections
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

# Ray would tell in twenty lines of every host that is lost, over the live view.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from apex_agents.cluster.host_agent import HostInfo, NodeGuard

_CONNECT_SECONDS = 10.0
_MAX_REASON = 500  # Characters.
_REPORT_SECONDS = 10.0
_VISIT_SECONDS = 120.0  # A worker of Ray takes seconds to start, dozens on one host take more.
# Resources that Ray adds for its own sake.
_OF_RAY = re.compile(r"node:|(object_store_)?memory$|bundle_|.*_group_")
# A bundle cannot be empty.
_NEXT_TO_NOTHING = {"CPU": 0.001}


def connect(address: str) -> None:
    """Connect this process to a cluster.

    Args:
      address: of its head, 'HOST:PORT', or 'auto' for the one that runs on this machine.

    Raises:
      ValueError: there is no cluster, or it has another version of Ray or Python.
    """
    if address != "auto":
        _check_address(address)
    sigterm = signal.getsignal(signal.SIGTERM)  # Ray puts its own in place.
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Of a dozen kinds.
        reason = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
        raise ValueError(
            f"--ray_address={address} cannot be used; this command has to run on a host of the "
            f"cluster (`ray start`): {reason}"
        ) from error
    signal.signal(signal.SIGTERM, sigterm)


def _check_address(address: str) -> None:
    """Raise a ValueError unless somebody listens there; Ray would try for two minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"--ray_address={address} has to be HOST:PORT or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(f"--ray_address={address} cannot be reached: {error}") from error


class Placement:
    """Places for nodes on the hosts of the cluster, each with a guard.

    Attributes:
      guards: actors, by the names of their nodes.
    """

    def __init__(self, wanted: Mapping[str, Mapping[str, float]], bound: Collection[str]):
        """Ask for places; `wait` waits for them.

        Args:
          wanted: resources of each node, by its name.
          bound: nodes that can live on one host only.
        """
        self._wanted = wanted
        self._bound = bound
        bundles = [dict(bundle) or _NEXT_TO_NOTHING for bundle in wanted.values()]
        self._group: PlacementGroup = placement_group(bundles)
        self.host_agents: dict[str, Any] = {}

    def wait(self, timeout_seconds: float, report: Callable[[str], None]) -> None:
        """Wait until there is room for all nodes.

        Args:
          timeout_seconds: for how long at most.
          report: receives, from time to time, a sentence about what is missing.

        Raises:
          ValueError: there was not enough room in time.
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

    def open(self, workdir: str, mark: str) -> dict[str, HostInfo]:
        """Start the guards and see where they are.

        Args:
          workdir: folder of the run.
          mark: see `NodeGuard.site`.

        Raises:
          ValueError: a host lacks something, or has another version of it.
        """
        make_guard = ray.remote(NodeGuard)
        for index, (name, bundle) in enumerate(self._wanted.items()):
            amounts = dict(bundle)
            self.host_agents[name] = make_guard.options(
                num_cpus=amounts.pop("CPU", 0),
                num_gpus=amounts.pop("GPU", 0),
                resources=amounts,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, index),
                max_restarts=0 if name in self._bound else -1,
                # A number would be used up while a host is being given up.
                max_task_retries=-1,
            ).remote(name, workdir)
        asked = {
            name: agent_handle.site.remote(mark) for name, agent_handle in self.host_agents.items()
        }
        try:
            found = ray.get(list(asked.values()), timeout=_VISIT_SECONDS)
        except ray.exceptions.RayError as error:
            lack = f"A host of the cluster cannot take a node: {last_line(error)}"
            raise ValueError(lack) from error
        return dict(zip(asked, found, strict=True))

    def close(self) -> None:
        """Give the places back; what is there ends."""
        remove_placement_group(self._group)


def check_versions(site: HostInfo, ours: Mapping[str, str]) -> None:
    """Raise a ValueError unless a host has the same versions as this one; see `versions`."""
    for name, version in ours.items():
        theirs = site.versions.get(name)
        if theirs != version:
            raise ValueError(f"The host {site.ip} has {name} {theirs}, this one has {version}.")


def living_hosts() -> dict[str, str]:
    """Return what people call the hosts that are there, by Ray's ids of them."""
    return {host["NodeID"]: host["NodeName"] for host in ray.nodes() if host["Alive"]}


def last_line(error: Exception) -> str:
    """Return what an error says after a traceback from far away."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def show_all(amounts: Iterable[Mapping[str, float]]) -> str:
    """Write several amounts, those that are alike once."""
    counts = collections.Counter(map(_show, amounts))
    return ", ".join(f"{count} x ({shown})" for shown, count in counts.items())


def _show(resources: Mapping[str, float]) -> str:
    """Write amounts as people do; what Ray adds for its own sake is left out."""
    shown = {name: amount for name, amount in resources.items() if not _OF_RAY.match(name)}
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(shown.items())) or "nothing"
