"""Writes event files for TensorBoard."""

import contextlib
import itertools
import os
import pathlib
import socket
import time
from collections.abc import Iterable

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.scalar import summary_v2 as scalar_summary
from tensorboard.summary.writer.record_writer import RecordWriter

from apex_agents.metrics.exports import Histogram, Scalars
from apex_agents.runs.files import report_failure, report_success
from apex_agents.stopwatch import Stopwatch

# TensorBoard counts samples; our histograms hold shares.
_SAMPLES_PER_HISTOGRAM = 1000

_file_numbers = itertools.count()


class TensorBoardExport:
    """Writes into a folder that `tensorboard --logdir` shows.

    TensorBoard's own event file writer writes from a thread that ends with the first OSError, and
    imports TensorFlow, which would take the GPU's memory; its record writer does neither.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._file: RecordWriter | None = None
        # The wall clock's time, continued by a clock that is never set: axes of time have no jumps.
        self._time = Stopwatch(time.monotonic() - time.time()).seconds

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        try:
            for item in items:
                for summary in _make_summaries(item):
                    self._file = self._file or self._open()
                    event = event_pb2.Event(summary=summary, step=item.step, wall_time=self._time())
                    self._file.write(event.SerializeToString())
            if self._file is not None:
                self._file.flush()
            report_success(self._folder)
        except OSError as error:  # The file's buffer keeps the rest of a record for the next time.
            report_failure(self._folder, error)

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _open(self) -> RecordWriter:
        self._folder.mkdir(exist_ok=True)
        # TensorBoard reads a folder's files in the order of their names; the clock may have been
        # behind, or set back, since the last one was written.
        numbers = [path.name.split(".")[3] for path in self._folder.glob("events.out.tfevents.*")]
        latest = max((int(number) for number in numbers if number.isdigit()), default=0)
        opened_at = max(round(self._time()), latest + 1)
        name = f"events.out.tfevents.{opened_at}.{socket.gethostname()}.{os.getpid()}"
        file = RecordWriter((self._folder / f"{name}.{next(_file_numbers)}").open("wb"))
        version = event_pb2.Event(file_version="brain.Event:2", wall_time=self._time())
        file.write(version.SerializeToString())
        return file


def _make_summaries(item: Scalars | Histogram) -> Iterable[summary_pb2.Summary]:
    if isinstance(item, Scalars):
        return [scalar_summary.scalar_pb(name, value) for name, value in item.values.items()]
    counts = np.round(item.shares * _SAMPLES_PER_HISTOGRAM).astype(int)
    values = np.repeat((item.edges[:-1] + item.edges[1:]) / 2, counts)
    used = np.flatnonzero(counts)
    num_buckets = used[-1] - used[0] + 1 if used.size else 1
    return [histogram_summary.histogram_pb(item.name, values, int(num_buckets))]
