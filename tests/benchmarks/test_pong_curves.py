"""Tests of what draws Pong's curves."""

import subprocess
import sys

import bench
import pytest
from pong_curves import describe, read_curve

ROWS = "wall_time_seconds,learner_steps,mean_return\n60,10,-21.0\n600,90,{}\n1200,180,17.5\n"


@pytest.mark.parametrize(
    ("middle", "reached"),
    [
        (17.0, "best 17.5, last 17.5 after 20 min, never 18"),
        (18.0, "best 18.0, last 17.5 after 20 min, 18 after 10 min"),
        (18.5, "best 18.5, last 17.5 after 20 min, 18 after 10 min"),
    ],
)
def test_describes_a_curve(tmp_path, middle, reached):
    file = tmp_path / "evaluator.csv"
    file.write_text(ROWS.format(middle))
    assert describe(read_curve(file)) == reached


def test_draws_files_with_names(tmp_path):
    file, picture = tmp_path / "evaluator.csv", tmp_path / "pong.png"
    file.write_text(ROWS.format(18.0))
    command = [sys.executable, str(bench.HERE / "pong_curves.py"), f"a=b={file}", "--out"]
    output = subprocess.run([*command, str(picture)], capture_output=True, text=True, check=True)
    assert output.stdout.startswith("a=b ")
    assert picture.stat().st_size > 10_000
