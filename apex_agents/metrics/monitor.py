"""Follows a run's files in a thread, which shows the state of the run and exports new rows."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live

from apex_agents.metrics.exports import Export, read_items
from apex_agents.metrics.live_view import format_line, render
from apex_agents.metrics.run_state import RunState

# Rows come every 5 s, and drawing takes about 5 ms.
PERIOD_SECONDS = 2.0
_LINE_PERIOD_SECONDS = 10.0
_CLOSE_SECONDS = 30.0


class LiveView:
    """A picture in the terminal that is redrawn in place, below printed lines."""

    is_live = True

    def __init__(self, console: Console):
        self._live = Live(console=console, auto_refresh=False, redirect_stderr=False)

    def show(self, state: RunState, note: str = "") -> None:
        self._live.start()
        self._live.update(render(state, note), refresh=True)

    def close(self) -> None:
        self._live.stop()


class PlainLines:
    """A line every ten seconds, and the first warning at once."""

    is_live = False

    def __init__(
        self, print_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ):
        """Wait a period of `clock`'s seconds for the first line."""
        self._print_line = print_line
        self._clock = clock
        self._last = clock()
        self._has_warned = False

    def show(self, state: RunState, note: str = "") -> None:
        """Print a line if one is due and the replay has written a row."""
        if not self._has_warned and (warning := state.warning()):
            self._print_line(f"warning: {warning}")
            self._has_warned = True
        if self._clock() >= self._last + _LINE_PERIOD_SECONDS and state.replay:
            self._print_line(format_line(state))
            self._last = self._clock()

    def close(self) -> None:
        """Do nothing."""


def make_view(is_live: bool, print_line: Callable[[str], None]) -> LiveView | PlainLines:
    """Return a live view if it is asked for and the output is a terminal that can show it."""
    console = Console(highlight=False)
    can_be_live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if is_live and can_be_live else PlainLines(print_line)


class Monitor:
    """A thread that shows and exports a run; its failure does not stop the run."""

    def __init__(
        self,
        state: RunState,
        view: LiveView | PlainLines,
        exports: Sequence[Export] = (),
        period_seconds: float = PERIOD_SECONDS,
    ):
        """Read the rows that exist, which are not exported, and look for new ones every period."""
        self.note = ""  # What a live view shows below everything else.
        self._state = state
        self._view = view
        self._receivers: list[Any] = [view, *exports]  # Receivers that have not failed.
        self._problem = ""  # The last problem in reading the run; logged when it changes.
        self._period_seconds = period_seconds
        self._stop = threading.Event()
        state.refresh()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def is_live(self) -> bool:
        """Whether a note can be seen."""
        return self._view.is_live and self._view in self._receivers

    def close(self, is_busy: Callable[[], bool] = lambda: False) -> None:
        """Show and export the last rows, and stop the thread.

        Args:
          is_busy: whether an export does something that is waited for, however long it takes.
        """
        self._stop.set()
        self._thread.join(_CLOSE_SECONDS)
        while is_busy() and self._thread.is_alive():
            self._thread.join(self._period_seconds)
        if self._thread.is_alive():
            logging.warning("Some metrics may be missing: an export took too long to close.")

    def _follow(self) -> None:
        while not self._stop.wait(self._period_seconds):
            self._update()
        self.note = ""
        self._update()
        for receiver in [*self._receivers]:
            self._close(receiver)

    def _update(self) -> None:
        try:
            rows = self._state.refresh()
            self._problem = ""
        except Exception as error:  # A file may be readable again in the next period.
            problem, self._problem = self._problem, f"{type(error).__name__}: {error}"
            if problem != self._problem:
                logging.warning("The run cannot be watched: %s", self._problem)
            return
        for receiver in [*self._receivers]:
            try:
                if receiver is self._view:
                    self._view.show(self._state, self.note)
                else:
                    receiver.write(read_items(rows, self._state))
            except Exception as error:  # An export may be user code.
                is_view = receiver is self._view
                name = "The display" if is_view else f"The export {type(receiver).__name__}"
                problem = f"{type(error).__name__}: {error}"
                logging.warning("%s gets no more metrics, the run continues: %s", name, problem)
                self._close(receiver)

    def _close(self, receiver: Any) -> None:
        """Close the view or an export, which gets nothing more."""
        self._receivers.remove(receiver)
        with contextlib.suppress(Exception):
            receiver.close()
