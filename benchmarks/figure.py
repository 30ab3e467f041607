"""The figure of the benchmarks' results; parts that were not measured are left out."""

import operator
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from measuring import PAPER_INSERTS, PAPER_SAMPLES, read_reports

OURS, OTHERS = "#0072b2", "#bbbbbb"


def draw(results: str, file: pathlib.Path) -> None:
    """Draw the results in a folder; nothing if there are none."""
    panels = [
        (panel, report.series)
        for report in read_reports(results)
        for panel in PANELS.get(report.part, ())
    ]
    if not panels:
        return
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 3.6 * rows), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (panel, numbers) in zip(axes.flat, panels, strict=False):
        axis.set_axis_on()
        panel(axis, numbers)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def draw_acting(axis: Axes, series: Mapping[str, Any]) -> None:
    num_envs = series["num_envs"]
    median, low, high = zip(*(series["share"][str(count)] for count in num_envs), strict=True)
    axis.fill_between(num_envs, low, high, color=OURS, alpha=0.2)
    axis.plot(num_envs, median, "o-", color=OURS)
    axis.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.set_xticks(num_envs, num_envs)
    axis.set_ylim(0)
    axis.set_xlabel("environments of one actor")
    axis.set_ylabel("share of the emulator alone")
    axis.set_title("Acting on Pong, one core")


def draw_learner(axis: Axes, series: Mapping[str, Any]) -> None:
    medians = [share[0] for share in series.values()]
    axis.bar([name.replace("_", "\n") for name in series], medians, color=OURS)
    for index, (_, low, high) in enumerate(series.values()):
        axis.plot([index, index], [low, high], color="black", linewidth=1)
    axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axis.set_ylabel("share of the bare loop")
    axis.set_title("Learner with data flowing")


def draw_replay_peers(axis: Axes, series: Mapping[str, Any]) -> None:
    size = {name: statistics.median(numbers) for name, numbers in series["bytes"].items()}
    draw_bars(axis, size, "bytes per transition", "Replay: memory on Pong")


def draw_end_to_end(axis: Axes, series: Mapping[str, Any]) -> None:
    limit, seconds = series["limit"], {}
    for name, runs in series["seconds"].items():
        median = statistics.median(runs)
        seconds[name if median < limit else f"{name}, unsolved"] = median
    unit = f"seconds, imports included, of at most {limit:g}"
    draw_bars(axis, seconds, unit, "CartPole until 475")


def draw_replay_load(axis: Axes, series: Mapping[str, Any]) -> None:
    for (game, loads), marker in zip(series.items(), ("o", "s"), strict=False):
        inserts, samples = [
            [statistics.median(one[rate] for one in rounds) for rounds in loads.values()]
            for rate in ("inserts", "samples")
        ]
        axis.plot(inserts, samples, marker, color=OURS, fillstyle="none", label=game)
    axis.plot(
        PAPER_INSERTS, PAPER_SAMPLES, "*", color="black", markersize=10, label="the paper's load"
    )
    axis.set_xlabel("added/s")
    axis.set_ylabel("sampled/s at the same time")
    axis.set_title("One replay server and its clients")
    axis.legend(frameon=False)


def draw_envs(axis: Axes, series: Mapping[str, Any]) -> None:
    num_envs, rate = read_medians(series["num_envs"], lambda traffic: traffic["inserts"])
    linear = [rate[0] / num_envs[0] * count for count in num_envs]
    axis.plot(num_envs, linear, color="black", linewidth=0.8, linestyle=":", label="linear")
    axis.plot(num_envs, rate, "o-", color=OURS, label="measured")
    axis.set_ylim(0)
    axis.set_xlabel("environments that only wait")
    axis.set_ylabel("transitions/s")
    axis.set_title("Scale: environments")
    axis.legend(frameon=False)


def draw_cores(axis: Axes, series: Mapping[str, Any]) -> None:
    rounds = series["num_envs"]
    num_envs, actors = read_medians(rounds, lambda traffic: traffic["cores"]["actors"])
    _, replay = read_medians(rounds, lambda traffic: traffic["cores"]["replay"])
    axis.stackplot(num_envs, actors, replay, colors=[OURS, OTHERS], labels=["actors", "replay"])
    axis.set_ylim(0)
    axis.set_xlabel("environments that only wait")
    axis.set_ylabel("cores taken")
    axis.set_title("Scale: which core is full first")
    axis.legend(frameon=False, loc="upper left")


def draw_sizes(axis: Axes, series: Mapping[str, Any]) -> None:
    for field, marker, what in (("sample", "o-", "sample"), ("update", "s--", "new priority")):
        sizes, microseconds = read_medians(series["sizes"], operator.itemgetter(field))
        axis.plot(sizes, microseconds, marker, color=OURS, label=what)
    axis.set_xscale("log")
    axis.set_ylim(0)
    axis.set_xlabel("transitions in the replay")
    axis.set_ylabel("microseconds each")
    axis.set_title("Scale: size of the replay")
    axis.legend(frameon=False)


def read_medians(
    rounds_by_number: Mapping[str, Any], select: Callable[[Mapping[str, Any]], float]
) -> tuple[list[int], list[float]]:
    """Return the numbers that were measured with, and for each the median over its rounds."""
    medians = {
        int(number): statistics.median(select(one) for one in rounds)
        for number, rounds in rounds_by_number.items()
    }
    return list(medians), list(medians.values())


def draw_bars(axis: Axes, lengths: Mapping[str, float], unit: str, title: str) -> None:
    colours = [OURS if name.startswith("ours") else OTHERS for name in lengths]
    axis.barh(list(lengths), list(lengths.values()), color=colours)
    axis.invert_yaxis()
    axis.set_xlabel(unit)
    axis.set_title(title)


Panel = Callable[[Axes, Mapping[str, Any]], None]
PANELS: dict[str, tuple[Panel, ...]] = {
    "acting": (draw_acting,),
    "learner": (draw_learner,),
    "replay_load": (draw_replay_load,),
    "replay_peers": (draw_replay_peers,),
    "scale": (draw_envs, draw_cores, draw_sizes),
    "end_to_end": (draw_end_to_end,),
}
