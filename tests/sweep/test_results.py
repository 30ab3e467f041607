"""Tests of a sweep's tables, with numbers that can be counted by hand."""

import csv
import io
import json
import math

import pytest

from apex_agents.runs.folder import RunFolder
from apex_agents.sweep.results import (
    explain,
    summarise,
    to_csv,
    to_markdown,
    to_rows,
)


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
def result(make_run):
    end = {"actor_steps": 100, "learner_steps": 8, "wall_time_seconds": 7199.6}
    runs = [make_run("a", [1, 9, 3], end), make_run("b", [5, float("nan")], end)]
    return summarise("pong", runs, ["finished", "finished", "failed"])


def test_last_and_best_returns_of_the_seeds(result):
    assert result.endings == {"finished": 2, "failed": 1}
    assert result.last_return == (4, 3, 5)  # Last finite ones: 3 and 5.
    assert result.best_return == (7, 5, 9)
    assert (result.actor_steps, result.learner_steps) == (100, 8)


def test_returns_are_interquartile_means(make_run):
    runs = [make_run(str(value), [value]) for value in (0, 1, 2, 6, 100)]
    result = summarise("pong", runs, 5 * ["stopped"])
    assert result.last_return.value == 3  # (1 + 2 + 6) / 3
    assert result.last_return.lower < 3 < result.last_return.upper
    # They have no summary: as of their last evaluations.
    assert (result.actor_steps, result.learner_steps, result.wall_time_seconds) == (10, 1, 2)


def test_a_task_without_anything():
    result = summarise("pong", [], ["not started"])
    assert math.isnan(result.last_return.value)
    assert to_rows([result])[1] == ["pong", "1 not started", "-", "-", "-", "-", "-"]


def test_table_for_people(result):
    rows = to_rows([result])
    assert dict(zip(*rows, strict=True)) == {
        "task": "pong",
        "runs": "2 finished, 1 failed",
        "last return": "4.00 [3.00, 5.00]",
        "best return": "7.00 [5.00, 9.00]",
        "actor steps": "100",
        "learner steps": "8",
        "wall time": "2:00:00",
    }
    header, line, row, *rest = to_markdown([result]).splitlines()
    assert len(header) == len(line) == len(row)
    assert set(line) == set("| -")
    assert "uman" not in explain([result])
    assert rest == ["", explain([result])]


@pytest.mark.parametrize(
    ("value", "text"),
    [(-20.625, "-20.6"), (484.25, "484.2"), (21_345.6, "21,346"), (-0.004, "0.00")],
)
def test_returns_have_the_digits_that_matter(value, text, make_run):
    result = summarise("pong", [make_run("a", [value])], ["finished"])
    assert to_rows([result])[1][2] == text


def test_scores_of_atari_are_compared_with_a_human(make_run):
    atari = {"suite": "atari", "task": "ALE/Pong-v5"}
    runs = [make_run("a", [-20.7], **atari), make_run("b", [14.6], **atari)]
    result = summarise("ALE/Pong-v5", runs, ["finished", "finished"])
    # A random player gets -20.7, a human 14.6.
    assert result.human_normalized == pytest.approx((0.5, 0, 1))
    assert to_rows([result])[1][4] == "50.0% [0.0%, 100.0%]"
    assert "Human-normalized" in explain([result])
    unknown = make_run("c", [1.0], suite="atari", task="journey_escape")
    other = summarise("journey_escape", [unknown], ["finished"])
    assert [row[4] for row in to_rows([other, result])] == [
        "human-normalized",
        "-",
        "50.0% [0.0%, 100.0%]",
    ]


def test_table_for_programs(result):
    (row,) = csv.DictReader(io.StringIO(to_csv([result])))
    assert row == {
        "task": "pong",
        "runs": "2 finished, 1 failed",
        "last_return": "4.0",
        "last_return_lower": "3.0",
        "last_return_upper": "5.0",
        "best_return": "7.0",
        "best_return_lower": "5.0",
        "best_return_upper": "9.0",
        "human_normalized": "nan",
        "human_normalized_lower": "nan",
        "human_normalized_upper": "nan",
        "actor_steps": "100.0",
        "learner_steps": "8.0",
        "wall_time_seconds": "7199.6",
    }
