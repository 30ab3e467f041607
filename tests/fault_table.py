"""What the tests with the marker `fault` break and what has to hold, as a table.

`python tests/fault_table.py` prints it; the page about reliability has some of its rows.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

TESTS = pathlib.Path(__file__).resolve().parent


class Fault(NamedTuple):
    """One marked test.

    Attributes:
      test: name of the test.
      breaks: fault that the test causes in a run, or in a part of one.
      holds: criterion of the test.
    """

    test: str
    breaks: str
    holds: str


def list_faults() -> list[Fault]:
    """Read the markers from the source of all tests, in the order of files and lines."""
    return [
        fault
        for path in sorted(TESTS.rglob("test_*.py"))
        for fault in _read_markers(ast.parse(path.read_text()))
    ]


def _read_markers(module: ast.Module) -> Iterator[Fault]:
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef):
            for decorator in function.decorator_list:
                if ast.unparse(decorator).startswith("pytest.mark.fault("):
                    texts = {k.arg: ast.literal_eval(k.value) for k in decorator.keywords}
                    yield Fault(function.name, **texts)


def to_markdown(faults: Sequence[Fault], seen: Mapping[str, str] | None = None) -> str:
    """Write the table; `seen` adds a column with what a run of the tests saw, by test."""
    header = ["what breaks", "what holds"] + (["seen"] if seen is not None else [])
    rows = [header, ["---"] * len(header)]
    for fault in faults:
        cells = [fault.breaks, fault.holds]
        rows.append(cells + ([seen.get(fault.test, "not run")] if seen is not None else []))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(to_markdown(list_faults()))
