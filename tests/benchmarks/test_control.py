"""Tests of the table of the control suite."""

import control
from our_runs import ROOT

NAME = control.CONFIGS[0]


def test_table_tells_runs_that_reached_the_level_from_the_others(tmp_path):
    path = tmp_path / "control.csv"
    for name, seed, curve in [
        (NAME, 0, [(1_000, 10.0, 799.9), (2_000, 20.4, 800.0), (3_000, 30.0, 900.0)]),
        (NAME, 1, [(1_000, float("nan"), 0.0), (8_000, float("nan"), 801.0)]),
        (NAME, 2, [(5_000, 50.0, 801.0)]),
        ("sac", 0, [(1_000, 10.0, 800.0)]),
        ("sac", 1, [(1_000, 10.0, 3.0), (4_000, 44.6, 5.1)]),
        ("td3", 0, [(2_000, float("nan"), 7.0)]),
        ("mine", 3, [(70, 0.6, 800.0)]),
    ]:
        evaluations = [control.Evaluation(*evaluation) for evaluation in curve]
        control.append_curve(path, "cartpole:swingup", name, seed, evaluations)
    lines = control.make_table(path).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        [
            *("cartpole:swingup, 800", "Ape-X DPG", "3"),
            *("5,000 (2,000 to 8,000)", "35 (20 to 50), 2 of 3"),
        ],
        ["cartpole:swingup, 800", "mine", "1", "70", "1"],
        [
            *("cartpole:swingup, 800", "SAC", "2"),
            *("1,000; not reached: 5 at 4,000", "10; not within 45"),
        ],
        [*("cartpole:swingup, 800", "TD3", "1"), *("not reached: 7 at 2,000", "-")],
    ]


def test_seconds_that_are_unknown_count_nowhere():
    nan, inf = float("nan"), float("inf")
    steps = {NAME: [1.0, 2.0], "sac": [2.0, 2.0], "td3": [3.0, inf]}
    seconds = {NAME: [5.0, nan], "sac": [20.0, 3.0], "td3": [8.0, inf]}
    rows = control.make_rows("cartpole:swingup", steps, seconds)
    values = {row.what.partition(", ")[2]: row.value for row in rows if row.unit != "steps"}
    assert values == {
        NAME: (5.0, 5.0, 5.0),
        "sac": (11.5, 3.0, 20.0),
        "td3": (inf, 8.0, inf),
        f"time of {NAME} / sac, by seed": (0.25, 0.25, 0.25),
    }


def test_a_run_of_ours_that_failed_is_no_success():
    inf = float("inf")
    steps = {NAME: [1.0, 2.0, inf], "sac": [2.0, 2.0, 2.0]}
    seconds = {NAME: [1.0, 1.0, inf], "sac": [20.0, 20.0, 20.0]}
    rows = control.make_rows("cartpole:swingup", steps, seconds)
    holds = {row.what.partition(", ")[2]: row.holds for row in rows if row.aim}
    assert holds == {
        f"{NAME} (reached by 2 of 3)": False,
        "sac (reached by 3 of 3)": True,
        f"time of {NAME} / sac, by seed": False,
    }


def test_the_table_of_the_documentation_is_that_of_the_file():
    table = control.make_table(ROOT / "results" / "control.csv")
    assert table in (ROOT / "docs" / "results.md").read_text()
