"""The table of Atari games: plays with what runs have learned, and draws the results.

`--runs` names the folder of a study. Each run in it that has reached its end is evaluated, with its
best and with its last parameters: whole games from no-op starts, epsilon 0.001. Results are
appended to `scores.csv` and `curves.csv` of `--results`, in which a run that is there already stays
as it is. Without `--runs` nothing is evaluated.

Then the table is printed, beside the scores of `published.csv`, and the figures are drawn; with
`--frames` also one that shows a game of each of `GAMES` by its agent in `agents/`, half-way to its
end.

Example:
  apex-study --config=apex_dqn_atari_single_host --seeds=3 --workdir=runs/atari_games \
      --config.environment.task=pong,breakout --config.run.max_actor_steps=1e6
  python benchmarks/atari.py --runs runs/atari_games
"""

import argparse
import csv
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np
from matplotlib.figure import Figure
from our_runs import ROOT

from apex_agents.evaluation.atari_scores import atari_scores, human_normalized_score
from apex_agents.metrics import columns
from apex_agents.plotting import style
from apex_agents.plotting.curve_figures import draw_returns
from apex_agents.plotting.exploration import EnvRows, read_env_rows
from apex_agents.plotting.run_groups import group_runs
from apex_agents.runs.files import replace_file
from apex_agents.runs.folder import RunFolder, find_runs
from apex_agents.runs.workdir import EVALUATIONS, SUMMARY_FILE
from apex_agents.studies import results
from apex_agents.studies.results import (
    Point,
    format_table,
    from_csv,
    make_groups,
    read_evaluations,
    to_csv,
)
from apex_agents.studies.study import Setting, Study

GAMES = ("pong", "breakout", "space_invaders", "seaquest", "freeway", "boxing")
EPISODES, EPSILON = 30, 0.001
# Agent steps at the end of a run whose training episodes count, as an iteration of Dopamine.
LAST_STEPS = 250_000
# Epsilon of published training returns; more than half of our environments explore more.
LOW_EPSILON = 0.01
OURS = "Ape-X DQN"
# Scores of ours by their columns in the file.
KINDS = {
    "training": "training",
    "training_low_epsilon": f"training, epsilon up to {LOW_EPSILON}",
    "last": "last",
    "best": "best",
}
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
}
PUBLISHED = ROOT / "results" / "atari" / "published.csv"

Row = dict[str, Any]
KEY = ("game", "sticky", "seed")
NOT_STICKY = "0"  # The probability of sticky actions in the file.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=pathlib.Path, help="folder of a study")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "results" / "atari")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images")
    parser.add_argument("--frames", action="store_true", help="play a game with each agent")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    scores, curves = (arguments.results / name for name in ("scores.csv", "curves.csv"))
    points = from_csv(curves.read_text()) if curves.exists() else []
    if arguments.runs:
        known = {tuple(row[name] for name in KEY) for row in read_rows(scores)}
        paths: dict[tuple, pathlib.Path] = {}
        for run in find_runs(arguments.runs):
            key = describe(run)
            if (other := paths.setdefault(tuple(key.values()), run.path)) != run.path:
                raise SystemExit(f"{other} and {run.path} have other settings; --runs takes one.")
            if not (run.summary() or {}).get("finished") or tuple(key.values()) in known:
                continue
            label = (
                OURS if key["sticky"] == NOT_STICKY else f"{OURS}, sticky actions {key['sticky']}"
            )
            curve = read_evaluations(run, key["game"], label, int(key["seed"]))
            points = [point for point in points if point[:3] != curve[0][:3]] + curve
            row = key | score(run)
            replace_file(curves, to_csv(points).encode())
            append_row(scores, row)
            print(f"{' '.join(key.values())}: evaluated", flush=True)
    if not points:
        raise SystemExit(f"{arguments.results} has no scores, and no run that has reached its end.")
    published = read_rows(PUBLISHED)
    print(make_table(read_rows(scores), published))
    draw_curves(points).savefig(arguments.images / "atari_curves.png")
    draw_bars(read_rows(scores), published).savefig(arguments.images / "atari_normalized.png")
    if arguments.frames:
        agents = [ROOT / "agents" / game for game in GAMES]
        frames = {agent.name: film(agent) for agent in agents if agent.exists()}
        draw_frames(frames).savefig(arguments.images / "atari_frames.png")


def describe(run: RunFolder) -> dict[str, str]:
    """Return what tells a run from others, as the texts of a CSV file."""
    atari = run.settings("environment", "atari")
    return {
        "game": str(run.settings("environment")["task"]),
        "sticky": f"{atari['sticky_action_probability']:g}",
        "seed": str(run.settings("run")["seed"]),
    }


def score(run: RunFolder) -> Row:
    """Return the scores of a run: of its last training episodes, and of saved parameters."""
    steps, seconds = (
        run.read_columns(columns.REPLAY)[name]
        for name in (columns.ACTOR_STEPS, columns.WALL_TIME_SECONDS)
    )
    steps, seconds = (values[np.isfinite(steps)] for values in (steps, seconds))
    (rows,) = read_env_rows(group_runs([run])[0])
    rows = rows.where(np.interp(rows.time, seconds, steps) >= steps[-1] - LAST_STEPS)
    scores = {
        columns.ACTOR_STEPS: int(steps[-1]),
        "minutes": f"{seconds[-1] / 60:.1f}",
        "training": mean_return(rows),
        "training_low_epsilon": mean_return(rows.where(rows.epsilon <= LOW_EPSILON)),
        "training_episodes": int(rows.episodes.sum()),
    }
    for checkpoint in ("best", "last"):
        summary = evaluate(run, checkpoint)
        scores[checkpoint] = f"{summary['mean_return']:.2f}"
        scores[f"{checkpoint}_standard_error"] = f"{summary['standard_error']:.2f}"
    return scores


def mean_return(rows: EnvRows) -> str:
    """Format the mean return of all episodes, '' if there are none."""
    if not len(rows.episodes):
        return ""
    return f"{np.average(rows.mean_return, weights=rows.episodes):.2f}"


def evaluate(run: RunFolder, checkpoint: str) -> dict[str, Any]:
    """Play with saved parameters, into the run's folder as `apex-evaluate` does; its summary."""
    folder = run.path / EVALUATIONS
    before = set(folder.glob("*"))
    play(run.path, f"--episodes={EPISODES}", f"--checkpoint={checkpoint}")
    (written,) = set(folder.glob("*")) - before
    return json.loads((written / SUMMARY_FILE).read_text())


def film(agent: pathlib.Path) -> np.ndarray:
    """Play a game with an agent, and return the frame in the middle of it, uint8 `[H, W, 3]`."""
    with tempfile.TemporaryDirectory() as output:
        play(agent, "--episodes=1", "--video=1", f"--output={output}")
        (video,) = pathlib.Path(output).glob("**/*.mp4")
        middle = imageio_ffmpeg.count_frames_and_secs(video)[0] // 2
        frames = imageio_ffmpeg.read_frames(video)
        width, height = next(frames)["size"]
        frame = next(itertools.islice(frames, middle, None))
        frames.close()
    return np.frombuffer(frame, np.uint8).reshape(height, width, 3)


def play(folder: pathlib.Path, *flags: str) -> None:
    """Play with a run or an agent."""
    script = str(ROOT / "launch" / "evaluate.py")
    command = [sys.executable, script, str(folder), f"--epsilon={EPSILON}", *flags]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def read_rows(path: pathlib.Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_row(path: pathlib.Path, row: Row) -> None:
    """Add a row to a CSV file; rows before it have nothing in columns that they did not have."""
    before = [dict.fromkeys(row, "") | earlier for earlier in read_rows(path)]
    replace_file(path, results.rows_to_csv([*before, row]).encode())


def make_table(scores: Sequence[Mapping[str, str]], published: Sequence[Mapping[str, str]]) -> str:
    """Return a row for each game, beside published scores, and human-normalized means below.

    They are of all games, and of `GAMES` where there are all of these and others. Games with sticky
    actions have rows of their own, which count in no mean.
    """
    known = ours(scores)
    games = in_order(known.get(f"{OURS}, last", ()))
    columns_of_games = known | others(published, games)
    cells = [["game", "random, human", *columns_of_games]]
    cells += [make_row(game, game, columns_of_games) for game in games]
    for sticky in sorted({row["sticky"] for row in scores} - {NOT_STICKY}, key=float):
        found = ours(scores, sticky)
        with_sticky = columns_of_games | {name: found.get(name, {}) for name in known}
        for game in in_order(found.get(f"{OURS}, last", ())):
            cells.append(make_row(game, f"{game}, sticky {sticky}", with_sticky))
    groups = {"": games}
    if set(GAMES) < set(games):
        groups = {", all games": games, f", the first {len(GAMES)}": list(GAMES)}
    for (label, group), (name, function) in itertools.product(groups.items(), STATISTICS.items()):
        row = [f"{name}, human-normalized{label}", ""]
        for column in columns_of_games.values():
            has_all = all(game in column for game in group)
            row.append(f"{function(normalize(column, group)):.2f}" if group and has_all else "")
        cells.append(row)
    return format_table(cells)


def make_row(game: str, label: str, scores: Mapping[str, Mapping[str, list[float]]]) -> list[str]:
    """Return the cells of a game: its label, the scores of players, and those of the columns."""
    extremes = f"{atari_scores()[game].random:g}, {atari_scores()[game].human:g}"
    return [label, extremes, *(show(column.get(game, [])) for column in scores.values())]


def in_order(games: Iterable[str]) -> list[str]:
    """Return each game once: those of `GAMES` in their order, then the others by name."""
    names = set(games)
    return [game for game in GAMES if game in names] + sorted(names.difference(GAMES))


def ours(
    scores: Sequence[Mapping[str, str]], sticky: str = NOT_STICKY
) -> dict[str, dict[str, list[float]]]:
    """Return the scores of our runs with these sticky actions: by kind and game, one per seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind, label in KINDS.items():
        for row in scores:
            if row["sticky"] == sticky and row.get(kind):
                games = found.setdefault(f"{OURS}, {label}", {})
                games.setdefault(row["game"], []).append(float(row[kind]))
    return found


def others(
    published: Sequence[Mapping[str, str]], games: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return published scores of some games by algorithm and game."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in published:
        if row["game"] in games:
            found.setdefault(row["algorithm"], {})[row["game"]] = [float(row["mean_return"])]
    return found


def normalize(column: Mapping[str, Sequence[float]], games: Iterable[str]) -> list[float]:
    """Return the human-normalized mean score of each game."""
    return [human_normalized_score(game, float(np.mean(column[game]))) for game in games]


def show(values: Sequence[float]) -> str:
    """Format the mean of some seeds, with the value of each."""
    if not values:
        return ""
    mean, *seeds = (f"{value:.1f}" for value in (np.mean(values), *values))
    return mean if len(seeds) == 1 else f"{mean} ({' / '.join(seeds)})"


def draw_curves(points: Sequence[Point]) -> Figure:
    """Draw the games without sticky actions, a line for each seed and their mean."""
    points = [point for point in points if point.setting == OURS]
    games = in_order(point.task for point in points)
    title, x = "A million agent steps of Atari", columns.ACTOR_STEPS
    study = Study(title, {OURS: Setting("apex_dqn_atari_single_host", {})}, games, {}, x)
    figure = draw_returns(make_groups(study, points), title, x)
    assert figure is not None  # There are points.
    return figure


@style.styled
def draw_bars(
    scores: Sequence[Mapping[str, str]], published: Sequence[Mapping[str, str]]
) -> Figure:
    """Draw human-normalized scores, a group of bars for each game."""
    name = f"{OURS}, training"
    scores_of_games = ours(scores).get(name, {})
    games = in_order(scores_of_games)
    names = {name: scores_of_games} | others(published, games)
    figure, (axes,) = style.new_figure("A million agent steps of Atari", 1, 1, 3.2)
    width = 0.8 / len(names)
    for index, (name, column) in enumerate(names.items()):
        known = [game for game in games if game in column]
        x = [games.index(game) + (index - (len(names) - 1) / 2) * width for game in known]
        color = style.line_style(index)["color"]
        axes.bar(x, normalize(column, known), width, color=color, label=name)
    axes.set_xticks(range(len(games)), [game.replace("_", " ") for game in games])
    axes.set_ylabel("human-normalized return")
    style.draw_reference(axes, 1.0, "human")
    style.add_legend(figure)
    return figure


@style.styled
def draw_frames(frames: Mapping[str, np.ndarray]) -> Figure:
    """Draw a frame of each game, uint8 `[H, W, 3]`."""
    figure, panels = style.new_figure("Half-way through a game", 1, len(frames), 2.4)
    for axes, (game, frame) in zip(panels, frames.items(), strict=True):
        axes.set_axis_off()
        axes.imshow(frame)
        axes.set_title(game.replace("_", " "))
    return figure


if __name__ == "__main__":
    main()
