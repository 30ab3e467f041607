"""Runs the benchmarks one after the other, and sums them up in one table and in figures.

Writes a JSON file per part, `table.md` and `bench_<part>.png`. Parts that were measured before stay
in the table: after a change it is enough to run the parts that it touches. The parts that compare
with other libraries need `.venv-peers` (`make bench` makes it).

Example:
  python benchmarks/bench.py --parts acting learner
"""

import argparse
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

import figure
from measuring import (
    PAPER_INSERTS,
    PAPER_SAMPLES,
    RESULTS,
    Report,
    Row,
    exit_on_sigterm,
    read_reports,
)

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
LARGE_MACHINE_CORES = 16
HEAD = ("part", "what", "median (smallest to largest)", "aim", "holds")


def main() -> None:
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--out", default=str(RESULTS), help="folder for the results")
    arguments = parser.parse_args()
    failed = [part for part in arguments.parts if not run(part, arguments.out)]
    reports = read_reports(arguments.out)
    table = to_markdown([line for report in reports for line in to_cells(report.part, report.rows)])
    print(table)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(table)
    files = figure.draw(arguments.out, folder)
    for report in reports:
        print(f"{report.part}: measured {report.measured}")
    if (estimate := estimate_larger_machine(reports)) is not None:
        print(estimate)
    print(*[folder / "table.md", *files], sep="\n")
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}")


def run(part: str, out: str) -> bool:
    """Run one part, and return whether it succeeded."""
    print(f"== {part}", flush=True)
    started = time.monotonic()
    command = [sys.executable, str(HERE / f"{part}.py"), "--out", out]
    # Standard error holds mostly the messages of Reverb's servers.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, errors = process.communicate()
        except BaseException:
            process.terminate()  # The part then ends the processes that it has started.
            raise
    if process.returncode:
        print(errors[-2000:], file=sys.stderr)
    print(f"   {time.monotonic() - started:.0f} s\n", flush=True)
    return process.returncode == 0


def to_cells(part: str, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows of a part as lines of the table."""
    verdict = {None: "", True: "yes", False: "no"}
    return [
        (part, row.what, f"{row.value} {row.unit}".strip(), row.aim, verdict[row.holds])
        for row in rows
    ]


def to_markdown(cells: Sequence[tuple[str, ...]]) -> str:
    """Return the table as Markdown with aligned columns."""
    widths = [max(map(len, column)) for column in zip(HEAD, *cells, strict=True)]
    lines = [HEAD, tuple("-" * width for width in widths), *cells]
    return "".join(
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |\n"
        for line in lines
    )


def estimate_larger_machine(reports: Sequence[Report]) -> str | None:
    """Estimate from the costs measured here what a machine with more cores and a GPU does.

    The GPU is taken to do the paper's updates per second, and all costs to stay as they are.

    Args:
      reports: the reports of `acting` and of `replay_load` with Pong are used.

    Returns:
      A few sentences; None if one of these reports is missing.
    """
    medians = {row.what: row.value.median for report in reports for row in report.rows}
    rates = [rate for what, rate in medians.items() if what.startswith("agent steps/s")]
    costs = [
        medians.get(f"pong: CPU per transition {what}")
        for what in ("added, server", "sampled, server", "sampled, learner")
    ]
    if not rates or None in costs:
        return None
    actor = 1 / max(rates)
    adding, sampling, reading = [cost / 1e6 for cost in costs if cost is not None]
    fixed = PAPER_SAMPLES * (sampling + reading)
    inserts = (LARGE_MACHINE_CORES - fixed) / (actor + adding)
    return (
        f"Estimate, Pong on {LARGE_MACHINE_CORES} cores and a GPU that does the paper's 19 updates "
        f"of 512 per second: sampling takes {fixed:.1f} cores, of the replay server and the "
        f"learner's reader; actors on {inserts * actor:.1f} cores add {inserts:,.0f} transitions "
        f"per second, for which the server needs {inserts * adding:.1f}. That is "
        f"{inserts / PAPER_INSERTS:.1f} times what the paper's 360 actors add, and each transition "
        f"is sampled {PAPER_SAMPLES / inserts:.2f} times."
    )


if __name__ == "__main__":
    main()
