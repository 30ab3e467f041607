"""The command line that all agents share: flags in, exit code out."""

import functools
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

# Read when TensorFlow is imported, here and in the nodes' processes: its notes on missing GPU
# drivers are no news on most machines, and its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags
from errors import fail, refuse_arguments, warn
from rich.filesize import decimal
from settings import make_experiment, parse_config_flags

from apex_agents.builder import Builder
from apex_agents.config import ExperimentConfig
from apex_agents.experiment import Experiment
from apex_agents.launcher import launch_program
from apex_agents.metrics.exports import Export
from apex_agents.metrics.tensorboard_export import TensorBoardExport
from apex_agents.metrics.wandb_export import WandbExport
from apex_agents.nodes.fork_server import close_server
from apex_agents.nodes.host import available_memory
from apex_agents.nodes.isolation import isolate
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.footprint import memory_warning
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import TENSORBOARD, open_workdir, read_run_id

LAUNCH_TYPES = ("local_mp", "local_mt", "ray")
# By --help, besides --config.
_SHOWN_FLAGS = ("workdir", "lp_launch_type", "ray_address", "monitor", "wandb", "isolate")

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder for logs and checkpoints, of a new run or of one that goes on; a new one in runs/ by "
    "default.",
)
# In place of Launchpad's own, which has other types.
_LAUNCH_TYPE = flags.DEFINE_enum(
    "lp_launch_type",
    "local_mp",
    LAUNCH_TYPES,
    "Where nodes run: as processes of this machine, as threads of this process, or as processes on "
    "the hosts of a Ray cluster.",
    allow_override=True,
)
_RAY_ADDRESS = flags.DEFINE_string(
    "ray_address",
    "auto",
    "With --lp_launch_type=ray: HOST:PORT of the cluster's head, 'auto' for the cluster that this "
    "machine belongs to.",
)
_ISOLATE = flags.DEFINE_bool(
    "isolate",
    False,
    "Run in a network namespace of its own (Linux): nobody outside of the run reaches its replay "
    "server, and the run reaches nothing outside: no DNS, no downloads, no Weights & Biases.",
)
_MONITOR = flags.DEFINE_bool(
    "monitor",
    True,
    "Show a live view in the terminal; --nomonitor prints a line every ten seconds instead, as is "
    "done where the output is no terminal.",
)
_WANDB = flags.DEFINE_string(
    "wandb",
    None,
    "Project of Weights & Biases that gets what the CSV files get; with WANDB_MODE=offline in the "
    "environment it stays in the work directory. Needs the package wandb.",
)


def run(make_builder: Callable[[Any], Builder], default_config: str) -> None:
    """Parse the command line, train, and exit.

    Args:
      make_builder: makes the agent's builder from `config.agent`.
      default_config: file of the configuration used without --config.
    """
    # Until the launcher takes over, Ctrl-C ends the command without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    app.run(
        functools.partial(_main, make_builder),
        flags_parser=functools.partial(parse_config_flags, default_config, _SHOWN_FLAGS),
    )


def _main(make_builder: Callable[[Any], Builder], argv: Sequence[str]) -> None:
    config: ExperimentConfig = flags.FLAGS.config
    config_flag: Any = flags.FLAGS["config"]
    launch_type = _LAUNCH_TYPE.value
    refuse_arguments(argv)
    try:
        if launch_type == "ray":
            _refuse_with_ray("--isolate", _ISOLATE.value)
            _refuse_with_ray("run.cpu_split", config.run.cpu_split is not None)
        if _ISOLATE.value:
            isolate()  # First: it begins this command anew.
        experiment, spec = make_experiment(make_builder, config)
        replay_bytes = experiment.builder.estimate_replay_bytes(spec)
        if launch_type == "ray":
            close_server()  # It would fork nodes of this machine.
            _connect(_RAY_ADDRESS.value)
        else:
            _warn_of_memory(config.agent.replay, replay_bytes)
        name = pathlib.Path(config_flag.config_filename).stem
        experiment.workdir = open_workdir(_WORKDIR.value, name, config)
        experiment.run_id = read_run_id(experiment.workdir)
        if launch_type != "ray":
            _tell_size_of_checkpoints(experiment, replay_bytes)
        exports = _open_exports(experiment)
    except ValueError as error:
        fail(error)
    program = make_program(experiment)
    # Launchpad ends a program of threads that take longer than this to leave, 10 s by default.
    stop_seconds = max(node.stop_seconds for node in program.get_all_nodes())
    flags.FLAGS.set_default("lp_termination_notice_secs", int(stop_seconds))
    exit_code = launch_program(program, experiment, launch_type, _MONITOR.value, exports)
    try:
        sys.stdout.flush()
    except OSError:  # A file on a full disk; Python would end with a code of its own.
        os._exit(exit_code)
    sys.exit(exit_code)


def _refuse_with_ray(name: str, is_wanted: bool) -> None:
    """Raise a ValueError if something is wanted that works on a single machine only."""
    if is_wanted:
        raise ValueError(f"{name} and --lp_launch_type=ray exclude each other.")


def _connect(address: str) -> None:
    """Connect to a Ray cluster, or raise a ValueError."""
    try:
        from apex_agents.cluster.placement import connect  # An extra.
    except ImportError as error:
        raise ValueError(
            "--lp_launch_type=ray needs the package ray: pip install 'apex_agents[ray]'."
        ) from error
    connect(address)


def _warn_of_memory(replay: ReplayConfig, replay_bytes: int) -> None:
    """Say now that the replay will be too large, instead of after hours of filling it."""
    warning = memory_warning(replay, replay_bytes, available_memory())
    if warning is not None:
        warn(warning)


def _tell_size_of_checkpoints(experiment: Experiment, replay_bytes: int) -> None:
    """Say what saving the replay takes, if it is to be saved: less than it takes in memory."""
    period = experiment.run.replay_checkpoint_period_seconds
    if period is not None:
        free = shutil.disk_usage(experiment.workdir).free
        print(
            f"Saving the replay every {period:g} s and at the end: up to "
            f"{decimal(replay_bytes)} each time, twice that while the one before is still "
            f"there; the disk has {decimal(free)} free."
        )


def _open_exports(experiment: Experiment) -> list[Export]:
    """Open what gets the rows of the CSV files besides."""
    exports: list[Export] = [TensorBoardExport(pathlib.Path(experiment.workdir, TENSORBOARD))]
    if _WANDB.value is not None:
        run = RunFolder(experiment.workdir)
        wandb = WandbExport(run, _WANDB.value, experiment.run_id)
        print(f"Weights & Biases: {wandb.place}")
        exports.append(wandb)
    return exports
