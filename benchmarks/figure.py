"""Draws the benchmarks' results, one figure per part; parts that were not measured have none.

Example:
  python benchmarks/figure.py --results runs/bench --out docs/images
"""

import argparse
import operator
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from measuring import PAPER_INSERTS, PAPER_SAMPLES, RESULTS, Report, read_reports

from apex_agents.plotting import style

OURS, OTHERS = style.line_style(0)["color"], "#bbbbbb"
LIMIT: dict[str, Any] = {"color": "black", "linewidth": 0.8, "linestyle": ":"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", default=str(RESULTS), help="folder with the results")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the figures")
    arguments = parser.parse_args()
    print(*draw(arguments.results, arguments.out), sep="\n")


def draw(results: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw the results in a folder into `bench_<part>.png` of another one; return the files."""
    reports = [report for report in read_reports(results) if report.part in PANELS]
    return [draw_report(report, folder / f"bench_{report.part}.png") for report in reports]


@style.styled
def draw_report(report: Report, file: pathlib.Path) -> pathlib.Path:
    """Draw the panels of one part into a file."""
    title, *panels = PANELS[report.part]
    figure, all_axes = style.new_figure(title, 1, len(panels), 2.8)
    for axes, panel in zip(all_axes, panels, strict=True):
        panel(axes, report.series)
    file.write_bytes(style.encode(figure, "png"))
    return file


def draw_acting(axes: Axes, series: Mapping[str, Any]) -> None:
    num_envs = series["num_envs"]
    median, low, high = zip(*(series["share"][str(count)] for count in num_envs), strict=True)
    axes.fill_between(num_envs, low, high, color=OURS, alpha=0.2)
    axes.plot(num_envs, median, "o-", color=OURS)
    axes.axhline(0.5, label="aim", **LIMIT)
    axes.legend()
    axes.set_xscale("log", base=2)
    axes.set_xticks(num_envs, num_envs)
    axes.set_ylim(0)
    axes.set_xlabel("environments of one actor (log)")
    axes.set_ylabel("share of the emulator alone")


def draw_learner(axes: Axes, series: Mapping[str, Any]) -> None:
    medians = [share[0] for share in series.values()]
    axes.bar([name.replace("_", "\n") for name in series], medians, color=OURS)
    for index, (_, low, high) in enumerate(series.values()):
        axes.plot([index, index], [low, high], color="black", linewidth=1)
    axes.axhline(1.0, label="the compiled update on one batch in memory, again and again", **LIMIT)
    axes.set_ylim(0, 1.3 * max(high for _, _, high in series.values()))  # Room for the legend.
    axes.legend(loc="upper left")
    axes.set_ylabel("share of the bare loop")


def draw_replay_peers(axes: Axes, series: Mapping[str, Any]) -> None:
    size = {name: statistics.median(numbers) for name, numbers in series["bytes"].items()}
    draw_bars(axes, size, "bytes per transition")


def draw_end_to_end(axes: Axes, series: Mapping[str, Any]) -> None:
    limit, seconds = series["limit"], {}
    for name, runs in series["seconds"].items():
        median = statistics.median(runs)
        seconds[name if median < limit else f"{name}, unsolved"] = median
    unit = f"seconds, imports included, of at most {limit:g}"
    draw_bars(axes, seconds, unit)


def draw_replay_load(axes: Axes, series: Mapping[str, Any]) -> None:
    for index, (name, loads) in enumerate(series.items()):
        inserts, samples = [
            [statistics.median(one[rate] for one in rounds) for rounds in loads.values()]
            for rate in ("inserts", "samples")
        ]
        marker, color = "os^vD"[index % 5], style.line_style(index)["color"]
        axes.plot(inserts, samples, marker, color=color, markersize=5, label=name)
    axes.plot(
        PAPER_INSERTS, PAPER_SAMPLES, "*", color="black", markersize=8, label="the paper's load"
    )
    axes.set_xlabel("added/s")
    axes.set_ylabel("sampled/s at the same time")
    axes.legend()


def draw_envs(axes: Axes, series: Mapping[str, Any]) -> None:
    num_envs, rate = read_medians(series["num_envs"], lambda traffic: traffic["inserts"])
    linear = [rate[0] / num_envs[0] * count for count in num_envs]
    axes.plot(num_envs, linear, label="linear", **LIMIT)
    axes.plot(num_envs, rate, "o-", color=OURS, label="measured")
    axes.set_ylim(0)
    axes.set_xlabel("environments that only wait")
    axes.set_ylabel("transitions/s")
    axes.set_title("environments")
    axes.legend()


def draw_cores(axes: Axes, series: Mapping[str, Any]) -> None:
    rounds = series["num_envs"]
    num_envs, actors = read_medians(rounds, lambda traffic: traffic["cores"]["actors"])
    _, replay = read_medians(rounds, lambda traffic: traffic["cores"]["replay"])
    axes.stackplot(num_envs, actors, replay, colors=[OURS, OTHERS], labels=["actors", "replay"])
    axes.set_ylim(0)
    axes.set_xlabel("environments that only wait")
    axes.set_ylabel("cores taken")
    axes.set_title("which core is full first")
    axes.legend(loc="upper left")


def draw_sizes(axes: Axes, series: Mapping[str, Any]) -> None:
    for field, marker, what in (("sample", "o-", "sample"), ("update", "s--", "new priority")):
        sizes, microseconds = read_medians(series["sizes"], operator.itemgetter(field))
        axes.plot(sizes, microseconds, marker, color=OURS, label=what)
    axes.set_xscale("log")
    axes.set_xticks(sizes, map(style.CountFormatter(sep=""), sizes))
    axes.set_xticks([], minor=True)
    axes.set_ylim(0)
    axes.set_xlabel("transitions in the replay (log)")
    axes.set_ylabel("microseconds each")
    axes.set_title("size of the replay")
    axes.legend()


def read_medians(
    rounds_by_number: Mapping[str, Any], select: Callable[[Mapping[str, Any]], float]
) -> tuple[list[int], list[float]]:
    """Return the numbers that were measured with, and for each the median over its rounds."""
    medians = {
        int(number): statistics.median(select(one) for one in rounds)
        for number, rounds in rounds_by_number.items()
    }
    return list(medians), list(medians.values())


def draw_bars(axes: Axes, lengths: Mapping[str, float], unit: str) -> None:
    colours = [OURS if name.startswith("our") else OTHERS for name in lengths]
    axes.barh(list(lengths), list(lengths.values()), color=colours)
    axes.invert_yaxis()
    axes.set_xlabel(unit)


Panel = Callable[[Axes, Mapping[str, Any]], None]
# The title of each part's figure, and its panels.
PANELS: dict[str, Any] = {
    "acting": ("Acting on Pong, one core", draw_acting),
    "learner": ("Learner with data flowing", draw_learner),
    "replay_load": ("The replay and its clients", draw_replay_load),
    "replay_peers": ("Memory of a Pong transition in the replay", draw_replay_peers),
    "scale": ("Scale", draw_envs, draw_cores, draw_sizes),
    "end_to_end": ("CartPole until 475", draw_end_to_end),
}


if __name__ == "__main__":
    main()
