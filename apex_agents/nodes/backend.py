"""The seam between a program and the place where its nodes run, and two such places.

Launchpad's own `local_mp` neither notices nor restarts a node that died. `LocalBackend` serialises
nodes as it does, runs its entry script, and leaves the processes to a `Supervisor`. `ThreadBackend`
runs all nodes in this process.
"""

import collections
import contextlib
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import launchpad as lp
from launchpad import address as lp_address
from launchpad import context
from launchpad import flags as lp_flags
from launchpad.launch import serialization

from apex_agents.exit_codes import EXIT_INTERRUPTED
from apex_agents.experiment import Experiment
from apex_agents.nodes.node import memories
from apex_agents.nodes.pickling import WithUserCode, check_pickles
from apex_agents.nodes.process import (
    LocalNodeProcess,
    NodeCommand,
    NodeProcess,
    NodeStatus,
    entry_argv,
    reserve_port,
)
from apex_agents.nodes.supervisor import RestartPolicy, Supervisor
from apex_agents.runs.files import write_json
from apex_agents.runs.opening import lock_descriptors
from apex_agents.runs.workdir import LOGS, NODES_FILE
from apex_agents.waits import reporting

_NUM_LOG_LINES = 15
_SAME_SIGNAL_SECONDS = 1.0
_launchpad_handlers: dict[int, Any] = {}

_GPUS, _GROWTH = "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"
_PASSED_ON = ("TF_CPP_MIN_LOG_LEVEL", "MUJOCO_GL")  # Passed to nodes: hosts may differ in them.


class Launch(NamedTuple):
    """What is to be run."""

    program: lp.Program  # Made by `program.make_program`.
    experiment: Experiment  # The one that the program was made from.
    report: Callable[[object], None]  # Receives texts for the terminal, or events with a `str`.
    on_interrupt: Callable[[], None]  # Called by the handler of the first SIGINT (Ctrl-C).


class Outcome(NamedTuple):
    """How the nodes of a program ended."""

    failure: str | None = None  # Why the run failed, as a sentence.
    stopped_by: signal.Signals | None = None  # SIGINT (Ctrl-C) or SIGTERM, if one was received.
    is_killed: bool = False  # Whether the nodes were killed by a second Ctrl-C.
    log: str = ""  # The end of the log of the node that failed, as lines for the terminal.


class Backend(Protocol):
    """A place where the nodes of a program run."""

    is_local: bool  # Whether all nodes share this machine: its memory, its disk, its cores.

    def prepare(self, experiment: Experiment) -> None:
        """Check that this backend can run an experiment, before anything is written.

        Raises:
          ValueError: a setting, a function of the user or the place itself does not allow it.
        """

    def run(self, launch: Launch) -> Outcome:
        """Run all nodes until the program stops; SIGINT and SIGTERM stop it.

        Raises:
          ValueError: there is no room for the nodes.
        """


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
        # The default handler stops nothing in a new session, which a run of a study has.
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
    """Set the flag that Launchpad reads here, without reading the command line."""
    flags = lp_flags.FLAGS
    if not flags.is_parsed():
        flags(sys.argv[:1])
    # Launchpad kills this process when its threads take longer than this to stop, 10 s by default.
    flags.lp_termination_notice_secs = int(stop_seconds)


def supervise(
    launch: Launch,
    commands: Sequence[NodeCommand],
    start: Callable[[NodeCommand, int], NodeProcess] = LocalNodeProcess,
) -> Outcome:
    """Run nodes in processes, restart those that die, and record them in `nodes.json`.

    SIGINT and SIGTERM end the nodes; a second SIGINT kills them. SIGTSTP (Ctrl-Z) stops them with
    this process until it is continued. `Supervisor` describes `commands` and `start`.
    """
    run = launch.experiment.run
    nodes_file = pathlib.Path(launch.experiment.workdir, NODES_FILE)

    def record(statuses: Mapping[str, NodeStatus]) -> None:
        write_json(nodes_file, {name: status._asdict() for name, status in statuses.items()})

    policy = RestartPolicy(run.max_restarts, run.restart_window_seconds)
    supervisor = Supervisor(commands, policy, launch.report, record, start)
    signals = StopSignals(supervisor.stop, supervisor.kill, launch.on_interrupt)
    signal.signal(signal.SIGINT, signals.handle)
    signal.signal(signal.SIGTERM, signals.handle)
    signal.signal(signal.SIGTSTP, lambda signum, frame: supervisor.suspend())
    signal.signal(signal.SIGCONT, lambda signum, frame: supervisor.resume())
    failure = supervisor.run()
    if failure is None:
        return Outcome(None, signals.first, signals.is_killed)
    sentence = f"Node {failure.node} {failure.exit.description}."
    return Outcome(sentence, signals.first, signals.is_killed, read_log_end(failure.log))


class StopSignals:
    """Handles the signals that stop a run: the first stops its nodes, a later SIGINT kills them.

    `timeout -s INT` sends SIGINT twice: a second one within a second counts as the first.

    Attributes:
      first: first signal received, None before.
      is_killed: whether the nodes were killed.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        kill: Callable[[], None],
        on_interrupt: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """Take what to do first, what to do later, and what to do on the first SIGINT."""
        self._stop = stop
        self._kill = kill
        self._on_interrupt = on_interrupt
        self._clock = clock
        self._first_at = 0.0
        self.first: signal.Signals | None = None
        self.is_killed = False

    def handle(self, signum: int, frame: Any = None) -> None:
        """Receive a signal, as a handler of `signal.signal`."""
        if self.first is None:
            self.first, self._first_at = signal.Signals(signum), self._clock()
            self._stop()
            if signum == signal.SIGINT:
                self._on_interrupt()
        elif signum == signal.SIGINT and self._clock() >= self._first_at + _SAME_SIGNAL_SECONDS:
            self.is_killed = True
            self._kill()


def read_log_end(path: pathlib.Path) -> str:
    """Return the end of the log of a node, as lines for the terminal."""
    lines: Iterable[str] = ()
    with contextlib.suppress(OSError), path.open(errors="replace") as log:
        lines = collections.deque(log, maxlen=_NUM_LOG_LINES)
    end = "".join(f"  | {line.rstrip()}\n" for line in lines) or "  (nothing)\n"
    return f"{path} ends with:\n{end.rstrip()}"


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
    # Several learners may share a GPU: TensorFlow takes all of its memory otherwise.
    more = {_GROWTH: os.environ.get(_GROWTH, "true")} if sees_gpus else {_GPUS: "-1"}
    return NodeCommand(
        name=node.name,
        argv=(),
        env={**env, **more},
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
