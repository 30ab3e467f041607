"""What the benchmarks share: rounds that alternate, medians with their spread, results in files.

Machines are shared and noisy. What is compared is therefore measured in turn, round after round, in
the same run, and a ratio is the median of the rounds' own ratios.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import psutil

# TensorFlow's own messages would hide the results; processes that are started inherit this.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
RESULTS = pathlib.Path("runs/bench")
# Transitions added and sampled per second (Horgan et al. 2018, section 4.1).
PAPER_INSERTS, PAPER_SAMPLES = 12_500.0, 9_700.0
# The paper's learner takes 19 steps per second; ours publishes every 20.
PAPER_PUBLISH_SECONDS = 20 / 19

Measured = TypeVar("Measured")


class Spread(NamedTuple):
    """Median, smallest and largest of several measurements."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)} to {_short(self.high)})"


@dataclasses.dataclass
class Row:
    """One line of a part's table.

    Attributes:
      what: name of what was measured.
      value: median and spread.
      unit: unit of the value.
      aim: the value that is aimed at, as a person would write it; '' if there is none.
      holds: whether the aim is reached; None if there is none.
    """

    what: str
    value: Spread
    unit: str = ""
    aim: str = ""
    holds: bool | None = None


def spread(values: Sequence[float]) -> Spread:
    """Summarise measurements."""
    return Spread(statistics.median(values), min(values), max(values))


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Summarise the ratio of two things that were measured in the same rounds."""
    return spread([a / b for a, b in zip(numerators, denominators, strict=True)])


def at_least(what: str, value: Spread, limit: float, unit: str = "") -> Row:
    """Make a row of what should be large."""
    return Row(what, value, unit, f">= {limit:g}", value.median >= limit)


def at_most(what: str, value: Spread, limit: float, unit: str = "") -> Row:
    """Make a row of what should be small, and finite every time."""
    holds = value.median <= limit and math.isfinite(value.high)
    return Row(what, value, unit, f"<= {limit:g}", holds)


def measure_in_turn(
    measurements: Mapping[str, Callable[[], Measured]], rounds: int
) -> dict[str, list[Measured]]:
    """Take all measurements in every round, after a first round that is discarded.

    Args:
      measurements: functions that return a number, or several, by name.
      rounds: number of rounds that count.

    Returns:
      The numbers of every round, by name.
    """
    numbers: dict[str, list[Measured]] = {name: [] for name in measurements}
    for round_index in range(rounds + 1):
        for name, measure in measurements.items():
            number = measure()
            if round_index:
                numbers[name].append(number)
    return numbers


def calls_per_second(function: Callable[[], Any], seconds: float) -> float:
    """Call a function again and again for some seconds, and return how often per second."""
    count, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        function()
        count += 1
    return count / elapsed


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return psutil.Process(pid).memory_info().rss


def pin_to_core(index: int) -> None:
    """Keep this process, with all threads that it starts from now on, on one of its cores.

    Args:
      index: index of the core among those of this process, modulo their number.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[index % len(cores)]})


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def run_self(script: str, arguments: Sequence[str]) -> Any:
    """Run a benchmark's script in another process, and return the JSON of its last line.

    Args:
      script: `__file__` of the benchmark.
      arguments: arguments of its command line.
    """
    command = [sys.executable, script, *arguments]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def make_parser(doc: str) -> argparse.ArgumentParser:
    """Make a parser with what all parts understand; from now on SIGTERM ends a part in order."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="measurements of everything")
    parser.add_argument("--out", default=str(RESULTS), help="folder for the results")
    return parser


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process as an exit does, so that it ends what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def report(
    part: str, out: str, rows: Sequence[Row], series: Mapping[str, Any] | None = None
) -> None:
    """Print the rows of a part, and write them for the table and the figure of all parts.

    Args:
      part: name of the part, and of its file.
      out: folder of the results.
      rows: lines of the table.
      series: further numbers for the figure.
    """
    for row in rows:
        verdict = {None: "", True: "  holds", False: "  MISSED"}[row.holds]
        aim = f"  aim {row.aim}{verdict}" if row.aim else ""
        print(f"{row.what:<58} {row.value!s:>26} {row.unit}{aim}", flush=True)
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "measured": f"{time.strftime('%Y-%m-%d %H:%M')} on {_describe_machine()}",
        "rows": [dataclasses.asdict(row) for row in rows],
        "series": dict(series or {}),
    }
    (folder / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n")


class Report(NamedTuple):
    """What a part wrote with `report`.

    Attributes:
      part: name of the part.
      measured: when and on what machine it was measured.
      rows: lines of the table.
      series: further numbers for the figure.
    """

    part: str
    measured: str
    rows: list[Row]
    series: dict[str, Any]


def read_reports(out: str) -> list[Report]:
    """Read what all parts wrote, in the order of their names."""
    reports = []
    for file in sorted(pathlib.Path(out).glob("*.json")):
        content = json.loads(file.read_text())
        rows = [Row(**{**row, "value": Spread(*row["value"])}) for row in content["rows"]]
        reports.append(Report(file.stem, content["measured"], rows, content["series"]))
    return reports


def run_and_leave(main: Callable[[], None]) -> None:
    """Run a script's main function and exit at once: clients of a stopped server delay an exit."""
    exit_code: Any = 0
    try:
        main()
    except SystemExit as leaving:
        exit_code = leaving.code
    except BaseException:
        traceback.print_exc()
        exit_code = 1
    if isinstance(exit_code, str):
        print(exit_code, file=sys.stderr)
        exit_code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code or 0)


def _describe_machine() -> str:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    name = model[1] if model else platform.machine()
    return f"{num_cores()} cores, {name}, Python {platform.python_version()}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
