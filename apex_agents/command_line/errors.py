"""How commands report mistakes: in one line on standard error, with exit code 2."""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import flags

from apex_agents.exit_codes import EXIT_SUCCESS, EXIT_USAGE

_MAX_LINE_LENGTH = 2000


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


def parse_flags(
    argv: Sequence[str], suggest: Callable[[str], str | None] = lambda name: None
) -> list[str]:
    """Parse the flags of a command, for `app.run`.

    Args:
      argv: the command line, which begins with the command's name.
      suggest: says in a clause what is meant by the name of an unknown flag; None for no idea.

    Returns:
      The arguments that are no flags.
    """
    try:
        return flags.FLAGS(list(argv))
    except flags.UnrecognizedFlagError as error:
        meant = suggest(error.flagname)
        fail(f"--{error.flagname} is no flag; {meant}." if meant else error)
    except flags.Error as error:
        fail(error)
    except SystemExit:  # Of --help; absl has another exit code for it.
        leave(EXIT_SUCCESS)


def refuse_arguments(argv: Sequence[str]) -> None:
    """Fail if there are arguments that are no flags; `argv` begins with the command's name."""
    if len(argv) > 1:
        fail(f"{argv[1]!r} is not a flag; flags begin with --.")


def take_run(argv: Sequence[str], workdir: str | None) -> str:
    """Return the folder of the one run that a command line names, or fail.

    Args:
      argv: the arguments that are no flags, after the command's name.
      workdir: value of the flag --workdir.
    """
    named = [*argv[1:], *([workdir] if workdir is not None else [])]
    if len(named) != 1:
        given = " and ".join(map(repr, named)) or "no folder"
        fail(f"{given} given; name the folder of one run, as RUN or --workdir=RUN.")
    return named[0]


def _print_line(kind: str, message: object) -> None:
    """Print a message that may quote anything, control characters included, as one line."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(message))
    if len(line) > _MAX_LINE_LENGTH:
        line = f"{line[: _MAX_LINE_LENGTH // 2]} ... {line[-_MAX_LINE_LENGTH // 2 :]}"
    print(f"{kind}: {line}", file=sys.stderr)
