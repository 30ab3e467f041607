"""Launches a program on this machine, shows how it goes, and says how it ended."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import threading
import time
from typing import Any

import launchpad as lp
import reverb

from apex_agents.experiment import Experiment
from apex_agents.replay.client import RunClient
from apex_agents.replay.statistics import ReplayStatistics, read_statistics
from apex_agents.running.checkpoints import find_checkpoint
from apex_agents.running.processes import LocalProcesses
from apex_agents.running.supervision import NodeFailure, Supervisor
from apex_agents.running.workdir import CHECKPOINTS, SUMMARY_FILE

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it.
EXIT_TERMINATED = 143  # 128 + SIGTERM.

_STATUS_PERIOD_SECONDS = 10.0
_STATUS_TIMEOUT_SECONDS = 2
_NUM_LOG_LINES = 15


def launch_program(program: lp.Program, experiment: Experiment, launch_type: str) -> int:
    """Run a program to its end.

    Args:
      program: made by `program.make_program`.
      experiment: what it was made from.
      launch_type: 'local_mp' (a process per node, started again when it dies) or 'local_mt' (a
        thread per node).

    Returns:
      The exit code: 0 when the run reached its end, 1 when a node failed, 130 after Ctrl-C, 143
      after SIGTERM.
    """
    _print_line(f"Run folder: {experiment.workdir}")
    _resume(experiment)
    run = _run_processes if launch_type == "local_mp" else _run_threads
    failure, interrupted = run(program, experiment)
    return _conclude(experiment, failure, interrupted)


def _resume(experiment: Experiment) -> None:
    """Take up the counts of the newest checkpoint; the learner restores the rest."""
    checkpoint = find_checkpoint(pathlib.Path(experiment.workdir, CHECKPOINTS))
    if checkpoint is not None:
        experiment.resumed_at = checkpoint.progress
        steps = f"learner step {checkpoint.progress.learner_steps:,}"
        _print_line(f"Going on from {steps} ({checkpoint.path.name}).")


def _run_processes(program: lp.Program, experiment: Experiment) -> tuple[str | None, bool]:
    """Run the nodes as processes; return what failed, if something did, and whether Ctrl-C came."""
    processes = LocalProcesses(program, experiment.workdir)
    run = experiment.run
    supervisor = Supervisor(
        processes.commands, run.max_restarts, run.restart_window_seconds, _print_line
    )
    num_interrupts = 0

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal num_interrupts
        num_interrupts += 1
        if num_interrupts == 1:
            supervisor.stop()
            with contextlib.suppress(OSError):  # Not print: it may be what was interrupted.
                os.write(1, b"\nStopping; press Ctrl-C again to end everything at once.\n")
        else:
            supervisor.kill()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, lambda signum, frame: supervisor.stop())
    status = StatusLine(_replay_address(program), experiment)
    failure = supervisor.run()
    status.close()
    processes.close()
    return failure and _describe(failure), num_interrupts > 0


def _describe(failure: NodeFailure) -> str:
    """Say which node failed, and how its output ends."""
    with failure.log.open(errors="replace") as log:
        lines = collections.deque(log, maxlen=_NUM_LOG_LINES)
    end = "".join(f"  | {line.rstrip()}\n" for line in lines) or "  (nothing)\n"
    return f"Node {failure.node} {failure.reason}. {failure.log} ends with:\n{end.rstrip()}"


def _run_threads(program: lp.Program, experiment: Experiment) -> tuple[str | None, bool]:
    """Run the nodes as threads of this process, in Launchpad's way; return as the other does."""
    manager = lp.launch(program, launch_type="local_mt")
    interrupted = _watch_for_interrupt()
    status = StatusLine(_replay_address(program), experiment)
    failure = None
    try:
        manager.wait(return_on_first_completed=True)
    except RuntimeError as error:  # Of `node.run_node`; names the node.
        failure = str(error)
    os.kill(os.getpid(), signal.SIGTERM)  # As `lp.stop` does in the nodes.
    manager.wait(raise_error=False)
    status.close()
    return failure, interrupted.is_set()


def _watch_for_interrupt() -> threading.Event:
    """Note Ctrl-C, and let Launchpad stop the nodes as it does anyway."""
    interrupted = threading.Event()
    launchpad_handler: Any = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: Any) -> None:
        interrupted.set()
        launchpad_handler(signum, frame)

    signal.signal(signal.SIGINT, handle)
    return interrupted


def _replay_address(program: lp.Program) -> str:
    (replay,) = program.groups["replay"]
    return replay.reverb_address.resolve()


class StatusLine:
    """Prints how far the run is, as the replay server sees it, every few seconds."""

    def __init__(self, replay_address: str, experiment: Experiment):
        """Start printing."""
        self._experiment = experiment
        self._replicas = experiment.builder.config.replay.replicas
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._print_forever, args=(replay_address,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop printing."""
        self._stop.set()
        # Python aborts when it exits while a thread is inside a call to a server that is gone.
        self._thread.join(2 * _STATUS_TIMEOUT_SECONDS)

    def _print_forever(self, replay_address: str) -> None:
        client = RunClient(replay_address, self._experiment.run_id)
        before = ReplayStatistics()
        before_time = time.monotonic()
        while not self._stop.wait(_STATUS_PERIOD_SECONDS):
            try:
                now = read_statistics(client, self._replicas, _STATUS_TIMEOUT_SECONDS)
            except (RuntimeError, reverb.errors.ReverbError):
                continue
            elapsed = time.monotonic() - before_time
            _print_line(self._format(now, before, elapsed))
            before, before_time = now, time.monotonic()

    def _format(self, now: ReplayStatistics, before: ReplayStatistics, elapsed: float) -> str:
        is_new = now.inserted < before.inserted or now.sampled < before.sampled  # The server.
        before = ReplayStatistics() if is_new else before
        acting = (now.inserted - before.inserted) / elapsed
        sampling = (now.sampled - before.sampled) / elapsed
        learning = sampling / self._experiment.builder.config.batch_size
        evaluation = "none yet"
        if now.evaluation is not None:
            mean, error = now.evaluation.mean_return, now.evaluation.standard_error
            steps = int(now.evaluation.learner_steps)
            evaluation = f"{mean:.1f} ± {error:.1f} at learner step {steps:,}"
        return (
            f"[{self._experiment.elapsed_seconds():5.0f} s] "
            f"actors {acting:,.0f} steps/s ({now.actor_steps:,}) | "
            f"learner {learning:,.1f} steps/s | "
            f"{now.samples_per_insert:.2f} samples/insert | "
            f"replay {now.replay_size:,} | "
            f"evaluation {evaluation}"
        )


def _conclude(experiment: Experiment, failure: str | None, interrupted: bool) -> int:
    """Print how the run ended and return the exit code."""
    path = pathlib.Path(experiment.workdir, SUMMARY_FILE)
    summary = json.loads(path.read_text()) if path.exists() else {}
    _print_line()
    if failure:
        _print_line(failure)
        return EXIT_FAILURE
    for name, value in summary.items():
        _print_line(f"{name.replace('_', ' '):>18}: {value}")
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS if summary.get("finished") else EXIT_TERMINATED


def _print_line(text: str = "") -> None:
    with contextlib.suppress(OSError):  # A file on a full disk: the run goes on.
        print(text, flush=True)
