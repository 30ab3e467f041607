"""Which runs a sweep consists of; everything that can be checked is checked before the first."""

import dataclasses
import pathlib
import re
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import app, flags
from errors import fail, refuse_arguments, warn

from apex_agents.plotting.run_groups import LIMITS, flatten
from apex_agents.runs.config_file import CONFIG_FILE, check_same_run
from apex_agents.runs.folder import RunFolder

ROOT = pathlib.Path(__file__).resolve().parent.parent
_DEFAULT_CONFIG = str(ROOT / "configs" / "apex_dqn_cartpole.py")
_MAX_PARALLEL = 1000

_SEEDS = flags.DEFINE_integer(
    "seeds", 5, "Runs of each task; their seeds count up from that of the config.", 1, 10_000
)
_GAMES = flags.DEFINE_list(
    "games",
    [],
    "Tasks of the config's suite, with commas between them: games, for Atari. By default that of "
    "the config.",
)
_PARALLEL = flags.DEFINE_integer("parallel", 1, "Runs at once.", 1, _MAX_PARALLEL)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the sweep, a new one or one that goes on; a new one in sweeps/ by default.",
)


class PlannedRun(NamedTuple):
    """One run of a sweep.

    Attributes:
      task: the task's name.
      seed: its seed.
      folder: its work directory.
      argv: the command that makes it, or goes on with it.
      is_finished: whether there is nothing left to do.
    """

    task: str
    seed: int
    folder: pathlib.Path
    argv: tuple[str, ...]
    is_finished: bool

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.task}, seed {self.seed}"


class Plan(NamedTuple):
    """What a sweep does.

    Attributes:
      folder: of the sweep; it is there.
      runs: task by task.
      num_parallel: how many are made at once.
    """

    folder: pathlib.Path
    runs: Sequence[PlannedRun]
    num_parallel: int


def make_plan(argv: Sequence[str]) -> Plan:
    """Read a command line, or exit with one line that says what is wrong.

    This imports TensorFlow, half a gigabyte: call it in a process of its own.
    """
    from settings import parse_config_flags

    app.define_help_flags()
    arguments = parse_config_flags(_DEFAULT_CONFIG, ("seeds", "games", "parallel", "workdir"), argv)
    refuse_arguments(arguments)
    config: Any = flags.FLAGS.config
    config_flag: Any = flags.FLAGS["config"]
    name = f"{pathlib.Path(config_flag.config_filename).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = pathlib.Path(_WORKDIR.value or pathlib.Path("sweeps", name)).expanduser().absolute()
    runs = []
    try:
        for task in dict.fromkeys(_GAMES.value or [config.environment.task]):
            config.environment.task = task
            script = _check(config, _PARALLEL.value)
            command = [sys.executable, script, *_make_flags(config_flag)]
            runs += [
                _plan_run(config, config.run.seed + i, folder, command) for i in range(_SEEDS.value)
            ]
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        fail(error)
    except OSError as error:
        fail(f"--workdir={folder} cannot be written: {error.strerror}.")
    return Plan(folder, runs, _PARALLEL.value)


def _check(config: Any, num_parallel: int) -> str:
    """Return the command for a config's agent; raise a ValueError if it cannot work."""
    from settings import make_experiment

    from apex_agents.dpg.builder import ApexDPGBuilder
    from apex_agents.dpg.config import ApexDPGConfig
    from apex_agents.dqn.builder import ApexDQNBuilder
    from apex_agents.dqn.config import ApexDQNConfig
    from apex_agents.replay.footprint import available_memory, memory_warning

    agents: dict[type, tuple[Any, str]] = {
        ApexDQNConfig: (ApexDQNBuilder, "apex_dqn.py"),
        ApexDPGConfig: (ApexDPGBuilder, "apex_dpg.py"),
    }
    if type(config.agent) not in agents:
        names = ", ".join(agent.__name__ for agent in agents)
        raise ValueError(f"agent is {config.agent!r}; it has to be one of {names}.")
    make_builder, script = agents[type(config.agent)]
    experiment, spec = make_experiment(make_builder, config)
    if all(limit is None for limit in map(flatten(dataclasses.asdict(config)).get, LIMITS)):
        raise ValueError(f"the first run would never end: set one of {', '.join(LIMITS)}.")
    replay_bytes = experiment.builder.estimate_replay_bytes(spec)
    warning = memory_warning(config.agent.replay, replay_bytes, available_memory() // num_parallel)
    if warning is not None:
        share = f" (It is one of {num_parallel} at once.)" if num_parallel > 1 else ""
        warn(f"{config.environment.task}: {warning}{share}")
    return str(ROOT / "launch" / script)


def _make_flags(config_flag: Any) -> list[str]:
    """Return the flags that give every run the settings of this command."""
    fields = [f"--config.{path}={value}" for path, value in config_flag.override_values.items()]
    return ["--lp_launch_type=local_mp", f"--config={config_flag.config_filename}", *fields]


def _plan_run(config: Any, seed: int, sweep: pathlib.Path, command: Sequence[str]) -> PlannedRun:
    task = config.environment.task
    folder = sweep / re.sub(r"[^\w.-]", "_", task) / f"seed_{seed}"
    argv = (
        *command,
        f"--config.environment.task={task}",
        f"--config.run.seed={seed}",
        f"--workdir={folder}",
    )
    return PlannedRun(task, seed, folder, argv, _is_finished(folder, config))


def _is_finished(folder: pathlib.Path, config: Any) -> bool:
    """Return whether a run has got to where this one would end.

    Raises:
      ValueError: the folder holds a run of another agent or environment.
    """
    if not (folder / CONFIG_FILE).exists():
        return False
    check_same_run(folder, config)
    run = RunFolder(folder)
    before, now = flatten(run.config), flatten(dataclasses.asdict(config))
    has_ended = (run.summary() or {}).get("finished", False)
    return has_ended and all(before.get(limit) == now[limit] for limit in LIMITS)
