"""Tests of a sweep's tables, with numbers that can be counted by hand."""

import csv
import io
import json
import math

import numpy as np
import pytest

from apex_agents.runs.folder import RunFolder
from apex_agents.studies.results import summarise, to_csv, to_markdown


@pytest.fixture
def make_run(tmp_path):
    def make(name: str, returns, summary=None, **environment: str) -> RunFolder:
        (tmp_path / name / "logs").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps({"environment": environment}))
        rows = [f"{10 * i},{i},{value},{2 * i}" for i, value in enumerate(returns, start=1)]
        header = "actor_steps,learner_steps,mean_return,wall_time_seconds"
        (tmp_path / name / "logs" / "evaluator.csv").write_text("\n".join([header, *rows, ""]))
        if summary is not None:
            (tmp_path / name / "summary.json").write_text(json.dumps(summary))
        return RunFolder(tmp_path / name)

    return make


@pytest.fixture
def row(make_run):
    end = {"actor_steps": 100, "learner_steps": 8, "wall_time_seconds": 7199.6}
    runs = [make_run("a", [1, 9, 3], end), make_run("b", [5, float("nan")], end)]
    return summarise("pong", {}, runs, ["finished", "finished", "failed"])


def estimate(row, name: str) -> tuple[float, float, float]:
    return row[name], row[f"{name}_lower"], row[f"{name}_upper"]


def read_cells(rows) -> list[list[str]]:
    """Return the cells of a Markdown table, line by line, without the rule below the header."""
    lines = [line for line in to_markdown(rows).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


def test_last_and_best_returns_of_the_seeds(row):
    assert row["runs"] == "2 finished, 1 failed"
    assert row["last_return"] == 4  # The last finite ones: 3 and 5.
    assert row["best_return"] == 7
    assert (row["actor_steps"], row["learner_steps"]) == (100, 8)


def test_returns_are_interquartile_means(make_run):
    runs = [make_run(str(value), [value]) for value in (0, 1, 2, 6, 100)]
    row = summarise("pong", {}, runs, 5 * ["stopped"])
    value, lower, upper = estimate(row, "last_return")
    assert value == 3  # (1 + 2 + 6) / 3
    assert lower < 3 < upper
    # The runs have no summary: these are the numbers of their last evaluations.
    assert (row["actor_steps"], row["learner_steps"], row["wall_time_seconds"]) == (10, 1, 2)


@pytest.mark.parametrize("returns", [(5, 3), (7, 3, 4), (4, 3, 8, 7)])
def test_few_seeds_are_shown_one_by_one_and_have_no_interval(returns, make_run):
    runs = [make_run(str(value), [value]) for value in returns]
    row = summarise("pong", {}, runs, ["finished"])
    np.testing.assert_equal(estimate(row, "last_return")[1:], (math.nan, math.nan))
    assert row["last_return_of_seeds"] == [*returns]
    listed = " / ".join(f"{value}.00" for value in returns)
    cell = dict(zip(*read_cells([row]), strict=True))["last return"]
    assert cell.endswith(f" ({listed})") and "[" not in cell
    (line,) = csv.DictReader(io.StringIO(to_csv([row])))
    assert [float(value) for value in line["last_return_of_seeds"].split()] == [*returns]
    assert (line["seeds"], line["last_return_lower"]) == (str(len(returns)), "nan")


def test_one_seed_has_no_spread(make_run):
    row = summarise("pong", {}, [make_run("a", [4, 6])], ["finished"])
    np.testing.assert_equal(estimate(row, "last_return"), (6, math.nan, math.nan))
    assert read_cells([row])[1][2:4] == ["1", "6.00"]


def test_a_task_without_anything():
    row = summarise("pong", {}, [], ["not started"])
    assert math.isnan(row["last_return"])
    assert read_cells([row])[1] == ["pong", "1 not started", "0", "-", "-", "-", "-", "-"]


def test_table_for_people(row):
    assert dict(zip(*read_cells([row]), strict=True)) == {
        "task": "pong",
        "runs": "2 finished, 1 failed",
        "seeds": "2",
        "last return": "4.00 (3.00 / 5.00)",
        "best return": "7.00 (9.00 / 5.00)",
        "actor steps": "100",
        "learner steps": "8",
        "wall time": "2:00:00",
    }
    header, rule, line, *_ = to_markdown([row]).splitlines()
    assert len(header) == len(rule) == len(line)
    assert set(rule) == set("| -")


@pytest.mark.parametrize(
    ("value", "text"),
    [(-20.625, "-20.6"), (484.25, "484.2"), (21_345.6, "21,346"), (-0.004, "0.00")],
)
def test_returns_have_the_digits_that_matter(value, text, make_run):
    row = summarise("pong", {}, [make_run("a", [value])], ["finished"])
    assert read_cells([row])[1][3] == text


def test_scores_of_atari_are_compared_with_a_human(make_run):
    atari = {"suite": "atari", "task": "Pong"}
    runs = [make_run("a", [-20.7], **atari), make_run("b", [14.6], **atari)]
    row = summarise("Pong", {}, runs, ["finished", "finished"])
    # A random player gets -20.7, a human 14.6.
    assert row["human_normalized"] == pytest.approx(0.5)
    unknown = make_run("c", [1.0], suite="atari", task="journey_escape")
    other = summarise("journey_escape", {}, [unknown], ["finished"])
    assert [line[5] for line in read_cells([other, row])] == [
        "human normalized",
        "-",
        "50.0% (0.0% / 100.0%)",
    ]


def test_settings_are_columns_of_both_tables(make_run):
    rows = [
        summarise("pong", {"n_step": str(n), "batch_size": "8"}, [make_run(str(n), [n])], ["x"])
        for n in (1, 3)
    ]
    header, *lines = read_cells(rows)
    assert header[:4] == ["task", "n_step", "batch_size", "runs"]
    assert [line[:3] for line in lines] == [["pong", "1", "8"], ["pong", "3", "8"]]
    assert [line["n_step"] for line in csv.DictReader(io.StringIO(to_csv(rows)))] == ["1", "3"]


def test_table_for_programs(row):
    (line,) = csv.DictReader(io.StringIO(to_csv([row])))
    assert line == {
        "task": "pong",
        "runs": "2 finished, 1 failed",
        "seeds": "2",
        "last_return": "4.0",
        "last_return_lower": "nan",
        "last_return_upper": "nan",
        "last_return_of_seeds": "3.0 5.0",
        "best_return": "7.0",
        "best_return_lower": "nan",
        "best_return_upper": "nan",
        "best_return_of_seeds": "9.0 5.0",
        "human_normalized": "nan",
        "human_normalized_lower": "nan",
        "human_normalized_upper": "nan",
        "human_normalized_of_seeds": "",
        "actor_steps": "100.0",
        "learner_steps": "8.0",
        "wall_time_seconds": "7199.6",
    }
