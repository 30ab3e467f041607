r"""Trains an agent: Ape-X DQN, Ape-X DPG, R2D2, A2C or A3C.

Examples:
  python launch/apex_dqn.py --lp_launch_type=local_mp
  python launch/apex_dqn.py --config=apex_dqn_atari_single_host --config.environment.task=breakout
  python launch/apex_dpg.py --config=apex_dpg_control --config.environment.task=humanoid:walk
  python launch/a2c.py --config=a2c_atari_single_host --config.environment.task=breakout
  apex-dqn --config=my_settings.py --workdir=runs/first --config.agent.batch_size=64
"""

import contextlib
import os
import sys

from absl import flags

from apex_agents.command_line.arguments import (
    STARTED_IN,
    define_wandb,
    fail,
    leave,
    locate,
    print_failure,
)
from apex_agents.command_line.commands import STOPWATCH
from apex_agents.command_line.settings import Settings, run_with_settings
from apex_agents.ending import Run, RunFailure, describe_next_steps
from apex_agents.exit_codes import EXIT_FAILURE, EXIT_SUCCESS, EXIT_TERMINATED
from apex_agents.launcher import LAUNCH_TYPES
from apex_agents.nodes.isolation import isolate
from apex_agents.registry import AGENTS, CONFIG_CLASSES, find_agent
from apex_agents.training import train

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder for logs and checkpoints; the run that it holds is resumed. By default a new folder in "
    "runs/.",
)
_INITIAL_RUN = flags.DEFINE_string(
    "initial_run",
    None,
    "Folder of another run: a new run starts with its networks and optimizers, at learner step 0. "
    "Tasks may differ, observations and actions have to be alike.",
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
    "Run in a separate network namespace (Linux): the replay server cannot be reached from "
    "outside of the run, and the run has no network: no DNS, no downloads, no Weights & Biases.",
)
_MONITOR = flags.DEFINE_bool(
    "monitor",
    True,
    "Show a live view in the terminal; --nomonitor prints a line every ten seconds instead, which "
    "is also done if the output is not a terminal.",
)
_WANDB = define_wandb()


def main(agent: str) -> None:
    """Train the agent of this name, and exit."""
    default = AGENTS[agent].default_config
    run_with_settings(lambda settings: _train(agent, settings), default, agent)


def _train(agent: str, settings: Settings) -> None:
    try:
        if _ISOLATE.value:
            if _LAUNCH_TYPE.value == "ray":
                raise ValueError("--isolate and --lp_launch_type=ray exclude each other.")
            isolate()  # It executes this command again, so that nothing may happen before.
        _check_agent(agent, settings.config.agent)
        run = train(
            settings.config,
            workdir=locate(_WORKDIR.value) if _WORKDIR.value else None,
            launch_type=_LAUNCH_TYPE.value,
            is_live=_MONITOR.value,
            ray_address=_RAY_ADDRESS.value,
            wandb=_WANDB.value,
            initial_run=locate(_INITIAL_RUN.value) if _INITIAL_RUN.value else None,
            name=str(STARTED_IN / "runs" / settings.path.stem),
            stopwatch=STOPWATCH,
        )
    except ValueError as error:
        fail(error)
    except RunFailure as error:
        print_failure(error)
        leave(EXIT_FAILURE)
    except SystemExit:  # Stopped by SIGTERM.
        leave(EXIT_TERMINATED)
    if run.exit_code == EXIT_SUCCESS:
        _print_next_steps(agent, run, settings)
    leave(run.exit_code)


def _print_next_steps(agent: str, run: Run, settings: Settings) -> None:
    os.chdir(STARTED_IN)  # A user module may have left it when it was imported.
    with contextlib.suppress(OSError):  # The output is a file on a full disk, or has no reader.
        for line in describe_next_steps(agent, run.folder, settings.path.stem, sys.argv[0]):
            print(line)


def _check_agent(agent: str, agent_config: object) -> None:
    """Raise a ValueError if the settings belong to a different agent."""
    found = find_agent(agent_config)
    if found != agent:
        kinds = [CONFIG_CLASSES[name].__name__ for name in (found, agent)]
        command = f"apex-{found.removeprefix('apex_')}"
        raise ValueError(
            f"agent is an {kinds[0]}; it has to be an {kinds[1]}. Use the command {command}, "
            f"which is launch/{found}.py."
        )
