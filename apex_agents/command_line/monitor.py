r"""Shows the state of a run, while it is running or afterwards.

  python launch/monitor.py RUN [--once]

It only reads the run's files: it can be started and stopped at any time, several times at once. On
another machine that shares the folder a run that is still running is shown as ended.

Examples:
  python launch/monitor.py runs/apex_dqn_cartpole-20260101-120000
  python launch/monitor.py runs/apex_dqn_cartpole-20260101-120000 --once
"""

import functools
import signal
import time
from collections.abc import Sequence

from absl import flags
from rich.console import Console

from apex_agents.command_line.arguments import (
    define_workdir,
    leave,
    mistakes_end_command,
    take_run,
)
from apex_agents.exit_codes import EXIT_FAILURE
from apex_agents.metrics.live_view import render
from apex_agents.metrics.monitor import PERIOD_SECONDS, make_view
from apex_agents.metrics.run_state import RunState
from apex_agents.runs.folder import RunFolder

_WORKDIR = define_workdir()
_ONCE = flags.DEFINE_bool("once", False, "Show the state once and exit.")


def main(arguments: Sequence[str]) -> None:
    """Show the run that the arguments name."""
    with mistakes_end_command():
        state = RunState(RunFolder(take_run(arguments, _WORKDIR.value)))
    state.refresh()
    if _ONCE.value or state.is_over():
        Console(highlight=False).print(render(state))
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _follow(state)
    except BrokenPipeError:  # The reader has exited, as `head` does.
        leave(EXIT_FAILURE)


def _follow(state: RunState) -> None:
    """Show the run until it ends."""
    view = make_view(True, functools.partial(print, flush=True))
    try:
        while True:
            view.show(state)
            if state.is_over():
                return
            time.sleep(PERIOD_SECONDS)
            state.refresh()
    finally:
        view.close()
