"""Draws runs into files; Matplotlib is imported when it is needed, which takes a second."""

import contextlib
import logging
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from apex_agents.runs.files import replace_file, try_to_write
from apex_agents.runs.folder import RunFolder

PLOTS = "plots"

_SUFFIXES = ("png", "svg")
_BACKEND = "MPLBACKEND"  # Environment variable.

# At its first use on a machine it would report the list of fonts that it makes.
logging.getLogger("matplotlib").setLevel(logging.WARNING)


def draw_run(workdir: str | pathlib.Path) -> list[pathlib.Path]:
    """Draw all figures of a run, which may still be running, into its folder `plots`.

    Returns:
      Paths of the files written, as `draw_runs` does; none if they cannot be, which is logged.

    Raises:
      ValueError: the folder holds no run.
    """
    folder = pathlib.Path(workdir, PLOTS)
    paths: list[pathlib.Path] = []
    try_to_write(folder, lambda: paths.extend(draw_runs([RunFolder(workdir)], folder)))
    return paths


def draw_runs(runs: Sequence[RunFolder], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw figures of one or several runs.

    Args:
      runs: runs, of which those that differ only in their seeds become one curve.
      folder: folder for the files, created if there is something to draw.

    Returns:
      Paths of the files written; a figure for which there are no rows yet has none.

    Raises:
      OSError: a file cannot be written. It is unchanged then; files before it are complete.
    """
    _import_matplotlib()
    from apex_agents.plotting import curve_figures, exploration, histogram_figures, run_groups

    draw = {
        "returns": curve_figures.draw_returns,
        "speeds": curve_figures.draw_speeds,
        "learning": curve_figures.draw_learning,
        "memory": curve_figures.draw_memory,
        "metrics": curve_figures.draw_metrics,
        "priorities": histogram_figures.draw_priorities,
        "staleness": histogram_figures.draw_staleness,
        "exploration": exploration.draw_exploration,
    }
    groups = run_groups.group_runs(runs)
    figures = {name: draw_figure(groups) for name, draw_figure in draw.items()} if groups else {}
    return [path for name, figure in figures.items() for path in _write(figure, folder, name)]


def draw_search(
    importances: Mapping[str, float], scores: Sequence[float], folder: pathlib.Path
) -> list[pathlib.Path]:
    """Draw which fields matter in a search, and its progress; see `draw_runs`."""
    _import_matplotlib()
    from apex_agents.plotting import search_figure

    return _write(search_figure.draw_search(importances, scores), folder, "importances")


def draw_study(
    groups: Sequence[Any], folder: pathlib.Path, title: str, x: str
) -> list[pathlib.Path]:
    """Draw the returns of groups of runs; see `curve_figures.draw_returns` and `draw_runs`."""
    if not groups:
        return []
    _import_matplotlib()
    from apex_agents.plotting import curve_figures

    return _write(curve_figures.draw_returns(groups, title, x), folder, "returns")


def _import_matplotlib() -> None:
    """Import Matplotlib, also where MPLBACKEND names a backend that is missing, as a notebook does.

    A figure that is written into a file needs none. Only pyplot has one, which the user may call.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop(_BACKEND, "")
    import matplotlib

    if backend:
        os.environ[_BACKEND] = backend
        with contextlib.suppress(ValueError):  # It is missing.
            matplotlib.rcParams["backend"] = backend


def _write(figure: Any, folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Write a figure in all formats; if it is None, remove that of other runs."""
    from apex_agents.plotting import style

    paths = [folder / f"{name}.{suffix}" for suffix in _SUFFIXES]
    if figure is None:
        for path in filter(pathlib.Path.exists, paths):
            logging.warning("%s is removed: there is nothing to draw in this figure.", path)
            path.unlink(missing_ok=True)
        return []
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        replace_file(path, style.encode(figure, path.suffix[1:]))
    return paths
