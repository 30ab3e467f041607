"""The processes of a run's nodes on the hosts of a Ray cluster.

A supervisor looks after them as after those of one machine (`processes.LocalBackend`): each has a
guard on its host, which this module asks how it is. Only the replay is bound to its host, since the
others know its address; a node of a host that is lost begins anew wherever there is room.
"""

import os
import pathlib
import threading
import uuid
from collections.abc import Callable

import launchpad as lp
import ray

from apex_agents.cluster.file_sync import FileSync
from apex_agents.cluster.host_agent import HostInfo, versions
from apex_agents.cluster.placement import Placement, check_versions, last_line, living_hosts
from apex_agents.cluster.remote_process import RemoteNodeProcess
from apex_agents.experiment import Experiment
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
    """The nodes of a program, with places on a cluster that `ray_cluster.connect` has found.

    Attributes:
      commands: one per node.
    """

    def __init__(self, program: lp.Program, experiment: Experiment, report: Callable[[str], None]):
        """Wait for room for all nodes, and bind their addresses to hosts.

        Args:
          program: see `LocalBackend`.
          experiment: what it was made from. A host that does not share the run's folder has one of
            its own, whose files come to that of this process.
          report: receives a sentence about what is waited for.

        Raises:
          ValueError: there is not enough room, or a host lacks something.
        """
        self._experiment = experiment
        self._report = report
        self._versions = versions()
        cluster = experiment.run.cluster
        nodes = program.get_all_nodes()
        groups = {node.name: group for group, ns in program.groups.items() for node in ns}
        wanted = {node.name: cluster.share(groups[node.name]).resources() for node in nodes}
        self._bound = {node.name for node in nodes if node.addresses}
        self._places = Placement(wanted, self._bound)
        # Who sees this file shares the folder: its name was never there before.
        self._mark = pathlib.Path(experiment.workdir, f"{_MARK}{uuid.uuid4().hex[:12]}")
        try:
            for left in self._mark.parent.glob(f"{_MARK}*"):  # By a command that was killed.
                left.unlink()
            self._mark.touch()
            self._places.wait(cluster.wait_seconds, report)
            hosts = self._places.open(experiment.workdir, self._mark.name)
            for host_info in hosts.values():
                check_versions(host_info, self._versions)
            for node in nodes:
                for address in node.addresses:
                    port = ray.get(self._places.host_agents[node.name].reserve_port.remote())
                    bind_address(address, _join(hosts[node.name].ip, port))
            self._job = ray.put(_read(serialize_nodes(nodes)))
        except (ray.exceptions.RayError, OSError) as error:
            self._leave()
            raise ValueError(f"The cluster cannot be used: {last_line(error)}") from error
        except BaseException:
            self._leave()
            raise
        self._indices = {node.name: index for index, node in enumerate(nodes)}
        self._files = {name: FileSync(experiment.workdir, name) for name in self._indices}
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
        """Start a process once its host agent runs; a failure ends it."""
        where = ""
        try:
            host_info = self._visit(command.name)
            where = f" on {host_info.ip}"
            process.start(command, self._job, self._indices[command.name], host_info)
        except Exception as error:
            reason = f"could not be started{where} ({last_line(error)})"
            process.end(Exit(reason, from_outside=True))

    def _visit(self, name: str) -> HostInfo:
        """Ask a host agent where it is, and wait until it runs somewhere."""
        asked = self._places.host_agents[name].host_info.remote(self._mark.name)
        while not ray.wait([asked], timeout=_REPORT_SECONDS)[0]:
            self._report(f"Node {name} waits for a host with room for it.")
        host_info: HostInfo = ray.get(asked)
        if host_info.versions != self._versions:  # Code may be newer now, on all hosts.
            check_versions(host_info, versions())
        return host_info

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
            if process.check():
                folder = pathlib.Path(self._experiment.workdir, CHECKPOINTS)
                remove_old_checkpoints(folder, self._experiment.run.num_checkpoints)
            host_info = process.host_info
            if hosts is not None and host_info and host_info.node_id not in hosts:
                process.lose(host_is_there=False)


def _read(descriptor: int) -> bytes:
    """Read all of a file, and close it."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read()


def _join(host: str, port: int) -> str:
    """Write an address as gRPC reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
