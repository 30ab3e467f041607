"""Runs the benchmarks one after the other, and sums them up in one table and one figure.

Writes a JSON file per part, `table.md` and `figure.png`. Parts that were measured before stay in
the table: after a change, the parts it touches are enough. What compares with other libraries needs
their environment (`make bench` makes it).

Example:
  python benchmarks/bench.py --parts acting learner
"""

import argparse
import os
import pathlib
import platform
import subprocess
import sys
import time

import figure
from measuring import RESULTS, Row, read_reports
from rich.console import Console
from rich.table import Table

HERE = pathlib.Path(__file__).resolve().parent
PARTS = (
    "acting",
    "learner",
    "parameters",
    "replay_load",
    "replay_peers",
    "scale",
    "start_up",
    "end_to_end",
)
HEAD = ("part", "what", "median (smallest to largest)", "aim", "holds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--out", default=str(RESULTS), help="folder for the results")
    arguments = parser.parse_args()
    failed = [part for part in arguments.parts if not run(part, arguments.out)]
    cells = [line for part, rows, _ in read_reports(arguments.out) for line in to_cells(part, rows)]
    show(cells)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(to_markdown(cells))
    figure.draw(arguments.out, folder / "figure.png")
    print(f"{describe_machine()}\n{folder / 'table.md'}, {folder / 'figure.png'}")
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}")


def run(part: str, out: str) -> bool:
    """Run one part, and return whether it came to its end."""
    print(f"== {part}", flush=True)
    started = time.monotonic()
    command = [sys.executable, str(HERE / f"{part}.py"), "--out", out]
    # On standard error there are mostly the messages of Reverb's servers.
    finished = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if finished.returncode:
        print(finished.stderr[-2000:], file=sys.stderr)
    print(f"   {time.monotonic() - started:.0f} s\n", flush=True)
    return finished.returncode == 0


def to_cells(part: str, rows: list[Row]) -> list[tuple[str, ...]]:
    """Turn the rows of a part into lines of the table."""
    verdict = {None: "", True: "yes", False: "no"}
    return [
        (part, row.what, f"{row.value} {row.unit}".strip(), row.aim, verdict[row.holds])
        for row in rows
    ]


def to_markdown(cells: list[tuple[str, ...]]) -> str:
    """Write the table for a README."""
    lines = [HEAD, ("---",) * len(HEAD), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def show(cells: list[tuple[str, ...]]) -> None:
    """Print the table."""
    table = Table(*HEAD)
    for line in cells:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def describe_machine() -> str:
    """Say on what machine this was measured."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # Not Linux.
        lines = []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
