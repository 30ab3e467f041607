"""Tests of the curves, the scores and the CSV file of a study, with numbers by hand."""

import numpy as np
import pytest

from apex_agents.config import ExperimentConfig
from apex_agents.metrics import columns
from apex_agents.plotting.run_groups import TASK
from apex_agents.studies.plan import Run
from apex_agents.studies.study import (
    Point,
    Setting,
    Study,
    check_study,
    from_csv,
    make_panels,
    read_points,
    score,
    to_csv,
    to_markdown,
)

STUDY = Study(
    title="Two settings",
    settings={"first": Setting("apex_dqn_catch", {}), "second": Setting("apex_dqn_catch", {})},
    tasks=("catch", "CartPole-v1"),
    fields={},
)


def make_points(task: str, setting: str, seed: int, *returns: float) -> list[Point]:
    """Make evaluations after 10, 20, ... learner steps, each with twice as many actor steps."""
    steps = np.arange(10.0, 10.0 * len(returns) + 1, 10.0)
    return [
        Point(task, setting, seed, 2 * step, step, step / 8, value)
        for step, value in zip(steps, returns, strict=True)
    ]


def read_cells(table: str) -> list[list[str]]:
    rows = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


POINTS = [
    *make_points("catch", "first", 0, 0.0, 0.0, 1.0, 3.0),
    *make_points("catch", "first", 1, 9.0, 9.0, 4.0, 4.0),
    *make_points("catch", "second", 0, 0.0, 0.0, 9.0, 3.0),
    *make_points("CartPole-v1", "first", 0, 100.0),
    *make_points("CartPole-v1", "second", 0, 50.0),
]


def test_curves_are_those_of_the_seeds_in_the_order_of_the_study():
    panels = make_panels(STUDY, [*reversed(POINTS[4:8]), *POINTS[:4], *POINTS[8:]])
    assert {task: [*settings] for task, settings in panels.items()} == {
        "catch": ["first", "second"],
        "CartPole-v1": ["first", "second"],
    }
    assert [curve.y[0] for curve in panels["catch"]["first"]] == [0.0, 9.0]
    assert panels["catch"]["first"][0].x.tolist() == [10.0, 20.0, 30.0, 40.0]
    by_time = make_panels(STUDY._replace(x=columns.WALL_TIME_SECONDS), POINTS)
    assert by_time["catch"]["first"][0].x.tolist() == [1.25, 2.5, 3.75, 5.0]


def test_settings_of_others_come_behind_those_of_the_study():
    points = [*make_points("catch", "theirs", 0, 5.0), *POINTS]
    panels = make_panels(STUDY, points)
    assert [*panels["catch"]] == [*panels["CartPole-v1"]] == ["first", "second", "theirs"]
    # No run on the second task: the number of seeds is not the same on both.
    row = ["theirs", "0 to 1", "20", "10", "0:00:01", "5.00", "-"]
    assert read_cells(to_markdown(STUDY, points))[4][:7] == row


def test_a_score_is_the_mean_of_the_last_quarter():
    first, second = make_panels(STUDY, POINTS)["catch"]["first"]
    # From 30 of 40 steps on.
    assert [score(first), score(second)] == [2.0, 4.0]


def test_table_by_hand():
    cells = read_cells(to_markdown(STUDY, POINTS))
    budget = ["seeds", "actor steps", "learner steps", "wall time"]
    assert cells[0] == ["setting", *budget, "catch", "CartPole-v1", "all tasks"]
    # Runs of 40, 40 and 10 learner steps, of 5, 5 and 1.25 s. Scores of 2 and 4 on catch; of all
    # tasks, 2/3, 4/3 and 1 times the mean of the first setting.
    scores = ["3.00 (2.00 / 4.00)", "100.0", "1.00"]
    assert cells[2] == ["first", "1 to 2", "60", "30", "0:00:04", *scores]
    assert cells[3] == ["second", "1", "50", "25", "0:00:03", "6.00", "50.0", "1.25"]


@pytest.mark.parametrize(("num_seeds", "has_interval"), [(2, False), (3, True)])
def test_two_seeds_per_task_are_no_interval_of_all_tasks(num_seeds, has_interval):
    points = [
        point
        for task in STUDY.tasks
        for label in STUDY.settings
        for seed in range(num_seeds)
        for point in make_points(task, label, seed, 1.0 + seed)
    ]
    study = STUDY._replace(tasks=(*STUDY.tasks, "pong"))
    points += [point._replace(task="pong") for point in points if point.task == "catch"]
    for cells in read_cells(to_markdown(study, points))[2:4]:
        assert cells[1] == str(num_seeds)
        assert ("[" in cells[-1]) is has_interval
        assert not any("[" in cell for cell in cells[:-1])


@pytest.mark.parametrize("of_first", [[-1.0], [0.0], []])
def test_returns_that_are_not_above_0_have_no_ratios(of_first):
    points = [*POINTS[4:], *make_points("catch", "first", 0, *of_first)]
    points = [point for point in points if point.seed == 0]
    assert "all tasks" not in read_cells(to_markdown(STUDY, points))[0]


def test_a_csv_file_holds_all_points():
    assert from_csv(to_csv(POINTS)) == POINTS
    assert from_csv(to_csv(POINTS) + "\n") == POINTS


def test_a_csv_file_with_other_columns_is_refused():
    with pytest.raises(ValueError, match="its columns are a, b, not task, setting"):
        from_csv("a,b\n1,2\n")


def test_evaluations_that_a_resumed_run_repeated_count_once(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.json").write_text('{"format_version": 2, "run": {"seed": 3}}')
    # The learner had no checkpoint after step 10; the steps of the actors are counted all the same.
    rows = ["10,20,1.0,5", "20,40,2.0,6", "nan,nan,nan,nan", "15,45,3.0,7", "25,50,4.0,8"]
    names = ["learner_steps", "actor_steps", "wall_time_seconds", "mean_return"]
    text = "\n".join([",".join(names), *rows, ""])
    (tmp_path / "logs" / "evaluator.csv").write_text(text)
    points = list(read_points(Run("catch", (("setting", "first"),), 3, tmp_path, ())))
    assert points == [
        Point("catch", "first", 3, 20.0, 10.0, 1.0, 5.0),
        Point("catch", "first", 3, 45.0, 15.0, 3.0, 7.0),
        Point("catch", "first", 3, 50.0, 25.0, 4.0, 8.0),
    ]


def test_a_file_in_which_a_number_is_damaged_has_no_points(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.json").write_text('{"format_version": 2, "run": {"seed": 3}}')
    text = "learner_steps,actor_steps,wall_time_seconds,mean_return\n10,20,1.0,5\n20,4#,2.0,6\n"
    (tmp_path / "logs" / "evaluator.csv").write_text(text)
    assert list(read_points(Run("catch", (("setting", "first"),), 3, tmp_path, ()))) == []


def test_a_run_without_an_evaluation_has_no_points(tmp_path):
    (tmp_path / "config.json").write_text('{"format_version": 2, "run": {"seed": 3}}')
    run = Run("catch", (("setting", "first"),), 3, tmp_path, ())
    assert list(read_points(run)) == []
    assert list(read_points(run._replace(folder=tmp_path / "none"))) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {}}, r"settings is \{\}; it has to be a dict of labels"),
        ({"settings": {1: STUDY.settings["first"]}}, "settings is .*; it has to be a dict"),
        ({"settings": {"a": {"agent.n_step": 1}}}, "setting 'a' is .*Setting"),
        ({"settings": {"a": Setting(ExperimentConfig, {})}}, "setting 'a' is .*Setting"),
        ({"tasks": ("catch", "catch")}, "tasks is .* different"),
        ({"tasks": "catch"}, "tasks is 'catch'; it has to be a tuple"),
        ({"tasks": ()}, "tasks is "),
        ({"tasks": (1,)}, "tasks is "),
        ({"settings": {"a\n": STUDY.settings["first"]}}, "settings is .*; it has to be a dict"),
        ({"settings": {"a": Setting("apex_dqn_catch", {1: 2})}}, "setting 'a' is .*Setting"),
        ({"settings": {"a": Setting("apex_dqn_catch", {TASK: "pong"})}}, "name it in tasks"),
        ({"fields": {TASK: "pong"}}, "environment.task is no field of a study"),
        ({"num_seeds": 1.5}, "num_seeds is 1.5"),
        ({"fields": None}, "fields is None"),
        ({"x": "steps"}, "x is 'steps'; it has to be one of actor_steps, learner_steps"),
        ({"num_seeds": 0}, "num_seeds is 0"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(changes, message):
    check_study(STUDY)
    with pytest.raises(ValueError, match=message):
        check_study(STUDY._replace(**changes))


@pytest.mark.parametrize(
    "row", ["catch,a, b,0,1,2,3,4", "catch,a,0,1,2,3,nan", "catch,a,0.5,1,2,3,4", "catch,a,0,1,2"]
)
def test_a_row_that_cannot_be_read_is_named(row):
    header = to_csv([]).strip()
    with pytest.raises(ValueError, match=f"row 3 is {row}, not a task, a label"):
        from_csv(f"{header}\ncatch,a,0,1,2,3,4\n{row}\n")
