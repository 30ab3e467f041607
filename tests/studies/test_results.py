"""Tests of a study's evaluations and of its tables, with numbers that can be counted by hand."""

import csv
import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from apex_agents.metrics import columns
from apex_agents.plotting.curve_figures import draw_returns
from apex_agents.studies import results
from apex_agents.studies.results import (
    Point,
    compare,
    from_csv,
    make_groups,
    make_tables,
    read_points,
    read_saved,
    rows_to_csv,
    score,
    summarise,
    to_csv,
    to_markdown,
    write_results,
)
from apex_agents.studies.runner import Screen
from apex_agents.studies.study import Run, Setting, Study

STUDY = Study(
    title="Two settings",
    settings={"first": Setting("apex_dqn_catch", {}), "second": Setting("apex_dqn_catch", {})},
    tasks=("catch", "CartPole-v1"),
    fields={},
)
ONE = STUDY._replace(settings={"first": STUDY.settings["first"]}, tasks=("catch",))


def make_points(task: str, setting: str, seed: int, *returns: float) -> list[Point]:
    """Make evaluations after 10, 20, ... learner steps, each with twice as many actor steps."""
    steps = np.arange(10.0, 10.0 * len(returns) + 1, 10.0)
    return [
        Point(task, setting, seed, 2 * step, step, step / 8, value)
        for step, value in zip(steps, returns, strict=True)
    ]


POINTS = [
    *make_points("catch", "first", 0, 0.0, 0.0, 1.0, 3.0),
    *make_points("catch", "first", 1, 9.0, 9.0, 4.0, 4.0),
    *make_points("catch", "second", 0, 0.0, 0.0, 9.0, 3.0),
    *make_points("CartPole-v1", "first", 0, 100.0),
    *make_points("CartPole-v1", "second", 0, 50.0),
]


def read_cells(table: str) -> list[list[str]]:
    """Return the cells of a Markdown table, line by line, without the rule below the header."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if set("".join(row)) != {"-"}]


def summarise_seeds(*returns: float) -> results.Row:
    """Return the row of a setting whose seeds have one evaluation each."""
    points = [p for seed, r in enumerate(returns) for p in make_points("catch", "first", seed, r)]
    (row,) = summarise(ONE, points)
    return row


def estimate(row, name: str) -> tuple[float, float, float]:
    return row.values[name], row.values[f"{name}_lower"], row.values[f"{name}_upper"]


@pytest.fixture
def make_run(tmp_path):
    def make(seed: int, text: str, *setting: tuple[str, str], **environment: str) -> Run:
        folder = tmp_path / str(seed)
        (folder / "logs").mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"environment": environment}))
        (folder / "logs" / "evaluator.csv").write_text(text)
        task = environment.get("task", "catch")
        return Run(task, setting or (("setting", "first"),), seed, folder, ())

    return make


NAMES = "learner_steps,actor_steps,wall_time_seconds,mean_return\n"


def test_evaluations_that_a_resumed_run_repeated_count_once(make_run):
    # The learner had no checkpoint after step 10; the steps of the actors are counted all the same.
    rows = ["10,20,1.0,5", "20,40,2.0,6", "nan,nan,nan,nan", "15,45,3.0,7", "25,50,4.0,8", ""]
    assert read_points(make_run(3, NAMES + "\n".join(rows))) == [
        Point("catch", "first", 3, 20.0, 10.0, 1.0, 5.0),
        Point("catch", "first", 3, 45.0, 15.0, 3.0, 7.0),
        Point("catch", "first", 3, 50.0, 25.0, 4.0, 8.0),
    ]


def test_a_run_without_an_evaluation_that_can_be_read_has_no_points(make_run, tmp_path):
    assert read_points(make_run(0, NAMES + "10,20,1.0,5\n20,4#,2.0,6\n")) == []
    assert read_points(make_run(1, "")) == []
    assert read_points(Run("catch", (), 2, tmp_path / "none", ())) == []


def test_a_csv_file_holds_all_points():
    assert from_csv(to_csv(POINTS)) == POINTS
    assert from_csv(to_csv(POINTS) + "\n") == POINTS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "its columns are a, b, not task, setting"),
        *(
            (f"{to_csv([])}catch,a,0,1,2,3,4\n{row}\n", f"row 3 is {row}, not a task, a label")
            for row in (
                *("catch,a, b,0,1,2,3,4", "catch,a,0,1,2,3,nan"),
                *("catch,a,0.5,1,2,3,4", "catch,a,0,1,2"),
            )
        ),
    ],
)
def test_a_csv_file_that_cannot_be_read_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        from_csv(text)


def test_a_score_is_the_mean_of_the_last_quarter():
    # Steps from 30 of 40 on count.
    assert score(POINTS[:4], columns.LEARNER_STEPS) == 2.0
    assert score(POINTS[4:8], columns.WALL_TIME_SECONDS) == 4.0


def test_a_run_that_reached_its_target_counts_with_its_last_return():
    # The score of a run that stayed at 2.5 is not greater.
    assert score(POINTS[:4], columns.LEARNER_STEPS, 3.0) == 3.0
    assert score(POINTS[:4], columns.LEARNER_STEPS, 3.1) == 2.0
    assert score(POINTS[8:12], columns.LEARNER_STEPS, 9.0) == 6.0  # Not by an earlier evaluation.
    targets = {("catch", "first"): 3.0}
    first, second = summarise(STUDY._replace(tasks=("catch",)), POINTS[:12], targets=targets)
    assert first.values["score_of_seeds"] == [3.0, 4.0]
    assert second.values["score_of_seeds"] == [6.0]
    text = make_tables(ONE, POINTS[:8], {}, {}, targets)["results.md"]
    assert "or its last return if it reached its target" in text
    assert "target" not in make_tables(ONE, POINTS[:8], {}, {})["results.md"]


def test_last_and_best_returns_of_the_seeds():
    row, _ = summarise(ONE._replace(tasks=("catch", "pong")), POINTS[:8])
    assert row.values["last_return_of_seeds"] == [3.0, 4.0]
    assert row.values["best_return"] == 6  # 3 and 9.
    assert row.values["score"] == 3  # 2 and 4.
    assert (row.values["actor_steps"], row.values["wall_time_seconds"]) == (80, 5)


def test_returns_are_interquartile_means():
    value, lower, upper = estimate(summarise_seeds(0, 1, 2, 6, 100), "last_return")
    assert value == 3  # (1 + 2 + 6) / 3
    assert lower < 3 < upper


@pytest.mark.parametrize("returns", [(5, 3), (7, 3, 4), (4, 3, 8, 7)])
def test_few_seeds_are_shown_one_by_one_and_have_no_interval(returns):
    row = summarise_seeds(*returns)
    np.testing.assert_equal(estimate(row, "last_return")[1:], (math.nan, math.nan))
    assert row.values["last_return_of_seeds"] == [*returns]
    listed = " / ".join(f"{value}.00" for value in returns)
    cell = dict(zip(*read_cells(to_markdown([row], columns.ACTOR_STEPS)), strict=True))
    assert cell["last return"].endswith(f" ({listed})") and "[" not in cell["last return"]
    (line,) = csv.DictReader(io.StringIO(rows_to_csv([row.cells()])))
    assert [float(value) for value in line["last_return_of_seeds"].split()] == [*returns]
    assert (line["seeds"], line["last_return_lower"]) == (str(len(returns)), "nan")


def test_one_seed_has_no_spread():
    row = summarise_seeds(6)
    np.testing.assert_equal(estimate(row, "last_return"), (6, math.nan, math.nan))
    assert read_cells(compare([row]))[1] == ["first", "1", "20", "10", "0:00:01", "6.00"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(-20.625, "-20.6"), (484.25, "484.2"), (21_345.6, "21,346"), (-0.004, "0.00")],
)
def test_returns_have_the_digits_that_matter(value, text):
    assert read_cells(compare([summarise_seeds(value)]))[1][-1] == text


def test_the_table_for_people_has_the_columns_that_are_known(make_run):
    runs = {make_run(seed, ""): ending for seed, ending in enumerate(("finished", "failed"))}
    rows = summarise(ONE, POINTS[:8], runs)
    table = to_markdown(rows, columns.LEARNER_STEPS)
    assert dict(zip(*read_cells(table), strict=True)) == {
        "task": "catch",
        "setting": "first",
        "runs": "1 finished, 1 failed",
        "seeds": "2",
        "score": "3.00 (2.00 / 4.00)",
        "last return": "3.50 (3.00 / 4.00)",
        "best return": "6.00 (3.00 / 9.00)",
        "actor steps": "80",
        "learner steps": "40",
        "wall time": "0:00:05",
    }
    header, rule, line, *_ = table.splitlines()
    assert len(header) == len(rule) == len(line)
    (row,) = summarise(ONE, [], runs)
    assert read_cells(to_markdown([row], columns.ACTOR_STEPS)) == [
        ["task", "setting", "runs", "seeds"],
        ["catch", "first", "1 finished, 1 failed", "0"],
    ]


def test_values_of_fields_are_columns_of_both_tables(make_run):
    runs = [
        make_run(seed, NAMES + "1,2,3,4\n", ("n_step", str(seed)), ("batch_size", "8"))
        for seed in (1, 3)
    ]
    cells = {
        "n_step=1, batch_size=8": {"n_step": "1", "batch_size": "8"},
        "n_step=3, batch_size=8": {"n_step": "3", "batch_size": "8"},
    }
    study = ONE._replace(settings=dict.fromkeys(cells, Setting("a", {})))
    points = [point for run in runs for point in read_points(run)]
    rows = summarise(study, points, dict.fromkeys(runs, "stopped"), cells)
    header, *lines = read_cells(to_markdown(rows, columns.ACTOR_STEPS))
    assert header[:4] == ["task", "n_step", "batch_size", "runs"]
    assert [line[:4] for line in lines] == [
        ["catch", "1", "8", "1 stopped"],
        ["catch", "3", "8", "1 stopped"],
    ]
    table = csv.DictReader(io.StringIO(rows_to_csv([row.cells() for row in rows])))
    assert [(line["n_step"], line["actor_steps"]) for line in table] == [("1", "2.0"), ("3", "2.0")]


@pytest.mark.parametrize("error", [ValueError("no font"), PermissionError(13, "denied")])
def test_tables_are_written_though_no_figure_can_be_drawn(tmp_path, error):
    def draw():
        raise error

    screen = io.StringIO()
    tables = make_tables(ONE, POINTS[:8], {}, {})
    assert not write_results(tmp_path, tables, draw, Screen(Console(file=screen)))
    assert list(tables) == ["results.md", "results.csv", "evaluations.csv"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == tables
    assert from_csv(tables["evaluations.csv"]) == POINTS[:8]
    assert "no font" in screen.getvalue() or "denied" in screen.getvalue()


def test_scores_of_atari_are_compared_with_a_human(make_run):
    text = f"{NAMES}1,2,3,%s\n"
    runs = [
        make_run(seed, text % value, suite="atari", task="Pong")
        for seed, value in enumerate((-20.7, 14.6))
    ]
    unknown = make_run(2, text % 1, suite="atari", task="journey_escape")
    study = ONE._replace(tasks=("journey_escape", "Pong"))
    points = [point for run in (*runs, unknown) for point in read_points(run)]
    other, row = summarise(study, points, dict.fromkeys((*runs, unknown), "finished"))
    # A random player gets -20.7, a human 14.6.
    assert row.values["human_normalized"] == pytest.approx(0.5)
    header, *lines = read_cells(to_markdown([other, row], columns.ACTOR_STEPS))[:3]
    place = header.index("human normalized")
    assert [line[place] for line in lines] == ["-", "50.0% (0.0% / 100.0%)"]


def test_the_table_for_programs():
    (line,) = csv.DictReader(io.StringIO(rows_to_csv([summarise(ONE, POINTS[:8])[0].cells()])))
    unknown = {"human_normalized": "nan", "human_normalized_of_seeds": ""}
    measures = {"score": (3, 2, 4), "last_return": (3.5, 3, 4), "best_return": (6, 3, 9)}
    for name, (value, *seeds) in measures.items():
        unknown |= {name: f"{float(value)}"}
        unknown |= {f"{name}_of_seeds": " ".join(str(float(seed)) for seed in seeds)}
    ends = {
        f"{n}_{end}": "nan" for n in (*measures, "human_normalized") for end in ("lower", "upper")
    }
    budget = {"actor_steps": "80.0", "learner_steps": "40.0", "wall_time_seconds": "5.0"}
    head = {"task": "catch", "setting": "first", "runs": "", "seeds": "2"}
    assert line == {**head, **unknown, **ends, **budget}


def test_settings_side_by_side():
    cells = read_cells(compare(summarise(STUDY, POINTS)))
    budget = ["seeds", "actor steps", "learner steps", "wall time"]
    assert cells[0] == ["setting", *budget, "catch", "CartPole-v1", "all tasks"]
    # Runs of 40, 40 and 10 learner steps, of 5, 5 and 1.25 s. Scores of 2 and 4 on catch; of all
    # tasks, 6/3 and 50/100 times the mean of the first setting.
    scores = ["3.00 (2.00 / 4.00)", "100.0", "-"]  # The seeds of catch would count twice.
    assert cells[1] == ["first", "1 to 2", "60", "30", "0:00:04", *scores]
    assert cells[2] == ["second", "1", "50", "25", "0:00:03", "6.00", "50.0", "1.25"]


def test_settings_of_others_come_behind_those_of_the_study():
    points = [*make_points("catch", "theirs", 0, 5.0), *POINTS]
    rows = summarise(STUDY, points)
    assert [(row.task, row.setting["setting"]) for row in rows] == [
        (task, label) for task in STUDY.tasks for label in ("first", "second", "theirs")
    ]
    # No run on the second task: the number of seeds is not the same on both.
    row = ["theirs", "0 to 1", "20", "10", "0:00:01", "5.00", "-", "-"]
    assert read_cells(compare(rows))[3] == row


@pytest.mark.parametrize(("num_seeds", "has_interval"), [(2, False), (3, True)])
def test_two_seeds_per_task_are_no_interval_of_all_tasks(num_seeds, has_interval):
    points = [
        point
        for task in STUDY.tasks
        for label in STUDY.settings
        for seed in range(num_seeds)
        for point in make_points(task, label, seed, 1.0 + seed)
    ]
    points += [point._replace(task="pong") for point in points if point.task == "catch"]
    rows = summarise(STUDY._replace(tasks=(*STUDY.tasks, "pong")), points)
    for cells in read_cells(compare(rows))[1:]:
        assert cells[1] == str(num_seeds)
        assert ("[" in cells[-1]) is has_interval
        assert not any("[" in cell for cell in cells[:-1])


@pytest.mark.parametrize("of_first", [[-1.0], [0.0], []])
def test_returns_that_are_not_above_0_have_no_ratios(of_first):
    points = [*POINTS[4:], *make_points("catch", "first", 0, *of_first)]
    points = [point for point in points if point.seed == 0]
    assert "all tasks" not in read_cells(compare(summarise(STUDY, points)))[0]


def test_a_negative_score_of_another_setting_has_no_ratio():
    points = [*POINTS[:-1], POINTS[-1]._replace(mean_return=-50.0)]
    assert "all tasks" not in read_cells(compare(summarise(STUDY, points)))[0]


def test_groups_of_a_figure_are_folders_or_saved_evaluations(make_run):
    run = make_run(0, NAMES + "1,2,3,4\n", task="catch")
    points = [*make_points("catch", "second", 7, 1.0, 2.0), *read_points(run)]
    second, first = make_groups(STUDY, points, [run], order=["second"])
    assert [(g.setting, g.index, g.task) for g in (second, first)] == [
        ("second", 0, "catch"),
        ("first", 1, "catch"),
    ]
    assert [run.path for run in first.runs] == [run.folder]
    (table,) = second.read_columns(columns.EVALUATOR)
    assert table[columns.ACTOR_STEPS].tolist() == [20.0, 40.0]
    assert table[columns.MEAN_RETURN].tolist() == [1.0, 2.0]
    assert second.read_columns(columns.LEARNER) == [{}]


def test_saved_evaluations_stay_where_a_folder_has_gone(make_run):
    run = make_run(0, NAMES + "1,2,3,4\n", task="catch")
    points = [*make_points("catch", "first", 0, 1.0), *make_points("catch", "first", 1, 2.0)]
    (group,) = make_groups(STUDY, points, [run])
    saved, opened = group.runs
    assert saved.points == points[1:] and opened.path == run.folder


@pytest.mark.parametrize("steps", [(20, 10), (10, 20, 10, 20)])
def test_evaluations_out_of_order_are_refused(steps, tmp_path):
    points = [Point("catch", "theirs", 3, 1.0, step, 1.0, 2.0) for step in steps]
    (tmp_path / "theirs.csv").write_text(to_csv(points))
    with pytest.raises(ValueError, match="of catch, theirs, 3, whose learner steps decrease"):
        read_saved(tmp_path / "theirs.csv", STUDY, ())
    (tmp_path / "theirs.csv").write_text(to_csv(sorted(points)))
    assert read_saved(tmp_path / "theirs.csv", STUDY, ()) == sorted(points)


def test_evaluations_that_the_new_ones_lack_are_kept(tmp_path):
    text = io.StringIO()

    def write(points: list[Point]) -> list[str]:
        tables = make_tables(STUDY, points, {}, {})
        assert write_results(tmp_path, tables, list, Screen(Console(file=text, width=500)))
        return sorted(path.name for path in tmp_path.glob("evaluations*"))

    assert write(POINTS) == write(POINTS) == ["evaluations.csv"]
    assert "no longer" not in text.getvalue()
    assert write(POINTS[:8]) == ["evaluations-2.csv", "evaluations.csv"]
    runs = "3 runs (CartPole-v1, first; CartPole-v1, second; catch, second)"
    assert f"no longer have the evaluations of {runs}; they are in" in text.getvalue()
    assert from_csv((tmp_path / "evaluations-2.csv").read_text()) == POINTS
    # The same evaluations are kept once.
    assert write(POINTS) == write(POINTS[:8]) == ["evaluations-2.csv", "evaluations.csv"]
    write(POINTS[:4])
    assert from_csv((tmp_path / "evaluations-3.csv").read_text()) == POINTS[:8]


def test_a_saved_run_that_reached_its_target_is_carried_forward():
    points = [
        *make_points("catch", "first", 0, 0.0, 8.0),
        *make_points("catch", "first", 1, 0.0, 2.0, 4.0, 16.0),
    ]

    def end_of_mean(targets: dict[tuple[str, str], float]) -> list[float]:
        figure = draw_returns(make_groups(ONE, points, targets=targets))
        assert figure is not None
        (mean,) = [line for line in figure.axes[1].lines if "mean" in str(line.get_label())]
        return [float(mean.get_xdata()[-1]), float(mean.get_ydata()[-1])]

    assert end_of_mean({}) == [20.0, 5.0]
    assert end_of_mean({("catch", "first"): 8.0}) == [40.0, 12.0]
