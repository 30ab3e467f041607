"""Numbers that environments report in `info`, over an episode."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from apex_agents.environments.conversion import to_number

# gymnasium's habit: whether the task is done.
SUCCESS = "is_success"
_MEAN = re.compile(r"mean\((.+)\)")
# What `environment.metrics` may hold; the CSV files of a run are read without quoting.
NAME = re.compile(r"""mean\([^()",\r\n]+\)|[^()",\r\n]+""")


class InfoMetrics:
    """Takes numbers from `info` as an episode goes on.

    A name stands for the value that came last, `mean(name)` for the mean over the steps of the
    episode; what is no finite number is left out. `is_success` is among them in any case.

    Attributes:
      names: names of the metrics.
      keys: entries of `info` that they are made from.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(dict.fromkeys((SUCCESS, *names)))
        self._keys = {name: found[1] for name in names if (found := _MEAN.fullmatch(name))}
        self.keys = {self._keys.get(name, name) for name in self.names}
        self.begin()

    def begin(self) -> None:
        """Begin an episode."""
        self._values: dict[str, float] = {}
        self._counts = dict.fromkeys(self.names, 0)

    def add(self, info: Mapping[str, Any]) -> None:
        """Take what came with a step."""
        if self.keys.isdisjoint(info):
            return
        for name in self.names:
            number = math.nan
            with contextlib.suppress(ValueError):
                number = to_number(info.get(self._keys.get(name, name)), name)
            if not math.isfinite(number):
                continue
            if name in self._keys:
                self._counts[name] += 1
                before = self._values.get(name, 0.0)
                number = before + (number - before) / self._counts[name]
            self._values[name] = number

    def values(self) -> tuple[tuple[str, float], ...]:
        """Return names and values of the metrics that the episode has so far."""
        return tuple(self._values.items())
