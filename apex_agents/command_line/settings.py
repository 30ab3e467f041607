"""The flag --config and those of its fields, and what is made of them."""

import difflib
import functools
import os
import pathlib
import re
import runpy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from errors import fail
from ml_collections import config_flags

from apex_agents.builder import Builder
from apex_agents.config import ExperimentConfig
from apex_agents.environments import EnvironmentSpec, make_vector_environment
from apex_agents.experiment import Experiment
from apex_agents.validation import field_paths


def parse_config_flags(default_config: str, shown: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Parse a command line with --config, or exit with one line that says what is wrong.

    Args:
      default_config: file of the configuration used without --config.
      shown: names of the other flags that --help shows.
      argv: the command line.

    Returns:
      What is left of it: the command's name, and what are no flags.
    """
    try:
        argv = flags.FLAGS.read_flags_from_files(list(argv), force_gnu=False)
        _check_config_file(default_config, argv)
        config_flags.DEFINE_config_file(
            "config", default_config, "File of the settings; --config.FIELD=VALUE changes one."
        )
        for name in ("config", *shown):
            flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS[name])
        return flags.FLAGS(argv)
    except flags.Error as error:
        fail(error)
    except Exception as error:  # What else the parsers of flags may raise.
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")


def make_experiment(
    make_builder: Callable[[Any], Builder], config: ExperimentConfig
) -> tuple[Experiment, EnvironmentSpec]:
    """Make an experiment that has no work directory yet, and look at its environment.

    Args:
      make_builder: makes the agent's builder from `config.agent`.
      config: all settings.

    Returns:
      The experiment, and the spec of one environment.

    Raises:
      ValueError: a field has a value that cannot work, or the agent does not fit the environment.
    """
    config.validate()
    experiment = Experiment(
        builder=make_builder(config.agent),
        make_vector_environment=functools.partial(make_vector_environment, config.environment),
        run=config.run,
        workdir="",
        task=config.environment.task,
    )
    with warnings.catch_warnings():  # The nodes make it too, and warn.
        warnings.simplefilter("ignore")
        spec = experiment.environment_spec()
    experiment.builder.check_environment(spec)
    return experiment, spec


def _check_config_file(default_config: str, argv: Sequence[str]) -> None:
    """Fail unless the config can be read and has the fields that are to be changed."""
    paths = re.findall(r"(?:^|\0)--?config[=\0]([^\0]*)", "\0".join(argv[1:])) or [default_config]
    path = paths[-1]
    if len(paths) > 1:
        fail(f"--config is given {len(paths)} times: {', '.join(paths)}.")
    if ":" in path or not os.path.isfile(path):  # What follows a colon would be an argument.
        known = sorted(str(file) for file in pathlib.Path(default_config).parent.glob("*.py"))
        fail(f"--config={path} is no file; there are {', '.join(known)}.")
    try:
        config = runpy.run_path(path)["get_config"]()
    except (Exception, SystemExit) as error:  # It is code: anything may be wrong with it.
        fail(f"--config={path} cannot be read: {type(error).__name__}: {error}")
    if not isinstance(config, ExperimentConfig):
        fail(f"--config={path} gives {config!r}; it has to be an ExperimentConfig.")
    fields = field_paths(config)
    overrides = [re.match(r"--?(?:no)?config\.([^=]*)", arg) for arg in argv]
    for field in (match[1] for match in overrides if match):
        if field not in fields:
            closest = difflib.get_close_matches(field, fields, 1, 0.0)[0]
            fail(f"--config.{field} is no field of {path}; the closest is --config.{closest}.")
