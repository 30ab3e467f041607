"""The seam between a program and the place where its nodes run."""

import collections
import contextlib
import pathlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import launchpad as lp

from apex_agents.experiment import Experiment
from apex_agents.nodes.process import LocalNodeProcess, NodeCommand, NodeProcess, NodeStatus
from apex_agents.nodes.supervisor import RestartPolicy, Supervisor
from apex_agents.runs.files import write_json
from apex_agents.runs.workdir import NODES_FILE

_NUM_LOG_LINES = 15
_SAME_SIGNAL_SECONDS = 1.0


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
          ValueError: a setting, code of the user's or the place itself does not allow it.
        """

    def run(self, launch: Launch) -> Outcome:
        """Run all nodes until the program stops; SIGINT and SIGTERM stop it.

        Raises:
          ValueError: there is no room for the nodes.
        """


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

    `timeout -s INT` sends SIGINT twice: one that follows within a second is no other.

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
