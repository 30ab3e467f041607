"""Exports the rows of a run's CSV files to TensorBoard and to Weights & Biases.

One process exports the whole run: the nodes write CSV files and nothing else.
"""

import collections
import itertools
import math
import os
import pathlib
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import summary_v2 as histogram_summary
from tensorboard.plugins.scalar import summary_v2 as scalar_summary
from tensorboard.summary.writer.record_writer import RecordWriter

from apex_agents.extras import missing_extra
from apex_agents.metrics import columns
from apex_agents.metrics.histograms import BINS_PER_DECADE
from apex_agents.metrics.run_state import RunState, number
from apex_agents.runs.csv_file import Row
from apex_agents.runs.files import try_to_write
from apex_agents.runs.folder import RunFolder
from apex_agents.stopwatch import Stopwatch

# A run with hundreds of actors or environments exports these many; the CSV files have all.
_MAX_ACTORS = 8
_MAX_ENVS = 16
# TensorBoard counts samples; our histograms hold shares.
_SAMPLES_PER_HISTOGRAM = 1000

_file_numbers = itertools.count()


class Scalars(NamedTuple):
    """Numbers of one row."""

    step: int
    step_name: str  # `learner_steps` for rows of the learner and the evaluator, or `actor_steps`.
    values: Mapping[str, float]  # Values by `<node>/<column>`.


class Histogram(NamedTuple):
    """A distribution over N bins that are equally wide on a logarithmic axis."""

    step: int  # Learner steps.
    name: str  # `learner/log10_<quantity>`.
    edges: np.ndarray  # Bounds of the bins, as logarithms, `[N + 1]`.
    shares: np.ndarray  # Part of the samples in each bin, `[N]`.


class Export(Protocol):
    """A destination of a run's metrics."""

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        """Export new items; log a warning if that fails."""

    def close(self) -> None:
        """Export items that wait, and finish."""


class TensorBoardExport:
    """Writes event files into a folder that `tensorboard --logdir` shows.

    The event file writers of TensorBoard and tensorboardX write from a thread that ends with the
    first OSError, such as a full disk; TensorBoard's imports TensorFlow, which would take the GPU's
    memory. The record writer does neither.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._file: RecordWriter | None = None
        # The wall clock's time, continued by a clock that is never set: axes of time have no jumps.
        self._time = Stopwatch(time.monotonic() - time.time()).seconds

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        def write() -> None:
            for item in items:
                for summary in _make_summaries(item):
                    self._file = self._file or self._open()
                    event = event_pb2.Event(summary=summary, step=item.step, wall_time=self._time())
                    self._file.write(event.SerializeToString())
            if self._file is not None:
                self._file.flush()

        # The file's buffer keeps the rest of a record that finds no room for the next time.
        try_to_write(self._folder, write)

    def close(self) -> None:
        if self._file is not None:
            try_to_write(self._folder, self._file.close)

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


class WandbExport:
    """A run at Weights & Biases; wandb's own settings decide where it is stored.

    WANDB_MODE=offline, for example, writes it into the work directory, for `wandb sync`.
    """

    def __init__(self, run: RunFolder, project: str, run_id: str):
        """Start a run of a project at Weights & Biases, or resume it by its id.

        Raises:
          ValueError: wandb is not installed or cannot be started.
        """
        try:
            import wandb
        except ImportError as error:
            raise missing_extra("wandb", "--wandb") from error
        self._wandb = wandb
        self._folder = run.path / "wandb"
        is_online = os.environ.get("WANDB_MODE", "online") == "online"
        is_seed = run.path.name.startswith("seed_")  # Its task and setting are the folders above.
        try:
            self._run = wandb.init(
                project=project,
                name="/".join(run.path.parts[-3:]) if is_seed else run.path.name,
                id=run_id,
                resume="allow" if is_online else None,
                dir=str(run.path),
                config=run.config,
                # The terminal keeps this command's output; its nodes write logs of their own.
                settings=wandb.Settings(console="off", silent=True),
            )
        except (wandb.errors.Error, OSError) as error:
            raise ValueError(f"--wandb={project} cannot be started: {error}") from error
        for nodes in ("learner/*", "learner_*", "evaluator/*"):
            self._run.define_metric(nodes, step_metric=columns.LEARNER_STEPS)
        for nodes in ("replay/*", "actor_*", "env_*"):
            self._run.define_metric(nodes, step_metric=columns.ACTOR_STEPS)

    @property
    def place(self) -> str:
        """Where the run can be seen: an address, or a folder when offline."""
        if self._run.offline:
            return str(pathlib.Path(self._run.dir).parent)
        return str(self._run.url)

    def write(self, items: Iterable[Scalars | Histogram]) -> None:
        def write() -> None:
            for item in items:
                self._run.log(self._convert(item))

        try_to_write(self._folder, write, (self._wandb.errors.Error, OSError))

    def close(self) -> None:
        self._run.finish()

    def _convert(self, item: Scalars | Histogram) -> dict[str, Any]:
        if isinstance(item, Scalars):
            return {**item.values, item.step_name: item.step}
        histogram = self._wandb.Histogram(np_histogram=(item.shares, item.edges))
        return {item.name: histogram, columns.LEARNER_STEPS: item.step}


def read_items(rows: Sequence[tuple[str, Row]], state: RunState) -> Iterator[Scalars | Histogram]:
    """Turn new rows, each with the name of its file, into items to export."""
    actor_steps = _to_int(number(state.replay, columns.ACTOR_STEPS))
    bins = collections.defaultdict(list)
    for name, row in rows:
        learner_steps = _to_int(number(row, columns.LEARNER_STEPS))
        if columns.is_histogram_file(name):
            bins[learner_steps, row.get(columns.QUANTITY)].append(row)
        elif columns.role_of(name) in (columns.LEARNER, columns.EVALUATOR):
            yield Scalars(learner_steps, columns.LEARNER_STEPS, _name_values(name, row))
        elif (node := _name_node(name, row, state)) is not None:
            yield Scalars(actor_steps, columns.ACTOR_STEPS, _name_values(node, row))
    for (step, quantity), rows_of_bins in bins.items():
        yield Histogram(step, f"learner/log10_{quantity}", *_join_bins(rows_of_bins))


def _name_node(name: str, row: Row, state: RunState) -> str | None:
    """Return the name under which a row is exported, or None if it is not."""
    if name == columns.REPLAY:
        return name
    if columns.ENV_INDEX in row:
        index = _to_int(number(row, columns.ENV_INDEX))
        return f"env_{index}" if index in _spread(state.num_envs(), _MAX_ENVS) else None
    actor = columns.parse_actor_file(name)
    return name if actor in _spread(state.num_actors(), _MAX_ACTORS) else None


def _spread(total: int, most: int) -> set[int]:
    """Choose at most `most` indices below `total`, evenly spread, with the first and the last."""
    return set(np.linspace(0, max(total - 1, 0), min(total, most)).round().astype(int).tolist())


def _name_values(node: str, row: Row) -> dict[str, float]:
    """Return the finite numbers of a row by their full names."""
    names = row.keys() - {columns.WALL_TIME_SECONDS, columns.ENV_INDEX}
    values = {f"{node}/{name}": number(row, name) for name in sorted(names)}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _join_bins(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges and shares of adjacent bins, including empty ones, which have no row.

    The first of all bins starts at 0: here it is as wide as the others.
    """
    width = 1 / BINS_PER_DECADE
    with np.errstate(divide="ignore"):
        lower = np.log10([number(row, columns.LOWER) for row in rows])
        upper = np.log10([number(row, columns.UPPER) for row in rows])
    start = np.where(np.isfinite(lower), lower, upper - width)
    index = np.round((start - start.min()) / width).astype(int)
    shares = np.bincount(index, [number(row, columns.SAMPLED_SHARE) for row in rows])
    return start.min() + width * np.arange(len(shares) + 1), shares


def _to_int(value: float) -> int:
    return int(value) if math.isfinite(value) else 0
