"""Follows a run's files in a thread: shows how it stands and passes rows on."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live

from apex_agents.metrics.exports import Export, read_items
from apex_agents.metrics.live_view import format_line, render
from apex_agents.metrics.run_state import RunState

# Rows come every 5 s, and drawing costs 5 ms or so.
PERIOD_SECONDS = 2.0
_LINE_PERIOD_SECONDS = 10.0
_CLOSE_SECONDS = 5.0


class View(Protocol):
    """How a person sees the run.

    Attributes:
      is_live: whether it stays in one place, where a note can be seen.
    """

    is_live: bool

    def show(self, state: RunState, note: str = "") -> None:
        """Show how it stands now."""

    def close(self) -> None:
        """Leave what was shown last."""


class LiveView:
    """A picture in the terminal that changes; what is printed meanwhile appears above it."""

    is_live = True

    def __init__(self, console: Console):
        """Draw nothing yet."""
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=False)

    def show(self, state: RunState, note: str = "") -> None:
        """Draw anew."""
        self._live.start()
        self._live.update(render(state, note), refresh=True)

    def close(self) -> None:
        """Leave the last picture."""
        self._live.stop()


class PlainLines:
    """A line every few seconds."""

    is_live = False

    def __init__(self, print_line: Callable[[str], None]):
        """Remember who prints; the first line comes after the first period."""
        self._print_line = print_line
        self._last = time.monotonic()

    def show(self, state: RunState, note: str = "") -> None:
        """Print a line if one is due and there is something to tell."""
        if time.monotonic() >= self._last + _LINE_PERIOD_SECONDS and state.replay:
            self._print_line(format_line(state))
            self._last = time.monotonic()

    def close(self) -> None:
        """Do nothing."""


def make_view(is_live: bool, print_line: Callable[[str], None]) -> View:
    """Choose a view: lines where the output is no terminal, or if asked for."""
    console = Console(highlight=False)
    can_be_live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if is_live and can_be_live else PlainLines(print_line)


class Monitor:
    """Looks at a run every two seconds, in a thread of its own; its failure is not the run's.

    Attributes:
      note: what the view says besides, if it is live.
      is_live: whether it is.
    """

    def __init__(self, state: RunState, view: View, exports: Sequence[Export] = ()):
        """Take note of what is there already, which is not passed on, and start.

        Args:
          state: of the run.
          view: shows it.
          exports: receive all new rows.
        """
        self.note = ""
        self.is_live = view.is_live
        self._state = state
        self._view = view
        self._exports = exports
        self._stop = threading.Event()
        state.refresh()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Show and pass on what came last."""
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)

    def _follow(self) -> None:
        try:
            while not self._stop.wait(PERIOD_SECONDS):
                self._look()
            self.note = ""
            self._look()
        except Exception as error:  # Nobody needs the view as much as the run.
            logging.warning("The run goes on unseen: %s: %s", type(error).__name__, error)
        with contextlib.suppress(Exception):
            self._view.close()
        for export in self._exports:
            export.close()

    def _look(self) -> None:
        rows = self._state.refresh()
        self._view.show(self._state, self.note)
        for export in self._exports:
            export.write(read_items(rows, self._state))
