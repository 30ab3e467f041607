"""The command line that all agents share: flags in, exit code out."""

import difflib
import functools
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

# Read when TensorFlow is imported, here and in the nodes' processes: its notes on missing GPU
# drivers are no news on most machines, and its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags
from ml_collections import config_flags

from apex_agents.builder import Builder
from apex_agents.environments import make_lanes
from apex_agents.experiment import Experiment, ExperimentConfig
from apex_agents.program import make_program
from apex_agents.running.isolation import isolate
from apex_agents.running.launcher import launch_program
from apex_agents.running.workdir import open_workdir, read_run_id
from apex_agents.validation import field_paths

LAUNCH_TYPES = ("local_mp", "local_mt")
EXIT_USAGE = 2

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder for logs and checkpoints, of a new run or of one that goes on; a new one in runs/ by "
    "default.",
)
_ISOLATE = flags.DEFINE_bool(
    "isolate",
    False,
    "Run in a network namespace of its own (Linux): nobody outside of the run reaches its replay "
    "server, and the run reaches nothing outside: no DNS, no downloads, no Weights & Biases.",
)


def run(make_builder: Callable[[Any], Builder], default_config: str) -> None:
    """Parse the command line, train, and exit.

    Args:
      make_builder: makes the agent's builder from `config.agent`.
      default_config: file of the configuration used without --config.
    """
    app.run(
        functools.partial(_main, make_builder),
        flags_parser=functools.partial(_parse_flags, default_config),
    )


def _main(make_builder: Callable[[Any], Builder], argv: Sequence[str]) -> None:
    config: ExperimentConfig = flags.FLAGS.config
    config_flag: Any = flags.FLAGS["config"]
    launch_type = flags.FLAGS.lp_launch_type
    try:
        if len(argv) > 1:
            raise ValueError(f"{argv[1]!r} is not a flag; flags begin with --.")
        if _ISOLATE.value:
            isolate()  # First: it begins this command anew.
        if launch_type not in LAUNCH_TYPES:
            raise ValueError(f"--lp_launch_type={launch_type} does not work; use {LAUNCH_TYPES}.")
        config.validate()
        experiment = Experiment(
            builder=make_builder(config.agent),
            make_lanes=functools.partial(make_lanes, config.environment),
            run=config.run,
            workdir="",
        )
        experiment.builder.check_environment(experiment.environment_spec())
        name = pathlib.Path(config_flag.config_filename).stem
        experiment.workdir = open_workdir(_WORKDIR.value, name, config)
        experiment.run_id = read_run_id(experiment.workdir)
    except ValueError as error:
        _fail(error)
    sys.exit(launch_program(make_program(experiment), experiment, launch_type))


def _parse_flags(default_config: str, argv: Sequence[str]) -> list[str]:
    words = re.findall(r"(?:^|\0)--?config[=\0]([^\0]*)", "\0".join(argv[1:]))
    path = words[-1] if words else default_config
    if not pathlib.Path(path).is_file():
        known = sorted(str(file) for file in pathlib.Path(default_config).parent.glob("*.py"))
        _fail(f"--config={path} is no file; there are {', '.join(known)}.")
    try:
        config_flags.DEFINE_config_file(
            "config", default_config, "File of the settings; --config.FIELD=VALUE changes one."
        )
        for name in ("config", "workdir", "isolate", "lp_launch_type"):  # What --help shows.
            flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS[name])
        return flags.FLAGS(argv)
    except flags.Error as error:
        _fail(str(error).splitlines()[0])
    except KeyError as error:
        _fail(_explain_misspelt_field(path, argv) or error)
    except Exception as error:  # A config file is code: anything may be wrong with it.
        _fail(f"--config={path} cannot be read: {type(error).__name__}: {error}")


def _explain_misspelt_field(path: str, argv: Sequence[str]) -> str | None:
    """Name the field that the config lacks, and the closest one that it has."""
    spec = importlib.util.spec_from_file_location("config", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = field_paths(module.get_config())
    overrides = [re.match(r"--?(?:no)?config\.([^=]*)", arg) for arg in argv]
    for field in (match[1] for match in overrides if match):
        if field not in known:
            closest = difflib.get_close_matches(field, known, 1, 0.0)[0]
            return f"--config.{field} does not exist in {path}; the closest is --config.{closest}."
    return None


def _fail(message: object) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)
