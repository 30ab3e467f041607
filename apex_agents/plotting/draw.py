"""Draws runs into files; imports what it draws with when it is needed, which takes a second."""

import pathlib
from collections.abc import Sequence
from typing import Any

from apex_agents.runs.files import replace_file, report_failure, report_success
from apex_agents.runs.folder import RunFolder

PLOTS = "plots"

_SUFFIXES = ("png", "svg")


def draw_run(workdir: str | pathlib.Path) -> list[pathlib.Path]:
    """Draw all figures of one run into its folder `plots`.

    Args:
      workdir: of a run that goes on or has ended.

    Returns:
      The files written; fewer if the run has not got far enough for some figures, or if the disk is
      full, which is reported (see `outages`).

    Raises:
      ValueError: the folder holds no run.
    """
    folder = pathlib.Path(workdir, PLOTS)
    try:
        paths = draw_runs([RunFolder(workdir)], folder)
    except OSError as error:
        report_failure(folder, error)
        return []
    report_success(folder)
    return paths


def draw_runs(runs: Sequence[RunFolder], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw all figures of one or several runs.

    Args:
      runs: those that are equal but for their seeds become one curve with a confidence interval.
      folder: for the files; made if it is not there and there is something to draw.

    Returns:
      The files written.

    Raises:
      OSError: one cannot be written. Those before it are complete, it is as it was.
    """
    from apex_agents.plotting.curve_figures import (
        draw_learning,
        draw_returns,
        draw_speeds,
    )
    from apex_agents.plotting.exploration_figure import draw_exploration
    from apex_agents.plotting.priority_figure import draw_priorities
    from apex_agents.plotting.run_groups import group_runs

    draw = {
        "returns": draw_returns,
        "speeds": draw_speeds,
        "learning": draw_learning,
        "priorities": draw_priorities,
        "exploration": draw_exploration,
    }
    groups = group_runs(runs)
    figures = {name: function(groups) for name, function in draw.items()}
    return [path for name, figure in figures.items() for path in _write(figure, folder, name)]


def draw_sweep(runs: Sequence[RunFolder], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw the returns of several tasks, each in a panel of its own; see `draw_runs`."""
    from apex_agents.plotting.curve_figures import draw_returns, draw_tasks
    from apex_agents.plotting.run_groups import group_runs

    if not runs:
        return []
    groups = group_runs(runs)
    figure = draw_tasks(groups) if len(groups) > 1 else draw_returns(groups)
    return _write(figure, folder, "returns")


def _write(figure: Any, folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Write one figure in all formats; nothing if there is none."""
    from apex_agents.plotting import style

    if figure is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{suffix}" for suffix in _SUFFIXES]
    for path in paths:
        replace_file(path, style.encode(figure, path.suffix[1:]))
    return paths
