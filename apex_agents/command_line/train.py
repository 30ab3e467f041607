r"""Trains an Ape-X agent.

Examples:
  python launch/apex_dqn.py --lp_launch_type=local_mp
  python launch/apex_dqn.py --config=apex_dqn_atari_single_host --config.environment.task=breakout
  python launch/apex_dpg.py --config=apex_dpg_control --config.environment.task=humanoid:walk
  apex-dqn --config=my_settings.py --workdir=runs/first --config.agent.batch_size=64
"""

import dataclasses
import functools
import pathlib
import shutil

from absl import flags
from rich import filesize

from apex_agents.command_line.errors import fail, leave, warn
from apex_agents.command_line.settings import Settings, run_with_settings
from apex_agents.experiment import Experiment, check_environment, make_experiment
from apex_agents.launcher import LAUNCH_TYPES, launch_program, make_backend
from apex_agents.metrics.exports import Export
from apex_agents.metrics.tensorboard_export import TensorBoardExport
from apex_agents.metrics.wandb_export import WandbExport
from apex_agents.nodes.fork_server import close_server
from apex_agents.nodes.host import available_memory
from apex_agents.nodes.isolation import isolate
from apex_agents.program import make_program
from apex_agents.registry import AGENTS, CONFIG_CLASSES, find_agent
from apex_agents.replay.footprint import memory_warning
from apex_agents.runs.checkpoints import find_progress
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.workdir import TENSORBOARD, open_workdir, read_run_id

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder for logs and checkpoints; the run that it holds is resumed. By default a new folder in "
    "runs/.",
)
# Launchpad defines a flag of this name with other types.
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
    "With --lp_launch_type=ray: HOST:PORT of the cluster's head, or 'auto' for the cluster of "
    "this machine.",
)
_ISOLATE = flags.DEFINE_bool(
    "isolate",
    False,
    "Run in a network namespace of its own (Linux): the replay server cannot be reached from "
    "outside of the run, and the run has no network: no DNS, no downloads, no Weights & Biases.",
)
_MONITOR = flags.DEFINE_bool(
    "monitor",
    True,
    "Show a live view in the terminal; --nomonitor prints a line every ten seconds instead, which "
    "is also done if the output is not a terminal.",
)
_WANDB = flags.DEFINE_string(
    "wandb",
    None,
    "Weights & Biases project that the metrics are sent to; with WANDB_MODE=offline in the "
    "environment they stay in the run's folder. Needs the package wandb.",
)


def main(agent: str) -> None:
    """Train the agent of this name, and exit."""
    train = functools.partial(_train, agent)
    run_with_settings(train, AGENTS[agent].default_config, agent)


def _train(agent: str, settings: Settings) -> None:
    config = settings.config
    try:
        backend = make_backend(_LAUNCH_TYPE.value, _RAY_ADDRESS.value)
        if _ISOLATE.value:
            if not backend.is_local:
                raise ValueError("--isolate and --lp_launch_type=ray exclude each other.")
            isolate()  # It executes this command again, so that nothing may happen before.
        experiment = make_experiment(config)
        _check_agent(agent, config.agent)
        spec = check_environment(experiment)
        replay_bytes = experiment.builder.estimate_replay_bytes(spec)
        if backend.is_local:
            warning = memory_warning(config.agent.replay, replay_bytes, available_memory())
            if warning is not None:
                warn(warning)
        else:
            close_server()  # It forks processes of this machine only.
        backend.prepare(config.run)
        workdir = open_workdir(_WORKDIR.value, settings.path.stem, config)
        experiment = dataclasses.replace(
            experiment,
            workdir=workdir,
            run_id=read_run_id(workdir),
            resumed_at=find_progress(workdir),
        )
        if backend.is_local:
            _print_checkpoint_size(experiment, replay_bytes)
        exports = _open_exports(experiment)
    except ValueError as error:
        fail(error)
    program = make_program(experiment)
    # Launchpad kills threads that take longer than this to stop, 10 s by default.
    stop_seconds = max(node.role.stop_seconds for node in program.get_all_nodes())
    flags.FLAGS.set_default("lp_termination_notice_secs", int(stop_seconds))
    leave(launch_program(program, experiment, backend, _MONITOR.value, exports))


def _check_agent(agent: str, agent_config: object) -> None:
    """Raise a ValueError if the settings are those of another agent."""
    found = find_agent(agent_config)
    if found != agent:
        kinds = [CONFIG_CLASSES[name].__name__ for name in (found, agent)]
        command = found.replace("_", "-")
        raise ValueError(
            f"agent is an {kinds[0]}; it has to be an {kinds[1]}. Use the command {command}, "
            f"which is launch/{found}.py."
        )


def _print_checkpoint_size(experiment: Experiment, replay_bytes: int) -> None:
    period = experiment.run.replay_checkpoint_period_seconds
    if period is not None:
        free = shutil.disk_usage(experiment.workdir).free
        print(
            f"The replay is saved every {period:g} s and at the end: up to "
            f"{filesize.decimal(replay_bytes)} each time, twice that while the previous checkpoint "
            f"exists; {filesize.decimal(free)} of the disk are free."
        )


def _open_exports(experiment: Experiment) -> list[Export]:
    exports: list[Export] = [TensorBoardExport(pathlib.Path(experiment.workdir, TENSORBOARD))]
    if _WANDB.value is not None:
        wandb = WandbExport(RunFolder(experiment.workdir), _WANDB.value, experiment.run_id)
        print(f"Weights & Biases: {wandb.place}")
        exports.append(wandb)
    return exports
