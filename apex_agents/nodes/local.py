"""Turns a Launchpad program into the commands that run its nodes as processes on this machine.

Launchpad's own `local_mp` starts them without looking after them; this uses its way of serialising
nodes and its entry script, and leaves the processes to `supervision.Supervisor`.
"""

import os
import pathlib
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp
from launchpad import address as lp_address
from launchpad import context
from launchpad.launch import serialization

from apex_agents.nodes.ports import reserve_port
from apex_agents.nodes.process import LocalNodeProcess, NodeCommand, entry_argv
from apex_agents.runs.workdir import lock_descriptors


class LocalBackend:
    """The nodes of a program as commands, with the ports that they listen on.

    Attributes:
      commands: one per node.
      start: starts the process of one; see `Supervisor`.
    """

    start = LocalNodeProcess

    def __init__(self, program: lp.Program, workdir: str):
        """Give every address a free port and serialise the nodes.

        Args:
          program: its nodes have a `name`, `stop_seconds` and `stops_last`, see `running.node`.
          workdir: folder of the run.
        """
        self._ports: list[socket.socket] = []
        nodes = program.get_all_nodes()
        for node in nodes:
            for address in node.addresses:
                self._ports.append(reserve_port())
                bind_address(address, f"localhost:{self._ports[-1].getsockname()[1]}")
        self._job = serialize_nodes(nodes)
        self.commands = [
            make_command(node, workdir, sees_gpus=node.name == "learner")._replace(
                argv=entry_argv(self._job, index),
                fds=[self._job, *lock_descriptors()],
            )
            for index, node in enumerate(nodes)
        ]

    def close(self) -> None:
        """Give the ports back."""
        os.close(self._job)
        for port in self._ports:
            port.close()


def make_command(
    node: Any, workdir: str, sees_gpus: bool, env: Mapping[str, str] | None = None
) -> NodeCommand:
    """Return what is known of a node's command wherever it runs.

    Args:
      node: see `LocalBackend`.
      workdir: folder of the run.
      sees_gpus: whether it may use the GPUs that its process finds.
      env: further environment variables.
    """
    return NodeCommand(
        name=node.name,
        argv=(),
        env={**(env or {}), **({} if sees_gpus else {"CUDA_VISIBLE_DEVICES": "-1"})},
        log=pathlib.Path(workdir, "logs", f"{node.name}.log"),
        stop_seconds=node.stop_seconds,
        stops_last=node.stops_last,
    )


def serialize_nodes(nodes: Sequence[Any]) -> int:
    """Serialise what nodes do, once their addresses are bound.

    Returns:
      Descriptor of a file in memory: whoever can write to a file that is unpickled can run code,
      and a launcher that is killed would leave the file behind.
    """
    for node in nodes:
        node._initialize_context(context.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=None)
    job = os.memfd_create("job")
    functions = [node.function for node in nodes]
    serialization.serialize_functions(f"/proc/self/fd/{job}", "program", functions)
    return job


def bind_address(address: lp.Address, host_and_port: str) -> None:
    """Let an address of a program be this one."""
    address.bind(_FixedAddress(host_and_port))


class _FixedAddress(lp_address.AbstractAddressBuilder):
    """An address that is known already."""

    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address
