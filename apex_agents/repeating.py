"""Does something again and again in the background, and says why once when it fails."""

import logging
import threading
from collections.abc import Callable


class Repeating:
    """Calls a function periodically in a thread.

    A call that raises is reported, once for all failures of the same kind in a row, and is repeated
    like any other: its cause may pass.
    """

    def __init__(
        self,
        what: str,
        function: Callable[[], object],
        period_seconds: float,
        report: Callable[[str], None] = logging.warning,
    ):
        """Start the thread; the first call comes after a period.

        Args:
          what: name of the activity, such as "Counting steps".
          function: function to call.
          period_seconds: pause between two calls, in seconds.
          report: receives a sentence about a failure.
        """
        self._what = what
        self._function = function
        self._period_seconds = period_seconds
        self._report = report
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._thread.start()

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Make no further call; wait so long for the present one, return whether it has ended."""
        self._closed.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _repeat(self) -> None:
        problem = ""
        while not self._closed.wait(self._period_seconds):
            before, problem = problem, ""
            try:
                self._function()
            except Exception as error:  # A failure of any kind must not end the thread.
                # The text may begin with the traceback of another process.
                problem = ": ".join([type(error).__name__, *str(error).strip().splitlines()[-1:]])
                if problem != before:
                    self._report(f"{self._what} failed and is tried again: {problem}")
