"""The arguments of a command: flags, the folder of a run, and mistakes, which are told in one line.

A flag that several commands have is defined for the command that calls its function here.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from absl import flags

from apex_agents.exit_codes import EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE

flags.disclaim_key_flags()

_MAX_LINE_LENGTH = 2000
_HELP = {"--help", "-help", "-h"}

# User code, such as the module of an environment, may change the folder later.
try:
    STARTED_IN = pathlib.Path.cwd()
except FileNotFoundError:  # The folder has been removed.
    STARTED_IN = pathlib.Path()


def run_command(command: Callable[[list[str]], None]) -> None:
    """Run a command with its arguments that are no flags.

    Args:
      command: function of the module that has the flags, and a docstring for --help. Ctrl-C ends it
        without a traceback once it has installed Python's handler.
    """
    arguments = parse_flags(command.__module__, read_flag_files(sys.argv))
    try:
        command(arguments)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def mistakes_end_command(
    kinds: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> Iterator[None]:
    """Print an error of some kinds as one line, and exit; also decorates a command."""
    try:
        yield
    except kinds as error:
        fail(error)


def read_flag_files(argv: Sequence[str]) -> list[str]:
    """Return a command line with the flags of files that --flagfile names, or exit."""
    try:
        return flags.FLAGS.read_flags_from_files(list(argv), force_gnu=False)
    except (flags.Error, ValueError) as error:
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")


def parse_flags(
    module: str,
    argv: Sequence[str],
    suggest: Callable[[str], str | None] = lambda name: None,
    describe: Callable[[], Iterable[str]] = tuple,
) -> list[str]:
    """Parse the flags of a command, or show its help and exit.

    Args:
      module: name of the module that defines them, and whose docstring --help shows.
      argv: the command line, which begins with the command's name.
      suggest: returns a clause that names the flag meant by an unknown one; None without a guess.
      describe: returns further lines of --help.

    Returns:
      The arguments that are no flags.
    """
    if not _HELP.isdisjoint(argv):
        with contextlib.suppress(BrokenPipeError):  # The reader has exited, as `head` does.
            text = sys.modules[module].__doc__
            print(text, flags.FLAGS.module_help(module), *describe(), sep="\n", flush=True)
        leave(EXIT_SUCCESS)
    try:
        arguments = flags.FLAGS(list(argv))[1:]
    except flags.UnrecognizedFlagError as error:
        meant = suggest(error.flagname)
        fail(f"--{error.flagname} is no flag; {meant}." if meant else error)
    except flags.Error as error:
        fail(error)
    except Exception as error:  # Parsers of single flags raise errors of other types, too.
        fail(f"{' '.join(argv[1:])} cannot be read: {type(error).__name__}: {error}")
    for flag in (flags.FLAGS[name] for name in flags.FLAGS):
        if flag.value == "" and flag.default is None:
            fail(f"--{flag.name} is empty, as with a variable that is not set; leave it out.")
    return arguments


def refuse_arguments(arguments: Sequence[str]) -> None:
    """Fail if there are arguments that are no flags."""
    if arguments:
        fail(f"{arguments[0]!r} is not a flag; flags begin with --.")


def take_run(arguments: Sequence[str], workdir: str | None) -> pathlib.Path:
    """Return the absolute path of the one run that a command line names, or fail.

    Args:
      arguments: the arguments that are no flags.
      workdir: value of the flag --workdir.
    """
    named = [*arguments, *([workdir] if workdir is not None else [])]
    if len(named) != 1:
        given = " and ".join(map(repr, named)) or "no folder"
        fail(f"{given} given; name the folder of one run, as RUN or --workdir=RUN.")
    return locate(named[0])


def locate(path: str) -> pathlib.Path:
    """Return the absolute path that is meant; one with the ~ of an unknown user stays as it is."""
    expanded = os.path.expanduser(path)
    return pathlib.Path(expanded) if expanded.startswith("~") else STARTED_IN / expanded


def define_workdir() -> flags.FlagHolder[str | None]:
    """Define --workdir, for `take_run`."""
    return flags.DEFINE_string("workdir", None, "Folder of the run, if RUN is not given.")


def define_wandb() -> flags.FlagHolder[str | None]:
    """Define --wandb, for `training.train`."""
    return flags.DEFINE_string(
        "wandb",
        None,
        "Weights & Biases project that the metrics are sent to; with WANDB_MODE=offline in the "
        "environment they stay in the run's folder. Needs the package wandb.",
    )


def define_checkpoint() -> flags.FlagHolder[str]:
    """Define --checkpoint, for `checkpoints.find_parameters`."""
    return flags.DEFINE_string(
        "checkpoint",
        "best",
        "Parameters: 'best', those of the best evaluation; 'last', the newest; the name of a "
        "checkpoint of the learner, such as learner-000000001234; or the path of a checkpoint or "
        "of an .npz file.",
    )


def fail(message: object, exit_code: int = EXIT_USAGE) -> NoReturn:
    """Print one line and exit."""
    _print_line("error", message)
    sys.exit(exit_code)


def print_failure(message: object) -> None:
    """Print several lines on standard error, in red if it is a terminal."""
    text = f"error: {message}"
    with contextlib.suppress(OSError):
        has_colours = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        is_red = has_colours and not os.environ.get("NO_COLOR")
        print(f"\033[31m{text}\033[0m" if is_red else text, file=sys.stderr)


def leave(exit_code: int) -> NoReturn:
    """Exit, also if the output is a file on a full disk: Python has its own exit code for that."""
    try:
        sys.stdout.flush()
    except OSError:
        os._exit(exit_code)
    sys.exit(exit_code)


def warn(message: object) -> None:
    """Print one line."""
    _print_line("warning", message)


def _print_line(kind: str, message: object) -> None:
    """Print a message that may quote anything, control characters included, as one line."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(message))
    if len(line) > _MAX_LINE_LENGTH:
        line = f"{line[: _MAX_LINE_LENGTH // 2]} ... {line[-_MAX_LINE_LENGTH // 2 :]}"
    print(f"{kind}: {line}", file=sys.stderr)
