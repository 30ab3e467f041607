"""The seam between a program and the place where its nodes run."""

import collections
import contextlib
import pathlib
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import launchpad as lp

from apex_agents.config import RunConfig
from apex_agents.experiment import Experiment
from apex_agents.nodes.process import LocalNodeProcess, NodeCommand, NodeProcess, NodeStatus
from apex_agents.nodes.supervisor import NodeFailure, RestartPolicy, Supervisor
from apex_agents.runs.files import write_json
from apex_agents.runs.workdir import NODES_FILE

_NUM_LOG_LINES = 15


class Launch(NamedTuple):
    """What is to be run."""

    program: lp.Program  # Made by `program.make_program`.
    experiment: Experiment  # The one that the program was made from.
    report: Callable[[object], None]  # Receives texts for the terminal, or events with a `str`.
    on_interrupt: Callable[[], None]  # Called by the handler of the first SIGINT (Ctrl-C).


class Outcome(NamedTuple):
    """How the nodes of a program ended."""

    failure: str | None  # Why the run failed, for the terminal.
    num_interrupts: int  # How often SIGINT (Ctrl-C) was received.


class Backend(Protocol):
    """A place where the nodes of a program run."""

    is_local: bool  # Whether all nodes share this machine: its memory, its disk, its cores.

    def prepare(self, run: RunConfig) -> None:
        """Check that this backend can be used, before anything is written.

        Raises:
          ValueError: a setting or the place itself does not allow it.
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

    SIGINT and SIGTERM stop the nodes; a second SIGINT kills them. `Supervisor` describes `commands`
    and `start`.
    """
    run = launch.experiment.run
    nodes_file = pathlib.Path(launch.experiment.workdir, NODES_FILE)

    def record(statuses: Mapping[str, NodeStatus]) -> None:
        write_json(nodes_file, {name: status._asdict() for name, status in statuses.items()})

    policy = RestartPolicy(run.max_restarts, run.restart_window_seconds)
    supervisor = Supervisor(commands, policy, launch.report, record, start)
    num_interrupts = 0

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal num_interrupts
        num_interrupts += 1
        if num_interrupts == 1:
            supervisor.stop()
            launch.on_interrupt()
        else:
            supervisor.kill()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, lambda signum, frame: supervisor.stop())
    failure = supervisor.run()
    return Outcome(failure and describe_failure(failure), num_interrupts)


def describe_failure(failure: NodeFailure) -> str:
    """Return which node failed and the end of its log, as lines for the terminal."""
    lines: Iterable[str] = ()
    with contextlib.suppress(OSError), failure.log.open(errors="replace") as log:
        lines = collections.deque(log, maxlen=_NUM_LOG_LINES)
    end = "".join(f"  | {line.rstrip()}\n" for line in lines) or "  (nothing)\n"
    happened = f"Node {failure.node} {failure.exit.description}."
    return f"{happened} {failure.log} ends with:\n{end.rstrip()}"
