"""Launches a program on this machine, shows how it goes, and says how it ended."""

import json
import os
import pathlib
import signal
import threading
import time
from typing import Any

import launchpad as lp
import reverb
from launchpad.nodes.python.local_multi_processing import PythonProcess

from apex_agents.experiment import Experiment
from apex_agents.replay.statistics import ReplayStatistics, read_statistics
from apex_agents.running.checkpoints import find_checkpoint
from apex_agents.running.node import LAUNCHER_PID
from apex_agents.running.workdir import CHECKPOINTS, FAILURE_FILE, SUMMARY_FILE

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it.
EXIT_TERMINATED = 143  # 128 + SIGTERM.

_STATUS_PERIOD_SECONDS = 10.0
_STATUS_TIMEOUT_SECONDS = 2
# How long after a node has left the launcher waits for word that the program was stopped.
_STOP_GRACE_SECONDS = 3.0


def launch_program(program: lp.Program, experiment: Experiment, launch_type: str) -> int:
    """Run a program to its end.

    Args:
      program: made by `program.make_program`.
      experiment: what it was made from.
      launch_type: 'local_mp' (a process per node) or 'local_mt' (a thread per node).

    Returns:
      The exit code: 0 when the run reached its end, 1 when a node failed, 130 after Ctrl-C, 143
      after SIGTERM.
    """
    print(f"Run folder: {experiment.workdir}", flush=True)
    _resume(experiment)
    manager = lp.launch(
        program,
        launch_type=launch_type,
        terminal="current_terminal",
        local_resources=_make_resources(program),
    )
    interrupted = _watch_for_interrupt()
    status = StatusLine(_replay_address(program), experiment)
    died = _wait_for_nodes(manager)
    status.close()
    return _conclude(experiment, interrupted.is_set(), died)


def _resume(experiment: Experiment) -> None:
    """Take up the counts of the newest checkpoint; the learner restores the rest."""
    checkpoint = find_checkpoint(pathlib.Path(experiment.workdir, CHECKPOINTS))
    if checkpoint is not None:
        experiment.resumed_at = checkpoint.progress
        steps = f"learner step {checkpoint.progress.learner_steps:,}"
        print(f"Going on from {steps} ({checkpoint.path.name}).", flush=True)


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
        client = reverb.Client(replay_address)
        actor_steps_before = self._experiment.resumed_at.actor_steps
        before = ReplayStatistics(actor_steps=actor_steps_before)
        before_time = time.monotonic()
        while not self._stop.wait(_STATUS_PERIOD_SECONDS):
            try:
                now = read_statistics(
                    client, self._replicas, actor_steps_before, _STATUS_TIMEOUT_SECONDS
                )
            except (RuntimeError, reverb.errors.ReverbError):
                continue
            elapsed = time.monotonic() - before_time
            print(self._format(now, before, elapsed), flush=True)
            before, before_time = now, time.monotonic()

    def _format(self, now: ReplayStatistics, before: ReplayStatistics, elapsed: float) -> str:
        acting = (now.actor_steps - before.actor_steps) / elapsed
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


def _make_resources(program: lp.Program) -> dict[str, PythonProcess]:
    """Tell every process who launched it, and hide the GPU from all but the learner's."""
    launcher = {LAUNCHER_PID: str(os.getpid())}
    no_gpu = {**launcher, "CUDA_VISIBLE_DEVICES": "-1"}
    return {
        group: PythonProcess(env=launcher if group == "learner" else no_gpu)
        for group in program.groups
    }


def _replay_address(program: lp.Program) -> str:
    (replay,) = program.groups["replay"]
    return replay.reverb_address.resolve()


def _watch_for_interrupt() -> threading.Event:
    """Note Ctrl-C, and let Launchpad stop the nodes as it does anyway."""
    interrupted = threading.Event()
    launchpad_handler: Any = signal.getsignal(signal.SIGINT)

    def handle(signum: int, frame: Any) -> None:
        interrupted.set()
        launchpad_handler(signum, frame)

    signal.signal(signal.SIGINT, handle)
    return interrupted


def _wait_for_nodes(manager: Any) -> bool:
    """Wait until all nodes have left; return whether one of them left by itself, unasked."""
    manager.wait(raise_error=False, return_on_first_completed=True)
    stopped = manager.stop_event().wait(_STOP_GRACE_SECONDS)
    if not stopped:
        os.kill(os.getpid(), signal.SIGTERM)  # As `lp.stop` does in the nodes.
    manager.wait(raise_error=False)
    return not stopped


def _conclude(experiment: Experiment, interrupted: bool, died: bool) -> int:
    """Print how the run ended and return the exit code."""
    workdir = pathlib.Path(experiment.workdir)
    failure = _read(workdir / FAILURE_FILE)
    summary = _read(workdir / SUMMARY_FILE)
    print()
    if failure:
        log = workdir / "logs" / f"{failure['node']}.log"
        print(f"Node {failure['node']} failed: {failure['error']}")
        if log.exists():  # Threads of one process print into its terminal instead.
            print(f"Its output is in {log}")
        return EXIT_FAILURE
    if died:
        print(f"A node died; the ends of the files in {workdir / 'logs'} may say why.")
        return EXIT_FAILURE
    for name, value in summary.items():
        print(f"{name.replace('_', ' '):>18}: {value}")
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS if summary.get("finished") else EXIT_TERMINATED


def _read(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
