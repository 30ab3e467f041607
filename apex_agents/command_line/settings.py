"""The flag --config and the flags of its fields."""

import ast
import difflib
import os
import pathlib
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app, flags
from ml_collections import config_flags

from apex_agents.command_line.errors import fail, refuse_arguments
from apex_agents.config import ExperimentConfig
from apex_agents.user_code import execute_config_file, extend_path
from apex_agents.validation import field_paths

# Within the package where it is installed, beside it in a checkout.
_PACKAGE = pathlib.Path(__file__).resolve().parent.parent
CONFIGS = next(
    folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir()
)


class _DictParser(flags.ArgumentParser):
    """Parser of a dict as Python writes it: "{'size': 7}"."""

    def parse(self, argument: Any) -> dict:
        value = argument if isinstance(argument, dict) else ast.literal_eval(argument)
        if not isinstance(value, dict):
            raise ValueError(f"it has to be a dict such as {{'size': 7}}, not {argument!r}")
        return value


config_flags.register_flag_parser_for_type(dict, _DictParser())


class Settings(NamedTuple):
    """The settings that a command line asks for.

    Attributes:
      config: settings of the experiment, overrides applied.
      path: file from which they come.
      overrides: new values of fields, by dotted path.
    """

    config: ExperimentConfig
    path: pathlib.Path
    overrides: Mapping[str, Any]


def run_with_settings(
    command: Callable[[Settings], None], default: str, shown: Sequence[str]
) -> None:
    """Run a command that has the flag --config.

    Args:
      command: called with the settings of the command line; exits.
      default: name of the settings used without --config.
      shown: names of the other flags that --help shows.
    """
    # Until the command handles it, Ctrl-C ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parsed: list[Settings] = []

    def parse(argv: Sequence[str]) -> list[str]:
        settings, arguments = _parse(default, shown, argv)
        parsed.append(settings)
        return arguments

    def run(argv: Sequence[str]) -> None:
        refuse_arguments(argv)
        command(parsed[0])

    app.run(run, flags_parser=parse)


def _parse(default: str, shown: Sequence[str], argv: Sequence[str]) -> tuple[Settings, list[str]]:
    """Return the settings of a command line and its arguments that are no flags, or exit."""
    try:
        argv = flags.FLAGS.read_flags_from_files(list(argv), force_gnu=False)
        value, argv = _take_config_flag(argv, default)
        path = find_config(value)
        config = load_config(path)
        _check_fields(config, path, argv)
        config_flags.DEFINE_config_dataclass(
            "config",
            config,
            "Settings: a name such as apex_dqn_cartpole, or a Python file; --config.FIELD=VALUE "
            "changes one of them.",
            sys_argv=argv,
        )
        flags.FLAGS["config"].default_as_str = f"'{value}'"  # What --help shows.
        for name in ("config", *shown):
            flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS[name])
        arguments = flags.FLAGS(argv)
    except flags.Error as error:
        fail(error)
    except Exception as error:  # Parsers of single flags raise errors of other types, too.
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")
    flag: Any = flags.FLAGS["config"]
    return Settings(flags.FLAGS.config, path, flag.override_values), arguments


def find_config(value: str) -> pathlib.Path:
    """Return the file that --config names, by its path or by its name in `CONFIGS`, or exit."""
    path = pathlib.Path(value).expanduser()
    named = CONFIGS / f"{value.removesuffix('.py')}.py"
    for file in (path, named):
        try:
            if file.is_file():
                return file
        except (OSError, ValueError):  # Such as a name that is too long.
            continue
    known = sorted(file.stem for file in CONFIGS.glob("*.py"))
    containing = [name for name in known if path.stem in name]
    closest = min(containing or difflib.get_close_matches(path.stem, known, 1, 0.0), key=len)
    fail(
        f"--config={value} is neither a file nor one of {', '.join(known)}; "
        f"the closest is --config={closest}."
    )


def load_config(path: pathlib.Path) -> ExperimentConfig:
    """Execute a file of settings, once, and return its config, or exit.

    From then on modules in the current folder and in that of the file can be imported.
    """
    is_ours = path.resolve().parent == CONFIGS
    extend_path([os.getcwd(), *([] if is_ours else [str(path.absolute().parent)])])
    try:
        config = execute_config_file(path, is_recorded=not is_ours)
    except (Exception, SystemExit) as error:  # The file is code and may raise anything.
        fail(f"--config={path} cannot be read: {type(error).__name__}: {error}")
    if not isinstance(config, ExperimentConfig):
        fail(f"--config={path} gives {config!r}; it has to be an ExperimentConfig.")
    return config


def _take_config_flag(argv: Sequence[str], default: str) -> tuple[str, list[str]]:
    """Return the value of --config, and the command line without this flag."""
    values, rest, arguments = [], [], iter(argv)
    for argument in arguments:
        match = re.fullmatch(r"--?config(?:=(.*))?", argument, re.DOTALL)
        if match is None:
            rest.append(argument)
        else:
            values.append(next(arguments, "") if match[1] is None else match[1])
    if len(values) > 1:
        fail(f"--config is given {len(values)} times: {', '.join(values)}.")
    return (values or [default])[0], rest


def _check_fields(config: ExperimentConfig, path: pathlib.Path, argv: Sequence[str]) -> None:
    """Exit unless the config has all fields that are to be changed."""
    fields = field_paths(config)
    overrides = [re.match(r"--?(?:no)?config\.([^=]*)", argument) for argument in argv]
    for field in (match[1] for match in overrides if match):
        if field not in fields:
            closest = difflib.get_close_matches(field, fields, 1, 0.0)[0]
            fail(f"--config.{field} is no field of {path}; the closest is --config.{closest}.")
