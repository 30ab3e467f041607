"""An environment that hangs once in a run: the first one that takes the marker does."""

import ctypes
import os
import time
from typing import Any

import dm_env

from apex_agents.environments import Catch


def make(call: str, keeps_lock: bool, marker: str, of_evaluations: bool, evaluation: bool) -> Catch:
    """Make Catch that hangs in one of its calls.

    Args:
      call: `reset` or `step`.
      keeps_lock: whether it hangs in C code that keeps Python's lock.
      marker: path of a file that does not exist yet.
      of_evaluations: whether environments of the evaluator hang, or those of actors.
      evaluation: whether this is one of the evaluator.
    """
    return Hanging(call if evaluation == of_evaluations else "", keeps_lock, marker)


class Hanging(Catch):
    """Catch that hangs in the twentieth call."""

    def __init__(self, call: str, keeps_lock: bool, marker: str):
        super().__init__(seed=0)
        self._call, self._keeps_lock, self._marker = call, keeps_lock, marker
        self._num_calls = 0

    def reset(self) -> dm_env.TimeStep:
        self._count("reset")
        return super().reset()

    def step(self, action: Any) -> dm_env.TimeStep:
        self._count("step")
        return super().step(action)

    def _count(self, call: str) -> None:
        self._num_calls += call == self._call
        if self._num_calls == 20 and take(self._marker):
            self.hang()

    def hang(self) -> None:
        if self._keeps_lock:
            ctypes.PyDLL(None).sleep(100_000)
        time.sleep(100_000)


def take(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
