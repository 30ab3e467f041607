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
    """What is to be run.

    Attributes:
      program: program made by `program.make_program`.
      experiment: experiment that it was made from.
      report: receives texts for the terminal, or events whose `str` is one.
      on_interrupt: called at the first SIGINT (Ctrl-C), within the signal's handler.
    """

    program: lp.Program
    experiment: Experiment
    report: Callable[[object], None]
    on_interrupt: Callable[[], None]


class Outcome(NamedTuple):
    """How the nodes of a program ended.

    Attributes:
      failure: why the run failed, for the terminal; None if it did not.
      num_interrupts: how often SIGINT (Ctrl-C) was received.
    """

    failure: str | None
    num_interrupts: int


class Backend(Protocol):
    """A place where the nodes of a program run.

    Attributes:
      is_local: whether all nodes share this machine: its memory, its disk, its cores.
    """

    is_local: bool

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
