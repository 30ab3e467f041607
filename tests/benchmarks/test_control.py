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
        (NAME, 4, [(1, 1.0, 801.0)]),  # Seed 3 is missing.
        ("sac", 0, [(1_000, 10.0, 800.0)]),
        ("sac", 1, [(1_000, 10.0, 3.0), (4_000, 44.6, 5.1)]),
        ("td3", 0, [(2_000, float("nan"), 7.0)]),
    ]:
        evaluations = [control.Evaluation(*evaluation) for evaluation in curve]
        control.append_curve(path, "cartpole:swingup", name, seed, evaluations)
    lines = control.make_table(path).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        [
            *("cartpole:swingup, 800", "Ape-X DPG", "3"),
            *("5,000 (2,000 to 8,000)", "35 (20 to 50), 2 of 3"),
        ],
        [
            *("cartpole:swingup, 800", "SAC", "2"),
            *("1,000; not within 4,000 (5 then)", "10; not within 45"),
        ],
        [*("cartpole:swingup, 800", "TD3", "1"), *("not within 2,000 (7 then)", "-")],
    ]


def test_the_table_of_the_documentation_is_that_of_the_file():
    table = control.make_table(ROOT / "results" / "control.csv")
    assert table in (ROOT / "docs" / "results.md").read_text()
