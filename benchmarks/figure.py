"""The figure of the benchmarks' results; parts that were not measured are left out."""

import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from measuring import read_reports

OURS, OTHERS = "#0072b2", "#bbbbbb"


def draw(results: str, file: pathlib.Path) -> None:
    """Draw what is in the folder of results."""
    series = {part: numbers for part, _, numbers in read_reports(results) if part in PANELS}
    if not series:
        return
    columns = min(len(series), 3)
    rows = -(-len(series) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 3.6 * rows), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (part, numbers) in zip(axes.flat, series.items(), strict=False):
        axis.set_axis_on()
        PANELS[part](axis, numbers)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_acting(axis: Axes, series: Mapping[str, Any]) -> None:
    lanes = series["lanes"]
    shares = [series["share"][str(count)] for count in lanes]
    axis.fill_between(lanes, [s[1] for s in shares], [s[2] for s in shares], color=OURS, alpha=0.2)
    axis.plot(lanes, [s[0] for s in shares], "o-", color=OURS)
    axis.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_xticks(lanes, lanes)
    axis.set_ylim(0)
    axis.set_xlabel("lanes of one actor")
    axis.set_ylabel("share of the emulator alone")
    axis.set_title("Acting on Pong, one core")


def draw_learner(axis: Axes, series: Mapping[str, Any]) -> None:
    medians = [share[0] for share in series.values()]
    axis.bar(list(series), medians, color=OURS)
    for index, (_, low, high) in enumerate(series.values()):
        axis.plot([index, index], [low, high], color="black", linewidth=1)
    axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axis.set_ylabel("share of the bare loop")
    axis.set_title("Learner with data flowing")


def draw_replay_peers(axis: Axes, series: Mapping[str, Any]) -> None:
    size = {name: statistics.median(numbers) for name, numbers in series["bytes"].items()}
    draw_bars(axis, size, "bytes per transition", "Replay: memory on Pong")
    axis.set_xscale("log")


def draw_end_to_end(axis: Axes, series: Mapping[str, Any]) -> None:
    seconds = {
        name: statistics.median([s for s in runs if s is not None] or [float("nan")])
        for name, runs in series["seconds"].items()
    }
    draw_bars(axis, seconds, "seconds, imports included", "CartPole until 475")


def draw_bars(axis: Axes, lengths: Mapping[str, float], unit: str, title: str) -> None:
    colours = [OURS if name.startswith("ours") else OTHERS for name in lengths]
    axis.barh(list(lengths), list(lengths.values()), color=colours)
    axis.invert_yaxis()
    axis.set_xlabel(unit)
    axis.set_title(title)


PANELS: dict[str, Callable[[Axes, Mapping[str, Any]], None]] = {
    "acting": draw_acting,
    "learner": draw_learner,
    "replay_peers": draw_replay_peers,
    "end_to_end": draw_end_to_end,
}
