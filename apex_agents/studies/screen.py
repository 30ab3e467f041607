"""What a sweep shows in a terminal while it trains."""

import contextlib
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

# What Rich raises when the reader of a pipe has exited or a disk is full; the sweep continues.
_OUTPUT_ERRORS = (OSError, SystemExit)


class Screen:
    """Lines that stay, and below them the newest output of each active run.

    Where the output is no terminal there are only the lines that stay.
    """

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def print(self, text: str | Markdown) -> None:
        """Print what stays."""
        with contextlib.suppress(*_OUTPUT_ERRORS):
            is_line = isinstance(text, str)
            self._console.print(text, markup=False, highlight=False, soft_wrap=is_line)

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines below those that stay."""
        texts = [Text(line, style="cyan", no_wrap=True, overflow="ellipsis") for line in lines]
        with contextlib.suppress(*_OUTPUT_ERRORS):
            self._live.start()
            self._live.update(Group(*texts), refresh=True)

    def print_table(self, markdown: str) -> None:
        """Print a table in place of what `show` has shown."""
        with contextlib.suppress(*_OUTPUT_ERRORS):
            self._live.stop()
        self.print(Markdown(markdown) if self._console.is_terminal else f"\n{markdown}")
