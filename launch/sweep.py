r"""Trains with several seeds, and on several tasks, and compares the results.

Runs are made one after the other, or --parallel of them at once, each as by launch/apex_dqn.py or
launch/apex_dpg.py, whichever fits the config. The sweep's folder then holds:
  <task>/seed_<i>/          the work directories of the runs; output.log is what they printed
  results.md, results.csv   a row for each task: returns with confidence intervals, steps, times
  returns.png, returns.svg  how the returns grew

A run that fails does not stop the others; it is named in the end, and the exit code is 1. Given
again with the same --workdir, after Ctrl-C for example, the command goes on: it leaves out the runs
that are finished, and others go on from their checkpoints.

Examples:
  python launch/sweep.py --config=configs/apex_dqn_cartpole.py --seeds=5
  python launch/sweep.py --config=configs/apex_dqn_atari_single_host.py --games=pong,breakout \
      --seeds=3 --workdir=sweeps/two_games --config.run.max_actor_steps=1000000
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # See `command.py`.

from errors import EXIT_FAILURE
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from sweep_plan import Plan, PlannedRun, make_plan

from apex_agents.plotting import draw_sweep
from apex_agents.runs.files import replace_file
from apex_agents.runs.folder import RunFolder
from apex_agents.sweep.results import (
    TaskResult,
    explain,
    summarise,
    to_csv,
    to_markdown,
    to_rows,
)
from apex_agents.sweep.run_queue import Event, Job, RunQueue, last_words

FINISHED, FAILED, STOPPED, NOT_STARTED = "finished", "failed", "stopped", "not started"

_EXITS_WHEN_STOPPED = (130, 143)
# What Rich raises when nobody reads the output any more; the sweep goes on.
_UNHEARD = (OSError, SystemExit)
_OUTPUT_LOG = "output.log"
_PERIOD_SECONDS = 0.2


def main() -> None:
    """Run the command, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while planning: no traceback.
    # In a process of its own: the memory that planning takes goes with it.
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        plan = pool.submit(make_plan, sys.argv).result()
    screen = Screen()
    sweep = Sweep(plan, screen)
    sweep.run()
    results = sweep.summarise()
    screen.print_table(results)
    is_written = _write_results(plan, results, screen)
    sweep.print_unfinished()
    exit_code = sweep.exit_code() or (0 if is_written else EXIT_FAILURE)
    try:
        sys.stdout.flush()
    except OSError:  # Python would end with a code of its own.
        os._exit(exit_code)
    sys.exit(exit_code)


class Screen:
    """The terminal: lines that stay, and below them the newest line of every run that goes on.

    Where the output is no terminal there are only the lines that stay.
    """

    def __init__(self) -> None:
        """Look what the output is."""
        self._console = console = Console(highlight=False)
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._shown: Sequence[str] = []

    def print(self, text: str) -> None:
        """Print a line that stays."""
        with contextlib.suppress(*_UNHEARD):
            self._console.print(text, markup=False, soft_wrap=True)

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines below those that stay."""
        if not self._is_live or lines == self._shown:
            return
        self._shown = lines
        texts = [Text(line, style="cyan", no_wrap=True, overflow="ellipsis") for line in lines]
        with contextlib.suppress(*_UNHEARD):
            self._live.start()
            self._live.update(Group(*texts), refresh=True)

    def print_table(self, results: Sequence[TaskResult]) -> None:
        """Print the results, in place of what `show` showed."""
        if not self._is_live:
            self.print("\n" + to_markdown(results))
            return
        table = Table(caption=explain(results), caption_justify="left")
        header, *rows = to_rows(results)
        for name in header:
            table.add_column(name)
        for row in rows:
            table.add_row(*map(Text, row))
        with contextlib.suppress(*_UNHEARD):
            self._live.stop()
            self._console.print(table)


class Sweep:
    """The runs of a plan, while they are made."""

    def __init__(self, plan: Plan, screen: Screen):
        """Begin with what is finished already."""
        self._plan = plan
        self._screen = screen
        self._endings = {r: FINISHED if r.is_finished else NOT_STARTED for r in plan.runs}
        self._started_at: dict[PlannedRun, float] = {}
        self._signals: list[int] = []

    def run(self) -> None:
        """Make the runs that are not finished; Ctrl-C and SIGTERM end those that go on."""
        screen = self._screen
        screen.print(f"Sweep folder: {self._plan.folder}")
        jobs = {}
        for run in self._plan.runs:
            if run.is_finished:
                screen.print(f"{self._label(run)} was finished before.")
            else:
                jobs[Job(run.name, run.argv, run.folder / _OUTPUT_LOG)] = run
        queue = RunQueue(list(jobs), self._plan.num_parallel)

        def stop(signum: int, frame: Any) -> None:
            self._signals.append(signum)
            queue.stop(signum)

        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        is_told = False
        while not queue.is_done():
            for event in queue.step():
                self._take(event, jobs[event.job])
            if self._signals and not is_told:
                screen.print("Stopping; press Ctrl-C again to end everything at once.")
                is_told = True
            screen.show([f"{job.name}: {last_words(job.log)}" for job in queue.running])
            time.sleep(_PERIOD_SECONDS)

    def _take(self, event: Event, run: PlannedRun) -> None:
        """Say that a run has started or ended."""
        label, log = self._label(run), event.job.log
        if event.exit_code is None:
            self._started_at[run] = time.monotonic()
            self._screen.print(f"{label} starts; its output goes to {log}")
            return
        if event.exit_code == 0:
            self._endings[run], reason = FINISHED, _end_reason(run)
        elif self._signals or event.exit_code in _EXITS_WHEN_STOPPED:
            self._endings[run], reason = STOPPED, "it can go on"
        else:
            self._endings[run] = FAILED
            reason = f"exit code {event.exit_code}: {event.error or last_words(log)}"
        seconds = time.monotonic() - self._started_at.get(run, time.monotonic())
        self._screen.print(f"{label} {self._endings[run]} after {seconds:.0f} s ({reason})")

    def _label(self, run: PlannedRun) -> str:
        runs = self._plan.runs
        return f"[{runs.index(run) + 1}/{len(runs)}] {run.name}"

    def summarise(self) -> list[TaskResult]:
        """Read what the runs have come to, task by task."""
        results = []
        for task, group in itertools.groupby(self._plan.runs, lambda run: run.task):
            members = list(group)
            endings = [self._endings[run] for run in members]
            results.append(summarise(task, _open_runs(members), endings))
        return results

    def print_unfinished(self) -> None:
        """Name the runs that are not finished."""
        for run, ending in self._endings.items():
            if ending != FINISHED:
                self._screen.print(f"{run.name}: {ending}, see {run.folder / _OUTPUT_LOG}")

    def exit_code(self) -> int:
        """Return 0 if all runs are finished, 1 if not, 128 + n after signal n."""
        if self._signals:
            return 128 + self._signals[0]
        return 0 if set(self._endings.values()) == {FINISHED} else EXIT_FAILURE


def _end_reason(run: PlannedRun) -> str:
    summary = RunFolder(run.folder).summary() or {}
    return str(summary.get("reason", "for no known reason"))


def _open_runs(runs: Sequence[PlannedRun]) -> list[RunFolder]:
    """Return the folders of the runs that have begun."""
    opened = []
    for run in runs:
        with contextlib.suppress(ValueError):
            opened.append(RunFolder(run.folder))
    return opened


def _write_results(plan: Plan, results: Sequence[TaskResult], screen: Screen) -> bool:
    """Write tables and figures; return whether that was possible."""
    folder = plan.folder
    try:
        files = draw_sweep(_open_runs(plan.runs), folder)
        for name, text in (("results.md", to_markdown(results)), ("results.csv", to_csv(results))):
            replace_file(folder / name, text.encode())
            files.append(folder / name)
    except OSError as error:
        screen.print(f"error: {folder} cannot be written: {error.strerror}")
        return False
    for file in files:
        screen.print(str(file))
    return True


if __name__ == "__main__":
    main()
