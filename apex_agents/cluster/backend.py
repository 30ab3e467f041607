"""Runs the nodes of a program as processes on the hosts of a Ray cluster.

A supervisor restarts them as on one machine. Each node has a host agent, which starts its process
and reports on it. The nodes of a lost host are restarted wherever there is room. A replay has
another address there, which all nodes are told through their channels to the supervisor.
"""

import contextlib
import os
import pathlib
import threading
import uuid
from collections.abc import Callable

import launchpad as lp
import ray

from apex_agents.cluster.file_sync import FileSync
from apex_agents.cluster.host_agent import (
    HostInfo,
    RemoteNodeProcess,
    living_hosts,
    versions,
)
from apex_agents.cluster.placement import (
    Placement,
    check_versions,
    connect,
    last_line,
)
from apex_agents.experiment import Experiment
from apex_agents.nodes.backend import (
    Launch,
    Outcome,
    bind_address,
    make_command,
    serialize_nodes,
    supervise,
)
from apex_agents.nodes.pickling import check_pickles
from apex_agents.nodes.process import REPLAYS, Exit, NodeCommand
from apex_agents.repeating import Repeating
from apex_agents.runs.checkpoints import remove_old_checkpoints
from apex_agents.runs.workdir import CHECKPOINTS

_CHECK_SECONDS = 0.5
_REPORT_SECONDS = 30.0
_MARK = ".command-"


class RayBackend:
    """Runs nodes as processes on the hosts of a Ray cluster; see `nodes.backend.Backend`."""

    is_local = False

    def __init__(self, address: str):
        """Take the address of the cluster's head, 'HOST:PORT', or 'auto'."""
        self._address = address

    def prepare(self, experiment: Experiment) -> None:
        """Connect to the cluster."""
        if experiment.run.cpu_split is not None:
            raise ValueError("run.cpu_split and --lp_launch_type=ray exclude each other.")
        check_pickles(experiment)
        connect(self._address)

    def run(self, launch: Launch) -> Outcome:
        nodes = RayNodes(launch.program, launch.experiment, launch.report)
        with contextlib.closing(nodes):
            return supervise(launch, nodes.commands, nodes.start)


class RayNodes:
    """The nodes of a program as `commands`, with places on the hosts of the cluster."""

    def __init__(
        self, program: lp.Program, experiment: Experiment, report: Callable[[object], None]
    ):
        """Wait for room for all nodes, and bind their addresses to hosts.

        Args:
          program: program whose nodes have a `name` and a `role`.
          experiment: experiment that it was made from.
          report: receives sentences about missing resources.

        Raises:
          ValueError: there is not enough room, or a host lacks something.
        """
        self._experiment = experiment
        self._report = report
        self._versions = versions()
        cluster = experiment.run.cluster
        nodes = program.get_all_nodes()
        wanted = {node.name: cluster.resources(node.role.name).amounts() for node in nodes}
        self._placement = Placement(wanted)
        self._addresses: dict[str, str] = {}  # Addresses by the names of the replays, in order.
        # A host that finds this file, whose name is new, shares the folder.
        self._mark = pathlib.Path(experiment.workdir, f"{_MARK}{uuid.uuid4().hex[:12]}")
        try:
            for left in self._mark.parent.glob(f"{_MARK}*"):  # Left by a command that was killed.
                left.unlink()
            self._mark.touch()
            self._placement.wait(cluster.wait_seconds, report)
            hosts = self._placement.open(experiment.workdir, self._mark.name)
            for host_info in hosts:
                check_versions(host_info, self._versions)
            for node in nodes:
                for address in node.addresses:
                    bind_address(address, self._find_address(node.name))
            job = serialize_nodes(nodes)
            self._job = ray.put(pathlib.Path(f"/proc/self/fd/{job}").read_bytes())
            os.close(job)
        except BaseException as error:
            self._release()
            if isinstance(error, ray.exceptions.RayError | OSError):
                raise ValueError(f"The cluster cannot be used: {last_line(error)}") from error
            raise
        self._files = {node.name: FileSync(experiment.workdir, node.name) for node in nodes}
        self._processes: dict[str, RemoteNodeProcess] = {}
        self._watching = Repeating("Checking the nodes", self._check, _CHECK_SECONDS, report)
        self.commands = [
            make_command(node, experiment, "GPU" in wanted[node.name]) for node in nodes
        ]

    def start(self, command: NodeCommand, num_restarts: int) -> RemoteNodeProcess:
        """Start the process of a node, in the background; see `Supervisor`."""
        name = command.name
        agent = self._placement.host_agents[name]
        process = RemoteNodeProcess(agent, self._files[name], num_restarts)
        self._processes[name] = process
        threading.Thread(target=self._start, args=(command, process), daemon=True).start()
        return process

    def close(self) -> None:
        """Release the resources of the hosts."""
        self._watching.close()
        self._release()

    def _release(self) -> None:
        self._mark.unlink(missing_ok=True)
        self._placement.close()

    def _start(self, command: NodeCommand, process: RemoteNodeProcess) -> None:
        """Start a process once its host agent runs; a failure ends it."""
        where = ""
        try:
            host_info = self._visit(command.name)
            where = f" on {host_info.ip}"
            if command.name in self._addresses:
                self._find_address(command.name)
            index = self.commands.index(command)
            env = {**command.env, REPLAYS: self._all_addresses()}
            process.start(command._replace(env=env), self._job, index, host_info)
        except Exception as error:
            reason = f"could not be started{where} ({last_line(error)})"
            process.end(Exit(reason, from_outside=True))

    def _find_address(self, name: str) -> str:
        """Return the address of a replay, a different one where it has a new host agent."""
        agent = self._placement.host_agents[name]
        self._addresses[name] = ray.get(agent.reserve_address.remote())
        return self._addresses[name]

    def _all_addresses(self) -> str:
        return ",".join(self._addresses.values())

    def _visit(self, name: str) -> HostInfo:
        """Ask a host agent where it is, and wait until it runs somewhere."""
        asked = self._placement.host_agents[name].host_info.remote(self._mark.name)
        while not ray.wait([asked], timeout=_REPORT_SECONDS)[0]:
            self._report(f"Node {name} waits for a host with room for it.")
        host_info: HostInfo = ray.get(asked)
        if host_info.versions != self._versions:  # The code may have been updated on all hosts.
            check_versions(host_info, versions())
        return host_info

    def _check(self) -> None:
        """Receive the reports of all processes that have a host, and find those that lost it."""
        placed = [process for process in list(self._processes.values()) if process.host_info]
        hosts = living_hosts()  # Read after `placed`, so that it knows the hosts of all of them.
        for process in placed:
            process.send(self._all_addresses())
            if process.check(hosts):
                folder = pathlib.Path(self._experiment.workdir, CHECKPOINTS)
                remove_old_checkpoints(folder, self._experiment.run.num_checkpoints)
