"""Draws evaluations of Pong against wall time: of our runs, and of runs of `peers/atari.py`.

Example:
  python benchmarks/pong_curves.py --out runs/bench/pong.png \
      "Ape-X=runs/pong/logs/evaluator.csv" "Stable-Baselines3=runs/bench/pong_sb3.csv"
"""

import argparse
import pathlib

import numpy as np
from matplotlib.figure import Figure

from apex_agents.plotting import style
from apex_agents.plotting.curves import Curve, make_curve
from apex_agents.runs.folder import RowReader

SOLVED = 18.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("curves", nargs="+", metavar="NAME=CSV", help="evaluations of a run")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="picture to write")
    parser.add_argument("--title", default="Pong on two cores")
    arguments = parser.parse_args()
    pairs = [curve.rpartition("=") for curve in arguments.curves]
    curves = {name: read_curve(pathlib.Path(file)) for name, _, file in pairs}
    for name, curve in curves.items():
        print(f"{name:<32} {describe(curve)}")
    draw(curves, arguments.title).savefig(arguments.out)


def read_curve(file: pathlib.Path) -> Curve:
    """Read mean returns against minutes."""
    rows = RowReader(file).read()
    if not rows:
        raise SystemExit(f"{file} has no evaluations")
    seconds, returns = [
        np.array([row[column] for row in rows]) for column in ("wall_time_seconds", "mean_return")
    ]
    return make_curve(seconds / 60, returns)


def describe(curve: Curve) -> str:
    """Return the best and the last return, and when Pong was solved."""
    solved = curve.x[curve.y >= SOLVED]
    reached = f"{SOLVED:g} after {solved[0]:.0f} min" if len(solved) else f"never {SOLVED:g}"
    return (
        f"best {curve.y.max():.1f}, last {curve.y[-1]:.1f} after {curve.x[-1]:.0f} min, {reached}"
    )


@style.styled
def draw(curves: dict[str, Curve], title: str) -> Figure:
    """Draw one line for each curve."""
    figure, (axes,) = style.new_figure(title, 1, 1, 3.2)
    for index, (name, curve) in enumerate(curves.items()):
        style.draw_line(axes, curve, name, **style.line_style(index))
    style.draw_reference(axes, SOLVED, f"solved: {SOLVED:g}")
    axes.set_xlabel("wall time (min)")
    axes.set_ylabel("mean return of an evaluation")
    style.scale_axes(axes, is_time=False, y_axis="any")
    style.add_legend(figure)
    return figure


if __name__ == "__main__":
    main()
