"""Trains an agent from Python, as the commands do.

This module imports nothing that is slow to import: the nodes' processes are forked from one that
imports TensorFlow while this one does the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from apex_agents.nodes.fork_server import close_server, has_server, open_server
from apex_agents.process_state import restoring_process
from apex_agents.stopwatch import Stopwatch

if TYPE_CHECKING:
    from apex_agents.callbacks import EvaluationRecord
    from apex_agents.config import ExperimentConfig
    from apex_agents.ending import Run
    from apex_agents.metrics.exports import Export

# Imported by the process from which nodes are forked.
NODE_MODULES = ("apex_agents.program", "apex_agents.registry")


def train(  # noqa: PLR0913
    config: ExperimentConfig,
    *,
    environment_fn: Callable[..., Any] | None = None,
    torso_fn: Callable[..., Any] | None = None,
    builder_fn: Callable[..., Any] | None = None,
    workdir: str | pathlib.Path | None = None,
    launch_type: str = "local_mp",
    is_live: bool = True,
    ray_address: str = "auto",
    wandb: str | None = None,
    exports: Sequence[Export] = (),
    initial_run: str | pathlib.Path | None = None,
    on_evaluation: Callable[[EvaluationRecord], Any] | None = None,
    name: str = "run",
    stopwatch: Stopwatch | None = None,
) -> Run:
    """Train an agent until its run is over, in processes of their own; show the progress.

    Ctrl-C stops the run, which the same call with the same `workdir` resumes; another one kills all
    processes (a second later at the earliest). SIGTERM stops the run and then ends the program.
    User code that runs in this process may change its folder, umask, environment
    variables, global random numbers, logging or warnings: in the end they are as they were.

    Args:
      config: settings of the agent, the environment and the run.
      environment_fn: maker of one environment, a `gymnasium.Env` or `dm_env.Environment`, in place
        of the config's suite and task; called with the keyword arguments `environment.kwargs`.
      torso_fn: maker of the networks' torsos in place of those that the config names; called with
        the environment's spec and the agent's config.
      builder_fn: maker of the agent's builder, such as a subclass of `ApexDQNBuilder`, in place of
        the one that `config.agent` names; called with that config and `torso_fn`.
      workdir: folder for logs and checkpoints, whose run is resumed; None: a new one in `runs/`.
      launch_type: where nodes run: 'local_mp', as processes of this machine; 'local_mt', as threads
        of this process; 'ray', as processes on the hosts of a Ray cluster.
      is_live: whether to show a live view if the output is a terminal; plain lines otherwise.
      ray_address: 'HOST:PORT' of the cluster's head, or 'auto' for this machine's cluster.
      wandb: Weights & Biases project that the metrics are sent to; None for none.
      exports: further receivers of the metrics, such as another tracker: objects with the methods
        of `metrics.exports.Export`, which are called in a thread of this process.
      initial_run: folder of another run, of the same networks and optimizers; a new run starts with
        what the newest checkpoint of that one holds of them, at learner step 0.
      on_evaluation: function that is called in this process after each evaluation, in the thread
        that shows and exports the run, which waits for it, in the end until a signal. If it returns
        True, the run is over; if it raises, the run is stopped, and the error raised here. Either
        way it is saved, and can be resumed.
      name: beginning of the name of a new folder, or of its path, see `new_workdir`.
      stopwatch: measures the wall time of the run; by default from now.

    Returns:
      The run, which is over, or was stopped by Ctrl-C.

    Raises:
      ValueError: a setting, the folder or the place is not suitable; nothing was started.
      RuntimeError: a node failed, nothing was learned, or the last parameters were not saved.
      SystemExit: the run was stopped by SIGTERM; with exit code 143.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("Training has to be started in the main thread, which receives signals.")
    stopwatch = stopwatch or Stopwatch()
    with restoring_process(), _serving_forks(launch_type), contextlib.ExitStack() as stack:
        # These import TensorFlow.
        from apex_agents.experiment import make_experiment
        from apex_agents.launcher import launch, make_backend
        from apex_agents.runs.workdir import new_workdir
        from apex_agents.user_code import take_new_definitions

        take_new_definitions()
        backend = make_backend(launch_type, ray_address)
        folder = workdir or stack.enter_context(new_workdir(name))
        experiment = make_experiment(
            config,
            environment_fn=environment_fn,
            torso_fn=torso_fn,
            builder_fn=builder_fn,
            workdir=str(folder),
        )
        experiment = dataclasses.replace(experiment, stopwatch=stopwatch)
        return launch(experiment, backend, is_live, wandb, exports, initial_run, on_evaluation)


@contextlib.contextmanager
def _serving_forks(launch_type: str) -> Iterator[None]:
    """Let processes of this machine be forked, unless a command has seen to that already."""
    if has_server() or launch_type != "local_mp":
        yield
        return
    open_server(NODE_MODULES)
    try:
        yield
    finally:
        close_server()
