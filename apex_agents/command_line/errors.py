"""How commands say that they were given something wrong: in one line, with exit code 2."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import flags

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it.

_MAX_LINE_LENGTH = 2000


def fail(message: object, exit_code: int = EXIT_USAGE) -> NoReturn:
    """Print one line, whatever the message quotes, and exit."""
    _print_line("error", message)
    sys.exit(exit_code)


def warn(message: object) -> None:
    """Print one line, and go on."""
    _print_line("warning", message)


def parse_flags(argv: Sequence[str]) -> list[str]:
    """Parse the flags of a command, for `app.run`; return what is none of them."""
    try:
        return flags.FLAGS(list(argv))
    except flags.Error as error:
        fail(error)


def refuse_arguments(argv: Sequence[str]) -> None:
    """Fail if there is something that is no flag."""
    if len(argv) > 1:
        fail(f"{argv[1]!r} is not a flag; flags begin with --.")


def _print_line(kind: str, message: object) -> None:
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(message))
    if len(line) > _MAX_LINE_LENGTH:  # Field and value come first, what is allowed last.
        line = f"{line[: _MAX_LINE_LENGTH // 2]} ... {line[-_MAX_LINE_LENGTH // 2 :]}"
    print(f"{kind}: {line}", file=sys.stderr)
