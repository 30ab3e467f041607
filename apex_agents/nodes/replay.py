"""The node with a replay server: it serves, counts actor steps, writes a log, saves the replay."""

import functools
import logging
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import launchpad as lp
import reverb

from apex_agents.builder import Role
from apex_agents.experiment import Experiment
from apex_agents.learning.following import TARGETS
from apex_agents.learning.gradients import GRADIENT_TABLES
from apex_agents.metrics.loggers import ReplayLogger
from apex_agents.metrics.statistics import StatisticsPoller
from apex_agents.nodes.node import Replays, await_answer, is_supervised, run_node
from apex_agents.replay.messages import MESSAGES, find_followers
from apex_agents.replay.tables import if_reachable, run_table_name, table_name
from apex_agents.run_end import ActorStepCounter
from apex_agents.runs.files import remove, try_to_write
from apex_agents.runs.workdir import CHECKPOINTS, actor_steps_file, replay_folder, replay_name
from apex_agents.waits import LACKS, WORKS, say

_PERIOD_SECONDS = 1.0
_OLD = "0-"  # Beginning of the names of checkpoints that are not the newest.
# Without a supervisor all nodes stop at once, and the others finish what they are sending.
_LINGER_SECONDS = 1.0
# A replay of gigabytes has to be written before the node exits.
_SAVING_STOP_SECONDS = 600.0


class ReplayNode(lp.ReverbNode):
    """A Reverb server that continues the counts and any saved content of the last one."""

    def __init__(
        self,
        make_tables: Callable[[Experiment], Sequence[reverb.Table]],
        experiment: Experiment,
        index: int = 0,
        addresses: Sequence[lp.Address] | None = None,
    ):
        """Serve the tables of an experiment.

        Args:
          make_tables: maker of the tables of one server.
          experiment: experiment whose run this is.
          index: index of the server; the first one writes the log of all.
          addresses: addresses of all servers, which may still be incomplete; None for a single one.
        """
        super().__init__(functools.partial(make_tables, experiment))
        self.name = replay_name(index)
        self._experiment = experiment
        self._index = index
        self._addresses = [self.reverb_address] if addresses is None else addresses
        folder = replay_folder(index, experiment.run.num_replays)
        self._folder = pathlib.Path(experiment.workdir, CHECKPOINTS, folder)
        self.role = Role("replay", ReplayNode.run, stops_last=True)
        if experiment.run.replay_checkpoint_period_seconds is not None:
            self.role = self.role._replace(stop_seconds=_SAVING_STOP_SECONDS)

    def run(self) -> None:
        """Serve until the program stops."""
        run_node(self.name, self._serve, self.role, self._experiment.run.cpu_split)

    def _serve(self) -> reverb.Server:
        clients = Replays(self._addresses, self._experiment.run_id).connect(follows=True)
        server = self._start_server(clients[self._index].server_address)
        client = clients[self._index]
        if not await_answer([client], lp.stop_event().is_set):
            return server
        # A restored server holds old messages, which their writers replace once they are missing.
        self._reset_messages(client)
        duties = [self._count_steps(client)]
        if self._index == 0:
            duties.append(self._write_log(clients))
        if self._experiment.run.replay_checkpoint_period_seconds is not None:
            duties.append(self._save(client, self._experiment.run.replay_checkpoint_period_seconds))
        say(WORKS)
        while not lp.stop_event().wait(_PERIOD_SECONDS):
            for duty in duties:
                duty.perform()
        if not is_supervised():
            time.sleep(_LINGER_SECONDS)
        for duty in duties:
            duty.end()
        server.stop()
        return server  # Never destroyed: that takes ten seconds for a million transitions.

    def _count_steps(self, client: reverb.Client) -> "_Duty":
        path = pathlib.Path(self._experiment.workdir, actor_steps_file(self._index))
        counter = ActorStepCounter(client, path)
        return _Duty(counter.save, counter.close)

    def _write_log(self, clients: Sequence[reverb.Client]) -> "_Duty":
        """Write the log of all servers, in which this server's last counts are the newest."""
        poller = StatisticsPoller(clients, self._experiment.data_flow())
        poller.refresh(self._index)
        logger = ReplayLogger(self._experiment, poller)

        def end() -> None:
            poller.refresh(self._index)
            logger.write()
            poller.close()

        return _Duty(logger.write_if_due, end)

    def _save(self, client: reverb.Client, period_seconds: float) -> "_Duty":
        due_at = time.monotonic() + period_seconds

        def save_if_due() -> None:
            nonlocal due_at
            if time.monotonic() >= due_at:
                save_replay(client, self._folder)
                due_at = time.monotonic() + period_seconds

        def end() -> None:
            # A restored server would offer them, until they are reset, to readers that wait.
            if_reachable(lambda: self._reset_messages(client))
            save_replay(client, self._folder)

        return _Duty(save_if_due, end)

    def _reset_messages(self, client: reverb.Client) -> None:
        tables, data = client.server_info(), self._experiment.data_flow().table
        of_gradients = [name for name in (*GRADIENT_TABLES, TARGETS) if name != data]
        messages = [table_name(client, name) for name in (*MESSAGES, *of_gradients)]
        for table in [*messages, *find_followers(client, tables)]:
            if table in tables:
                client.reset(table)

    def _start_server(self, address: str) -> reverb.Server:
        """Start a server with the saved replay, or an empty one if that is corrupted."""
        port = lp.get_port_from_address(address)
        folder = self._folder
        _remove_unfinished(folder)  # The last server may have been killed while it saved.
        is_saved = self._experiment.run.replay_checkpoint_period_seconds is not None
        # Without a checkpointer of ours Reverb would make a folder in /tmp, and leave it there.
        source = folder if is_saved else folder.with_name(f"{folder.name}-not-saved")
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(source))
        has_checkpoint = is_saved and folder.exists() and any(folder.iterdir())
        try:
            return reverb.Server(self._make_tables(), port, checkpointer)
        except (RuntimeError, ValueError) as error:  # A ValueError: it has other tables.
            if not has_checkpoint:
                raise
            corrupted = folder.with_name(f"{folder.name}-damaged-{time.time():.0f}")
            folder.rename(corrupted)
            try:
                server = reverb.Server(self._make_tables(), port, checkpointer)
            except (RuntimeError, ValueError):  # The checkpoint was not the cause.
                remove(folder)
                corrupted.rename(folder)
                raise
            logging.warning("The replay begins empty: %s cannot be read: %s", corrupted, error)
            say(LACKS)
            return server

    def _make_tables(self) -> list[reverb.Table]:
        run_id = self._experiment.run_id
        tables = self._priority_tables_fn()
        return [table.replace(name=run_table_name(table.name, run_id)) for table in tables]


class _Duty(NamedTuple):
    perform: Callable[[], None]  # Called every second.
    end: Callable[[], None]  # Called before the server stops.


def save_replay(client: reverb.Client, folder: pathlib.Path) -> None:
    """Save a server's content to its folder of checkpoints; if that fails, the last one stays."""
    started = time.monotonic()

    def save() -> None:
        _let_new_name_be_last(folder)
        client.checkpoint()

    # An IndexError comes with a full disk.
    errors = (OSError, RuntimeError, IndexError, reverb.errors.ReverbError)
    if try_to_write(folder, save, errors):
        logging.info("Saved the replay to %s in %.1f s", folder, time.monotonic() - started)
    else:
        _remove_unfinished(folder)
        say(LACKS)


def _let_new_name_be_last(folder: pathlib.Path) -> None:
    """Rename a checkpoint, since Reverb keeps the last one by name, which is the local time.

    In another time zone, or after the clock was set back, the new one would be removed at once.
    """
    for path in folder.glob("*"):
        if (path / "DONE").exists() and not path.name.startswith(_OLD):
            path.rename(path.with_name(_OLD + path.name))


def _remove_unfinished(folder: pathlib.Path) -> None:
    """Remove checkpoints that Reverb did not finish, and would never read."""
    for path in folder.glob("*"):
        if not (path / "DONE").exists():
            remove(path)
