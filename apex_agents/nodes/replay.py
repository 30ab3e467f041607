"""The node with the replay server: the last to leave, and the one that counts actor steps."""

import contextlib
import functools
import json
import logging
import pathlib
import shutil
import time
from collections.abc import Callable, Sequence

import launchpad as lp
import reverb

from apex_agents.experiment import Experiment
from apex_agents.metrics.loggers import ReplayLogger
from apex_agents.nodes.node import is_supervised, report_ready, run_node
from apex_agents.replay.client import RunClient, run_table_name, table_name
from apex_agents.replay.messages import EVALUATION, PARAMETERS
from apex_agents.replay.statistics import count_inserted, report_actor_steps_before
from apex_agents.runs.files import report_failure, report_success, write_json
from apex_agents.runs.workdir import ACTOR_STEPS_FILE, REPLAY_CHECKPOINTS

_COUNT_PERIOD_SECONDS = 1.0
# Without a supervisor everybody leaves at once: others finish what they are sending.
_LINGER_SECONDS = 1.0
# A replay of gigabytes has to be written before it leaves.
_CHECKPOINT_SECONDS = 600.0


class ReplayNode(lp.ReverbNode):
    """A Reverb server that takes up counts and, if it was saved, content of the one before it.

    Attributes:
      name: of the node, and of its files.
      stop_seconds: how long it may take to leave.
      stops_last: whether it waits until the others have left.
    """

    name = "replay"
    stops_last = True

    def __init__(
        self, make_tables: Callable[[Experiment], Sequence[reverb.Table]], experiment: Experiment
    ):
        """Remember how to make the tables."""
        super().__init__(functools.partial(make_tables, experiment))
        self._experiment = experiment
        self._folder = pathlib.Path(experiment.workdir, REPLAY_CHECKPOINTS)
        saves = experiment.run.replay_checkpoint_period_seconds is not None
        self.stop_seconds = _CHECKPOINT_SECONDS if saves else 5.0

    def run(self) -> None:
        """Serve until the program stops."""
        run_node(self.name, self._serve, self.stop_seconds, self._experiment.run.cpu_split)

    def _serve(self) -> reverb.Server:
        server = self._start_server()
        client = RunClient(self.reverb_address.resolve(), self._experiment.run_id)
        # A restored server has messages of old: who wrote them does so again where there are none.
        for table in (PARAMETERS, EVALUATION):
            client.reset(table_name(client, table))
        counter = _ActorStepCounter(self._experiment, client)
        logger = ReplayLogger(self._experiment, client)
        period = self._experiment.run.replay_checkpoint_period_seconds
        last_save = time.monotonic()
        report_ready()
        while not lp.stop_event().wait(_COUNT_PERIOD_SECONDS):
            counter.save()
            logger.write_if_due()
            if period is not None and time.monotonic() >= last_save + period:
                _save(client, self._folder)
                last_save = time.monotonic()
        if not is_supervised():
            time.sleep(_LINGER_SECONDS)
        counter.save()
        logger.write()
        if period is not None:
            _save(client, self._folder)
        server.stop()
        return server  # Kept: taking a table of a million transitions apart takes ten seconds.

    def _start_server(self) -> reverb.Server:
        """Start a server with what was saved, or an empty one if that cannot be read."""
        port = lp.get_port_from_address(self.reverb_address.resolve())
        folder = self._folder
        _remove_unfinished(folder)  # By a server that was killed meanwhile.
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(folder))
        has_checkpoint = folder.exists() and any(folder.iterdir())
        try:
            return reverb.Server(self._make_tables(), port, checkpointer)
        except RuntimeError as error:
            if not has_checkpoint:
                raise
            damaged = folder.with_name(f"{folder.name}-damaged-{time.time():.0f}")
            folder.rename(damaged)
            try:
                server = reverb.Server(self._make_tables(), port, checkpointer)
            except RuntimeError:  # It was not the checkpoint.
                shutil.rmtree(folder, ignore_errors=True)
                damaged.rename(folder)
                raise
            logging.warning("The replay begins empty: %s cannot be read: %s", damaged, error)
            return server

    def _make_tables(self) -> list[reverb.Table]:
        run_id = self._experiment.run_id
        tables = self._priority_tables_fn()
        return [table.replace(name=run_table_name(table.name, run_id)) for table in tables]


class _ActorStepCounter:
    """Keeps the number of actor steps on disk: a new server counts from 0."""

    def __init__(self, experiment: Experiment, client: reverb.Client):
        """Tell the server's clients how many steps there were before it."""
        self._client = client
        self._replicas = experiment.builder.config.replay.replicas
        self._path = pathlib.Path(experiment.workdir, ACTOR_STEPS_FILE)
        # A server that was restored has its counts back, too.
        while (inserted := self._count()) is None:
            time.sleep(_COUNT_PERIOD_SECONDS)
        self._before = self._load() - inserted
        report_actor_steps_before(client, self._before)

    def save(self) -> None:
        """Write the number down, unless the server is too busy to tell."""
        inserted = self._count()
        if inserted is not None:
            write_json(self._path, self._before + inserted)

    def _count(self) -> int | None:
        try:
            return count_inserted(self._client, self._replicas)
        except (RuntimeError, reverb.errors.ReverbError):
            return None

    def _load(self) -> int:
        try:
            return int(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return 0
        except (ValueError, TypeError) as error:
            logging.warning("%s cannot be read, actor steps begin at 0: %s", self._path, error)
            return 0


def _save(client: reverb.Client, folder: pathlib.Path) -> None:
    """Save the replay's content; if that fails, what was saved before stays."""
    started = time.monotonic()
    try:
        path = client.checkpoint()
    except (RuntimeError, IndexError, reverb.errors.ReverbError) as error:  # Full disk: IndexError.
        report_failure(folder, error)
        _remove_unfinished(folder)
        return
    report_success(folder)
    logging.info("Saved the replay to %s in %.1f s", path, time.monotonic() - started)


def _remove_unfinished(folder: pathlib.Path) -> None:
    """Remove what Reverb did not write to the end, and would never read."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not (path / "DONE").exists():
                shutil.rmtree(path, ignore_errors=True)
