"""Turns a Launchpad program into the commands that run its nodes as processes on this machine.

Launchpad's own `local_mp` starts them without looking after them; this uses its way of serialising
nodes and its entry script, and leaves the processes to `supervision.Supervisor`.
"""

import os
import pathlib
import socket
import sys

import launchpad as lp
from launchpad import address as lp_address
from launchpad import context
from launchpad.launch import serialization
from launchpad.nodes.python import local_multi_processing

from apex_agents.running.node_process import NodeCommand
from apex_agents.running.workdir import lock_descriptors

# Found, not imported: it defines flags.
_ENTRY = str(pathlib.Path(local_multi_processing.__file__).with_name("process_entry.py"))


class LocalProcesses:
    """The nodes of a program as commands, with the ports that they listen on.

    Attributes:
      commands: one per node.
    """

    def __init__(self, program: lp.Program, workdir: str):
        """Give every address a free port and serialise the nodes.

        Args:
          program: its nodes have a `name`, `stop_seconds` and `stops_last`, see `running.node`.
          workdir: folder of the run.
        """
        self._ports: list[socket.socket] = []
        nodes = program.get_all_nodes()
        for node in nodes:
            node._initialize_context(context.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=None)
            for address in node.addresses:
                address.bind(_FixedAddress(f"localhost:{self._reserve_port()}"))
        # In memory: whoever can write to a file that is unpickled can run code, and a launcher that
        # is killed would leave the file behind.
        self._job = os.memfd_create("job")
        job_path = f"/proc/self/fd/{self._job}"
        functions = [node.function for node in nodes]
        serialization.serialize_functions(job_path, "program", functions)
        logs = pathlib.Path(workdir, "logs")
        self.commands = [
            NodeCommand(
                name=node.name,
                argv=[
                    sys.executable,
                    _ENTRY,
                    f"--data_file={job_path}",
                    f"--lp_task_id={index}",
                    # The supervisor kills who does not leave; nobody needs to do it themselves.
                    "--lp_termination_notice_secs=-1",
                ],
                env={} if node.name == "learner" else {"CUDA_VISIBLE_DEVICES": "-1"},
                log=logs / f"{node.name}.log",
                fds=[self._job, *lock_descriptors()],
                stop_seconds=node.stop_seconds,
                stops_last=node.stops_last,
            )
            for index, node in enumerate(nodes)
        ]

    def close(self) -> None:
        """Give the ports back."""
        os.close(self._job)
        for port in self._ports:
            port.close()

    def _reserve_port(self) -> int:
        """Take a free port that stays ours, also while its server is started again.

        A Reverb server shares its port with whoever shares it too, as this socket does without
        ever accepting a connection; others, who look for a port that nobody has, find it taken.
        """
        dual = socket.has_dualstack_ipv6()
        reservation = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if dual:
            reservation.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        reservation.bind(("", 0))
        self._ports.append(reservation)
        return reservation.getsockname()[1]


class _FixedAddress(lp_address.AbstractAddressBuilder):
    """An address that is known already."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address
