"""Tests of the table of Atari games."""

import contextlib
import json
import statistics
import sys

import atari
import pytest

from apex_agents.evaluation.atari_scores import human_normalized_score
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import Point

# (score - random) / (human - random) of Pong: 1.0 for 14.6, 0 for -20.7; of Boxing: 12.1 and 0.1.
SCORES = [
    {"game": game, "sticky": sticky, "seed": seed, "training": training, "last": last, "best": best}
    for game, sticky, seed, training, last, best in [
        ("boxing", "0", "0", "6.1", "12.1", "24.1"),
        ("pong", "0", "0", "-20.7", "14.6", "20"),
        ("pong", "0", "1", "-20.7", "7.54", "20"),
        ("pong", "0.25", "0", "99", "99", "99"),
    ]
]
PUBLISHED = [
    {"game": "pong", "algorithm": "A", "mean_return": "-3.05"},
    {"game": "boxing", "algorithm": "A", "mean_return": "0.1"},
    {"game": "pong", "algorithm": "B", "mean_return": "1"},
    {"game": "freeway", "algorithm": "C", "mean_return": "1"},
]


def test_table_has_means_of_seeds_and_normalizes_what_has_all_games():
    lines = atari.make_table(SCORES, PUBLISHED).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    names = [f"{atari.OURS}, {kind}" for kind in ("training", "last", "best")]
    assert cells[0] == ["game", "random, human", *names, "A", "B"]
    pong = ["-20.7 (-20.7 / -20.7)", "11.1 (14.6 / 7.5)", "20.0 (20.0 / 20.0)", "-3.0", "1.0"]
    assert cells[2:] == [
        ["pong", "-20.7, 14.6", *pong],
        ["boxing", "0.1, 12.1", "6.1", "12.1", "24.1", "0.1", ""],
        ["pong, sticky 0.25", "-20.7, 14.6", "99.0", "99.0", "99.0", "-3.0", "1.0"],
        ["median, human-normalized", "", "0.25", "0.95", "1.58", "0.25", ""],
        ["mean, human-normalized", "", "0.25", "0.95", "1.58", "0.25", ""],
    ]


def test_training_returns_are_those_of_the_last_steps(tmp_path, monkeypatch):
    files = {
        "config.json": json.dumps({"agent": {}, "environment": {"task": "pong"}, "run": {}}),
        "logs/replay.csv": "actor_steps,wall_time_seconds\n0,0\n500000,50\n1000000,100\n",
        # After 75 s: two episodes that returned 4 on average, with the least epsilon, 5 and 7.
        "logs/actor_0_envs.csv": (
            "env_index,epsilon,episodes,episode_return,wall_time_seconds\n"
            "0,0.4,1,-9,70\n1,0.01,2,4,80\n0,0.4,1,5,80\n0,0.4,1,7,100\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    evaluation = {"mean_return": 1.0, "standard_error": 0.5}
    monkeypatch.setattr(atari, "evaluate", lambda *_: evaluation)
    found = atari.score(RunFolder(tmp_path))
    assert (found["training"], found["training_low_epsilon"]) == ("5.00", "4.00")
    assert found["training_episodes"] == 4
    assert (found["actor_steps"], found["minutes"]) == (1_000_000, "1.7")
    assert (found["best"], found["last_standard_error"]) == ("1.00", "0.50")


def test_games_of_the_users_follow_those_of_the_table():
    games = {"venture": "0.0", "boxing": "6.1", "alien": "227.8"}
    scores = [{**SCORES[0], "game": game, "last": last} for game, last in games.items()]
    rows = [line.split("|") for line in atari.make_table(scores, PUBLISHED).splitlines()[2:5]]
    assert [row[1].strip() for row in rows] == ["boxing", "alien", "venture"]
    (axes, *_) = atari.draw_bars(scores, PUBLISHED).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["boxing", "alien", "venture"]


def test_means_are_of_all_games_and_of_the_first_ones():
    scores = [{**SCORES[0], "game": game, "last": "0.0"} for game in (*atari.GAMES, "alien")]
    published = [{"game": g, "algorithm": "A", "mean_return": "0"} for g in atari.GAMES]
    lines = atari.make_table(scores, published).splitlines()
    header, *rows = ([cell.strip() for cell in line.split("|")] for line in (lines[0], *lines[-4:]))
    normalized = [human_normalized_score(game, 0.0) for game in (*atari.GAMES, "alien")]
    column = header.index(f"{atari.OURS}, last")
    assert [row[header.index("A")] for row in rows] == ["", "", *(r[column] for r in rows[2:])]
    assert {row[1]: float(row[column]) for row in rows} == pytest.approx(
        {
            f"{name}, human-normalized, {label}": function(group)
            for label, group in {"all games": normalized, "the first 6": normalized[:-1]}.items()
            for name, function in {"median": statistics.median, "mean": statistics.fmean}.items()
        },
        abs=0.005,
    )


@pytest.mark.parametrize("folder", ["", "munchausen"])
def test_the_tables_of_the_documentation_are_those_of_the_files(folder):
    results = atari.ROOT / "results" / "atari"
    tables = [atari.read_rows(path) for path in (results / folder / "scores.csv", atari.PUBLISHED)]
    assert atari.make_table(*tables) in (atari.ROOT / "docs" / "results.md").read_text()


def test_figures_show_the_games_that_there_are():
    sticky = f"{atari.OURS}, sticky actions 0.25"
    labels = {"breakout": atari.OURS, "pong": atari.OURS, "boxing": sticky}
    points = [
        Point(game, label, seed, steps, steps, steps, 1.0)
        for game, label in labels.items()
        for seed in (0, 1)
        for steps in (10, 20)
    ]
    curves = atari.draw_curves(points)
    assert [axes.get_title() for axes in curves.axes] == ["pong", "breakout"]
    (axes,) = atari.draw_bars(SCORES, PUBLISHED).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["pong", "boxing"]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([0.0, 0.5, 0.5, 0.0, 21.7 / 35.3], abs=1e-6)


@pytest.mark.parametrize("finished", [True, False])
def test_only_runs_that_have_reached_their_end_are_scored(tmp_path, monkeypatch, finished):
    settings = {
        "environment": {"task": "boxing", "atari": {"sticky_action_probability": 0.0}},
        "run": {"seed": 3},
    }
    files = {
        "config.json": json.dumps(settings),
        "summary.json": json.dumps({"finished": finished}),
        "logs/evaluator.csv": (
            "actor_steps,learner_steps,wall_time_seconds,mean_return\n1000000,1,2,12\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    scores = {"training": "1", "last": "2", "best": "3"}
    monkeypatch.setattr(atari, "find_runs", lambda _: [RunFolder(tmp_path / "run")])
    monkeypatch.setattr(atari, "score", lambda _: scores)
    results = tmp_path / "results"
    arguments = ["atari.py", f"--runs={tmp_path}", f"--results={results}", f"--images={tmp_path}"]
    monkeypatch.setattr(sys, "argv", arguments)
    for _ in range(2):  # What is in the files is not evaluated again.
        with contextlib.nullcontext() if finished else pytest.raises(SystemExit):
            atari.main()
    row = {"game": "boxing", "sticky": "0", "seed": "3"} | scores
    assert atari.read_rows(results / "scores.csv") == [row] * finished


def test_rows_are_appended(tmp_path):
    path = tmp_path / "scores.csv"
    assert atari.read_rows(path) == []
    for row in SCORES[:2]:
        atari.append_row(path, row)
    assert atari.read_rows(path) == SCORES[:2]
    atari.append_row(path, {"new": "1", **SCORES[2]})
    rows = [{"new": new, **row} for new, row in zip(["", "", "1"], SCORES, strict=False)]
    assert atari.read_rows(path) == rows
