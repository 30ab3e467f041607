"""The processes of a run's nodes on the hosts of a Ray cluster.

A supervisor looks after them as after those of one machine (`processes.LocalProcesses`): each has a
guard on its host, which this module asks how it is. Only the replay is bound to its host, since the
others know its address; a node of a host that is lost begins anew wherever there is room.
"""

import pathlib
import threading
from collections.abc import Callable

import launchpad as lp
import ray

from apex_agents.experiment import Experiment
from apex_agents.running.checkpoints import remove_old_checkpoints
from apex_agents.running.mirror import NodeFiles
from apex_agents.running.node_process import Exit, NodeCommand
from apex_agents.running.processes import bind_address, make_command, serialize_nodes
from apex_agents.running.ray_cluster import Places, check_versions, last_line, living_hosts
from apex_agents.running.ray_guard import Site
from apex_agents.running.remote_process import RemoteProcess
from apex_agents.running.workdir import CHECKPOINTS

_LOOK_SECONDS = 0.5
_LOOKS_PER_LOOK_AT_HOSTS = 4
_REPORT_SECONDS = 30.0


class RayProcesses:
    """The nodes of a program, with places on a cluster that `ray_cluster.connect` has found.

    Attributes:
      commands: one per node.
    """

    def __init__(self, program: lp.Program, experiment: Experiment, report: Callable[[str], None]):
        """Wait for room for all nodes, and bind their addresses to hosts.

        Args:
          program: see `LocalProcesses`.
          experiment: what it was made from. A host that does not share the run's folder has one of
            its own, whose files come to that of this process.
          report: receives a sentence about what is waited for.

        Raises:
          ValueError: there is not enough room, or a host lacks something.
        """
        self._experiment = experiment
        self._report = report
        cluster = experiment.run.cluster
        nodes = program.get_all_nodes()
        groups = {node.name: group for group, ns in program.groups.items() for node in ns}
        wanted = {node.name: cluster.share(groups[node.name]).resources() for node in nodes}
        self._bound = {node.name for node in nodes if node.addresses}
        self._places = Places(wanted, self._bound)
        try:
            self._places.wait(cluster.wait_seconds, report)
            sites = self._places.open(experiment.workdir, experiment.run_id)
            for node in nodes:
                for address in node.addresses:
                    port = ray.get(self._places.guards[node.name].reserve_port.remote())
                    bind_address(address, _join(sites[node.name].ip, port))
            job = serialize_nodes(nodes)
        except BaseException:
            self._places.close()
            raise
        with open(job, "rb") as file:
            file.seek(0)
            self._job = ray.put(file.read())
        self._indices = {node.name: index for index, node in enumerate(nodes)}
        self._files = {name: NodeFiles(experiment.workdir, name) for name in self._indices}
        self._processes: dict[str, RemoteProcess] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self.commands = [
            make_command(node, experiment.workdir)._replace(
                env={} if "GPU" in wanted[node.name] else {"CUDA_VISIBLE_DEVICES": "-1"}
            )
            for node in nodes
        ]

    def start(self, command: NodeCommand, num_restarts: int) -> RemoteProcess:
        """Start the process of a node, in the background; see `Supervisor`."""
        name = command.name
        process = RemoteProcess(
            self._places.guards[name], self._files[name], name in self._bound, num_restarts
        )
        self._processes[name] = process
        threading.Thread(target=self._start, args=(command, process), daemon=True).start()
        return process

    def close(self) -> None:
        """Give the places back."""
        self._closed.set()
        self._watcher.join()
        self._places.close()

    def _start(self, command: NodeCommand, process: RemoteProcess) -> None:
        """Start a process once its guard is somewhere; what goes wrong ends it."""
        guard = self._places.guards[command.name]
        try:
            site = self._visit(command.name)
            if not site.shares_workdir:
                while pieces := self._files[command.name].read_newer(ray.get(guard.files.remote())):
                    ray.get(guard.provide.remote(pieces))
            index = self._indices[command.name]
            ray.get(guard.start.remote(command, self._job, index, process.num_restarts))
            process.begin(site, living_hosts().get(site.node_id, site.ip))
        except Exception as error:
            process.end(Exit(f"could not be started ({last_line(error)})", from_outside=True))

    def _visit(self, name: str) -> Site:
        """Ask a guard where it is, and wait for it to be somewhere."""
        asked = self._places.guards[name].site.remote(self._experiment.run_id)
        while not ray.wait([asked], timeout=_REPORT_SECONDS)[0]:
            self._report(f"Node {name} waits for a host with room for it.")
        site = ray.get(asked)
        check_versions(site)
        return site

    def _watch(self) -> None:
        num_rounds = 0
        try:
            while not self._closed.wait(_LOOK_SECONDS):
                num_rounds += 1
                self._look(hosts_too=num_rounds % _LOOKS_PER_LOOK_AT_HOSTS == 0)
        except Exception as error:  # Nobody would ever hear of the nodes again.
            lost = Exit(f"is out of sight ({last_line(error)})", True, can_restart=False)
            for process in self._processes.values():
                process.end(lost)

    def _look(self, hosts_too: bool) -> None:
        """See what is new of the processes, and of the hosts as well."""
        hosts = living_hosts() if hosts_too else None
        is_shared = True
        for process in list(self._processes.values()):
            process.look()
            if process.site is not None:
                is_shared = is_shared and process.site.shares_workdir
                if hosts is not None and process.site.node_id not in hosts:
                    process.lose()
        if not is_shared:
            folder = pathlib.Path(self._experiment.workdir, CHECKPOINTS)
            remove_old_checkpoints(folder, self._experiment.run.num_checkpoints)


def _join(host: str, port: int) -> str:
    """Write an address as gRPC reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
