"""Runs the nodes of a program as processes on the hosts of a Ray cluster.

A supervisor restarts them as it does on one machine (`nodes.local.LocalBackend`). Each node has a
host agent, which starts its process and reports on it. Only the replay is bound to its host, since
the other nodes know its address; a node of a host that is lost is restarted wherever there is room.
"""

import contextlib
import os
import pathlib
import threading
import uuid
from collections.abc import Callable, Mapping

import launchpad as lp
import ray

from apex_agents.cluster.file_sync import FileState, NodeFiles
from apex_agents.cluster.host_agent import HostInfo, versions
from apex_agents.cluster.placement import (
    Placement,
    check_versions,
    connect,
    last_line,
    living_hosts,
)
from apex_agents.cluster.remote_process import RemoteNodeProcess
from apex_agents.config import RunConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.backend import Launch, Outcome, supervise
from apex_agents.nodes.local import bind_address, make_command, serialize_nodes
from apex_agents.nodes.process import Exit, NodeCommand
from apex_agents.runs.checkpoints import remove_old_checkpoints
from apex_agents.runs.workdir import CHECKPOINTS

_LOOK_SECONDS = 0.5
_LOOKS_PER_LOOK_AT_HOSTS = 4
_REPORT_SECONDS = 30.0
_MARK = ".command-"
_PASSED_ON = ("TF_CPP_MIN_LOG_LEVEL", "MUJOCO_GL")


class RayBackend:
    """Runs nodes as processes on the hosts of a Ray cluster; see `nodes.backend.Backend`."""

    is_local = False

    def __init__(self, address: str):
        """Take the address of the cluster's head, 'HOST:PORT', or 'auto'."""
        self._address = address

    def prepare(self, run: RunConfig) -> None:
        """Connect to the cluster.

        Raises:
          ValueError: it cannot be reached, or `run.cpu_split` is set.
        """
        if run.cpu_split is not None:
            raise ValueError("run.cpu_split and --lp_launch_type=ray exclude each other.")
        connect(self._address)

    def run(self, launch: Launch) -> Outcome:
        """Run all nodes until the program stops."""
        nodes = RayNodes(launch.program, launch.experiment, launch.report)
        with contextlib.closing(nodes):
            return supervise(nodes, launch)


class RayNodes:
    """The nodes of a program as commands, with places on the hosts of the cluster.

    Attributes:
      commands: one command per node.
    """

    def __init__(self, program: lp.Program, experiment: Experiment, report: Callable[[str], None]):
        """Wait for room for all nodes, and bind their addresses to hosts.

        Args:
          program: program whose nodes have a `name` and a `role`.
          experiment: experiment that it was made from. A host that does not share the run's folder
            has one of its own, whose files are copied to that of this process.
          report: receives sentences about missing resources.

        Raises:
          ValueError: there is not enough room, or a host lacks something.
        """
        self._experiment = experiment
        self._report = report
        self._versions = versions()
        cluster = experiment.run.cluster
        nodes = program.get_all_nodes()
        groups = {node.name: group for group, ns in program.groups.items() for node in ns}
        wanted = {node.name: cluster.resources(groups[node.name]).amounts() for node in nodes}
        self._bound = {node.name for node in nodes if node.addresses}
        self._places = Placement(wanted, self._bound)
        # Who sees this file shares the folder: its name was never there before.
        self._mark = pathlib.Path(experiment.workdir, f"{_MARK}{uuid.uuid4().hex[:12]}")
        try:
            for left in self._mark.parent.glob(f"{_MARK}*"):  # By a command that was killed.
                left.unlink()
            self._mark.touch()
            self._places.wait(cluster.wait_seconds, report)
            sites = self._places.open(experiment.workdir, self._mark.name)
            for site in sites.values():
                check_versions(site, self._versions)
            for node in nodes:
                for address in node.addresses:
                    port = ray.get(self._places.host_agents[node.name].reserve_port.remote())
                    bind_address(address, _join(sites[node.name].ip, port))
            self._job = ray.put(_read(serialize_nodes(nodes)))
        except (ray.exceptions.RayError, OSError) as error:
            self._leave()
            raise ValueError(f"The cluster cannot be used: {last_line(error)}") from error
        except BaseException:
            self._leave()
            raise
        self._indices = {node.name: index for index, node in enumerate(nodes)}
        self._files = {name: NodeFiles(experiment.workdir, name) for name in self._indices}
        self._processes: dict[str, RemoteNodeProcess] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self.commands = [
            make_command(node, experiment.workdir, "GPU" in wanted[node.name], passed_on)
            for node in nodes
        ]

    def start(self, command: NodeCommand, num_restarts: int) -> RemoteNodeProcess:
        """Start the process of a node, in the background; see `Supervisor`."""
        name = command.name
        process = RemoteNodeProcess(
            self._places.host_agents[name], self._files[name], name in self._bound, num_restarts
        )
        self._processes[name] = process
        threading.Thread(target=self._start, args=(command, process), daemon=True).start()
        return process

    def close(self) -> None:
        """Give the places back."""
        self._closed.set()
        self._watcher.join()
        self._leave()

    def _leave(self) -> None:
        self._mark.unlink(missing_ok=True)
        self._places.close()

    def _start(self, command: NodeCommand, process: RemoteNodeProcess) -> None:
        """Start a process once its guard is somewhere; what goes wrong ends it."""
        agent_handle, where = process.agent_handle, ""
        try:
            site = self._visit(command.name)
            where = f" on {site.ip}"
            there = ray.get(agent_handle.prepare.remote())
            if there is not None and not site.shares_workdir:
                self._provide(command.name, there)
            if process.poll() is not None:  # Told to leave meanwhile.
                return
            index = self._indices[command.name]
            ray.get(agent_handle.start.remote(command, self._job, index, process.num_restarts))
            process.begin(site, living_hosts().get(site.node_id, site.ip))
            if process.poll() is not None:
                process.kill()
        except Exception as error:
            reason = f"could not be started{where} ({last_line(error)})"
            process.end(Exit(reason, from_outside=True))

    def _provide(self, name: str, there: Mapping[str, FileState]) -> None:
        """Let a host have of a node what the command's folder has, and nothing else."""
        agent_handle, files = self._places.host_agents[name], self._files[name]
        here = files.states()
        ray.get(agent_handle.remove.remote([path for path in there if path not in here]))
        alike = {path: state for path, state in there.items() if state == here.get(path)}
        for piece in files.read_new(here, alike):
            ray.get(agent_handle.provide.remote(piece))

    def _visit(self, name: str) -> HostInfo:
        """Ask a guard where it is, and wait for it to be somewhere."""
        asked = self._places.host_agents[name].site.remote(self._mark.name)
        while not ray.wait([asked], timeout=_REPORT_SECONDS)[0]:
            self._report(f"Node {name} waits for a host with room for it.")
        site: HostInfo = ray.get(asked)
        if site.versions != self._versions:  # Code may be newer now, on all hosts.
            check_versions(site, versions())
        return site

    def _watch(self) -> None:
        num_rounds, told = 0, ""
        while not self._closed.wait(_LOOK_SECONDS):
            num_rounds += 1
            try:
                self._look(hosts_too=num_rounds % _LOOKS_PER_LOOK_AT_HOSTS == 0)
            except Exception as error:  # Nobody would hear of the nodes any more.
                if last_line(error) != told:
                    told = last_line(error)
                    self._report(f"Looking after the nodes failed, and goes on: {told}")

    def _look(self, hosts_too: bool) -> None:
        """See what is new of the processes, and of the hosts as well."""
        hosts = living_hosts() if hosts_too else None
        for process in list(self._processes.values()):
            have_come = process.look()
            if have_come:
                folder = pathlib.Path(self._experiment.workdir, CHECKPOINTS)
                remove_old_checkpoints(folder, self._experiment.run.num_checkpoints)
            if hosts is not None and process.site and process.site.node_id not in hosts:
                process.lose(host_is_there=False)


def _read(descriptor: int) -> bytes:
    """Read all of a file, and close it."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()


def _join(host: str, port: int) -> str:
    """Write an address as gRPC reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
