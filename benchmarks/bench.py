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

from apex_agents.studies.results import format_table

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
LARGE_NUM_HOSTS = (1, 4)
HEAD = ("part", "what", "median (smallest to largest)", "aim", "holds")


def main() -> None:
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--out", default=str(RESULTS), help="folder for the results")
    arguments = parser.parse_args()
    failed = [part for part in arguments.parts if not run(part, arguments.out)]
    reports = read_reports(arguments.out)
    rows = [line for report in reports for line in to_cells(report.part, report.rows)]
    table = format_table([HEAD, *rows])
    print(table)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(table)
    files = figure.draw(arguments.out, folder)
    for report in reports:
        print(f"{report.part}: measured {report.measured}")
    for num_hosts in LARGE_NUM_HOSTS:
        if (estimate := estimate_larger_machines(reports, num_hosts)) is not None:
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


def estimate_larger_machines(reports: Sequence[Report], num_hosts: int) -> str | None:
    """Estimate from the costs measured here what hosts with more cores and one GPU do.

    Each host has a replay server. The GPU is taken to do the paper's updates per second, and all
    costs to stay as they are.

    Args:
      reports: the reports of `acting` and of `replay_load` with Pong are used.
      num_hosts: number of hosts, and of replay servers.

    Returns:
      A few sentences; None if what they need was not measured.
    """
    medians = {row.what: row.value.median for report in reports for row in report.rows}
    rates = [rate for what, rate in medians.items() if what.startswith("agent steps/s")]
    game = "pong" if num_hosts == 1 else f"pong, {num_hosts} replays"
    costs = [
        medians.get(f"{game}: {what}")
        for what in (
            "CPU per transition added, server",
            "CPU per transition sampled, server",
            "CPU per transition sampled, learner",
            "network per transition sampled",
        )
    ]
    if not rates or None in costs:
        return None
    actor = 1 / max(rates)
    adding, sampling, reading, sent = [cost / 1e6 for cost in costs if cost is not None]
    num_cores = num_hosts * LARGE_MACHINE_CORES
    inserts = (num_cores - PAPER_SAMPLES * (sampling + reading)) / (actor + adding)
    return (
        f"Estimate, Pong on {num_hosts} x {LARGE_MACHINE_CORES} cores and a GPU that does the "
        f"paper's 19 updates of 512 per second: sampling takes {PAPER_SAMPLES * reading:.1f} cores "
        f"of the learner's reader and {PAPER_SAMPLES * sampling:.1f} of the replay; actors on "
        f"{inserts * actor:.1f} cores add {inserts:,.0f} transitions per second, for which the "
        f"replay needs {inserts * adding:.1f}. That is {inserts / PAPER_INSERTS:.1f} times what "
        f"the paper's 360 actors add, and each transition is sampled "
        f"{PAPER_SAMPLES / inserts:.2f} times. Samples are {PAPER_SAMPLES * sent:.0f} MB/s."
    )


if __name__ == "__main__":
    main()
