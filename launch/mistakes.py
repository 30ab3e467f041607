"""How the commands tell of mistakes: one line, exit code 2."""

import sys
from typing import NoReturn

EXIT_USAGE = 2

_MAX_LINE_LENGTH = 2000


def fail(message: object) -> NoReturn:
    """Print an error in one line, whatever it quotes, and exit."""
    print_line("error", message)
    sys.exit(EXIT_USAGE)


def print_line(kind: str, message: object) -> None:
    """Print an error or a warning in one line."""
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in str(message))
    if len(line) > _MAX_LINE_LENGTH:  # Field and value come first, what is allowed last.
        line = f"{line[: _MAX_LINE_LENGTH // 2]} ... {line[-_MAX_LINE_LENGTH // 2 :]}"
    print(f"{kind}: {line}", file=sys.stderr)
