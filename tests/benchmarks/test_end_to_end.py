"""When runs of ours and of others had solved their task, and what that comes to."""

import json
import sys

import pytest
from end_to_end import OURS, count, make_rows, read_other, read_ours, run_until
from measuring import Spread

EVALUATIONS = """learner_steps,mean_return,wall_time_seconds
20,9.5,16.0
1000,475.0,40.5
2000,120.0,44.0
3000,500.0,48.0
"""


def write_run(folder, text):
    (folder / "logs").mkdir()
    (folder / "logs/evaluator.csv").write_text(text)
    return folder


def test_ours_counts_the_first_evaluation_that_reaches_the_target(tmp_path):
    assert read_ours(write_run(tmp_path, EVALUATIONS), limit=300.0) == 40.5


@pytest.mark.parametrize(
    ("text", "limit"),
    [(EVALUATIONS, 40.0), (EVALUATIONS[: EVALUATIONS.index("1000")], 300.0)],
    ids=["too late", "never"],
)
def test_ours_is_not_solved(tmp_path, text, limit):
    assert read_ours(write_run(tmp_path, text), limit) is None


def test_ours_may_end_without_an_evaluation(tmp_path):
    assert read_ours(tmp_path, limit=300.0) is None


def test_others_are_read_from_their_output():
    lines = ["a library's own words"]
    for seconds, mean_return in ((10.0, 474.9), (12.5, 475.0)):
        lines.append(json.dumps({"seconds": seconds, "mean_return": mean_return}))
    assert read_other("\n".join(lines), limit=300.0) == 12.5
    assert read_other("\n".join(lines), limit=12.0) is None
    assert read_other("\n".join(lines[:-1]), limit=300.0) is None
    assert read_other("", limit=300.0) is None


def test_rows_compare_with_the_best_other():
    seconds = {OURS: [40.0, 60.0, 50.0], "slow": [None, None, 200.0], "fast": [80.0, 100.0, None]}
    ratio, *times = make_rows(seconds, count(seconds, limit=300.0))
    # Seed by seed 40 / 80, 60 / 100, 50 / 300.
    assert ratio.what == "time to 475, ours / fast, the best other, by seed"
    assert ratio.value == pytest.approx((40 / 80, 50 / 300, 60 / 100))
    assert (ratio.aim, ratio.holds) == ("<= 0.5", True)
    assert [(row.what, row.value) for row in times] == [
        ("time to 475, ours (solved 3 of 3)", Spread(50.0, 40.0, 60.0)),
        ("time to 475, slow (solved 1 of 3)", Spread(300.0, 200.0, 300.0)),
        ("time to 475, fast (solved 2 of 3)", Spread(100.0, 80.0, 300.0)),
    ]


def test_commands_are_ended_when_their_time_is_up():
    program = "print('begun', flush=True); import time; time.sleep(100)"
    assert run_until([sys.executable, "-c", program], limit=2.0) == "begun\n"


def test_commands_that_fail_are_no_measurements():
    with pytest.raises(SystemExit, match="failed with exit code 3"):
        run_until([sys.executable, "-c", "raise SystemExit(3)"], limit=60.0)
