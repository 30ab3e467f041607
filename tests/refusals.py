"""How every command has to refuse a mistake."""

import os
import pathlib
from collections.abc import Iterable


def assert_refused(
    result: tuple[int, str, str],
    expected: Iterable[str] = (),
    untouched: str | pathlib.Path | None = None,
) -> None:
    """Check exit code, standard output and the one line on standard error of a command.

    Args:
      result: these three.
      expected: texts that are in the line.
      untouched: folder that is still empty.
    """
    exit_code, stdout, stderr = result
    assert (exit_code, stdout) == (2, ""), stderr
    assert stderr.startswith("error: ") and stderr.endswith("\n"), stderr
    assert len(stderr.splitlines()) == 1 and len(stderr) < 2100, stderr
    for text in expected:
        assert text in stderr
    assert untouched is None or os.listdir(untouched) == []
