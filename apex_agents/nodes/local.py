"""Runs the nodes of a program on this machine: as processes, or as threads of this process.

Launchpad's own `local_mp` neither notices nor restarts a node that died. `LocalBackend` serialises
nodes as it does, runs its entry script, and leaves the processes to a `Supervisor`.
"""

import contextlib
import os
import pathlib
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

import launchpad as lp
from launchpad import address as lp_address
from launchpad import context
from launchpad import flags as lp_flags
from launchpad.launch import serialization

from apex_agents.exit_codes import EXIT_INTERRUPTED
from apex_agents.experiment import Experiment
from apex_agents.nodes.backend import Launch, Outcome, StopSignals, supervise
from apex_agents.nodes.node import memories
from apex_agents.nodes.pickling import check_pickles
from apex_agents.nodes.process import NodeCommand, entry_argv, reserve_port
from apex_agents.nodes.user_modules import WithUserCode
from apex_agents.runs.opening import lock_descriptors
from apex_agents.runs.workdir import LOGS
from apex_agents.waits import reporting

_launchpad_handlers: dict[int, Any] = {}

_PASSED_ON = ("TF_CPP_MIN_LOG_LEVEL", "MUJOCO_GL")  # To hosts with environments of their own.


class LocalBackend:
    """Runs nodes as processes of this machine, restarted when they die; see `Backend`."""

    is_local = True

    def prepare(self, experiment: Experiment) -> None:
        """Check that nodes can be sent to other processes."""
        check_pickles(experiment)

    def run(self, launch: Launch) -> Outcome:
        with contextlib.closing(LocalNodes(launch.program, launch.experiment)) as nodes:
            return supervise(launch, nodes.commands)


class ThreadBackend:
    """Runs nodes as threads of this process; one that fails ends the run; see `Backend`."""

    is_local = True

    def prepare(self, experiment: Experiment) -> None:
        """Accept every experiment."""

    def run(self, launch: Launch) -> Outcome:
        _set_flags(max(node.role.stop_seconds for node in launch.program.get_all_nodes()))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Launchpad would call another handler, too.
        manager = lp.launch(launch.program, launch_type="local_mt")
        # Launchpad sets its handler, which stops the nodes, in the first run of a process only.
        stop: Any = _launchpad_handlers.setdefault(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        signal.signal(signal.SIGTERM, stop)
        signals = StopSignals(
            stop=lambda: stop(signal.SIGTERM, None),
            kill=lambda: os._exit(EXIT_INTERRUPTED),  # Threads cannot be killed.
            on_interrupt=launch.on_interrupt,
        )
        signal.signal(signal.SIGINT, signals.handle)
        # In a session of its own, as a run of a sweep is, SIGTSTP would stop nothing by default.
        signal.signal(signal.SIGTSTP, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
        failure = None
        try:
            with reporting(memories, lambda name, wait: launch.report(f"Node {name} {wait}.")):
                manager.wait(return_on_first_completed=True)
        except RuntimeError as error:  # Raised by `run_node`, which names the node.
            failure = str(error)
        os.kill(os.getpid(), signal.SIGTERM)  # This is how `lp.stop` stops the other nodes.
        manager.wait(raise_error=False)
        return Outcome(failure, signals.first)


def _set_flags(stop_seconds: float) -> None:
    """Set the flag that Launchpad reads here, without the command line of the user's program."""
    flags = lp_flags.FLAGS
    if not flags.is_parsed():
        flags(sys.argv[:1])
    # Launchpad kills this process when its threads take longer than this to stop, 10 s by default.
    flags.lp_termination_notice_secs = int(stop_seconds)


class LocalNodes:
    """The nodes of a program as `commands`, with the ports that they listen on."""

    def __init__(self, program: lp.Program, experiment: Experiment):
        """Give every address a free port, and serialise the nodes."""
        self._ports: list[socket.socket] = []
        nodes = program.get_all_nodes()
        for address in (address for node in nodes for address in node.addresses):
            self._ports.append(reserve_port())
            bind_address(address, f"localhost:{self._ports[-1].getsockname()[1]}")
        self._job = serialize_nodes(nodes)
        fds = [self._job, *lock_descriptors()]
        self.commands = [
            make_command(node, experiment, node.role.computes)._replace(
                argv=entry_argv(self._job, index), fds=fds
            )
            for index, node in enumerate(nodes)
        ]

    def close(self) -> None:
        """Release the ports."""
        os.close(self._job)
        for port in self._ports:
            port.close()


def make_command(node: Any, experiment: Experiment, sees_gpus: bool) -> NodeCommand:
    """Return the part of a node's command that does not depend on its host."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return NodeCommand(
        name=node.name,
        argv=(),
        env=env if sees_gpus else {**env, "CUDA_VISIBLE_DEVICES": "-1"},
        log=pathlib.Path(experiment.workdir, LOGS, f"{node.name}.log"),
        stop_seconds=node.role.stop_seconds,
        stops_last=node.role.stops_last,
        stopwatch=experiment.stopwatch,
    )


def serialize_nodes(nodes: Sequence[Any]) -> int:
    """Serialise the functions of nodes whose addresses are bound.

    Returns:
      Descriptor of a file in memory. A file on disk could be exchanged before it is unpickled,
      and a launcher that is killed would leave it behind.

    Raises:
      ValueError: cloudpickle cannot pickle what a node needs.
    """
    for node in nodes:
        node._initialize_context(context.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=None)
    job = os.memfd_create("job")
    functions = WithUserCode([node.function for node in nodes])
    try:
        serialization.serialize_functions(f"/proc/self/fd/{job}", "program", functions)
    except RuntimeError as error:
        os.close(job)
        raise ValueError(
            f"The nodes cannot be sent to other processes: {error.__cause__}"
        ) from error
    return job


def bind_address(address: lp.Address, host_and_port: str) -> None:
    """Bind an address of a program to 'HOST:PORT'."""
    address.bind(_FixedAddress(host_and_port))


class _FixedAddress(lp_address.AbstractAddressBuilder):
    def __init__(self, address: str):
        self._address = address

    def build(self) -> str:
        return self._address
