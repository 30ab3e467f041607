"""Tests of files with figures: complete and in two formats, or absent."""

import logging
import os
import subprocess
import sys

import pytest

from apex_agents.plotting import draw_run, draw_runs, draw_study

EVALUATIONS = [
    {
        "learner_steps": step,
        "actor_steps": 10 * step,
        "wall_time_seconds": step,
        "mean_return": step % 3,
        "standard_error": 1.0,
    }
    for step in range(1, 9)
]
REPLAY = [{"wall_time_seconds": 5, "replay_size": 9, "inserts_per_second": 2}]


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_is_drawn_into_its_folder(make_run):
    run = make_run("a", {"evaluator": EVALUATIONS, "replay": REPLAY})
    paths = draw_run(str(run.path))
    names = ["returns.png", "returns.svg", "speeds.png", "speeds.svg"]
    assert paths == [run.path / "plots" / name for name in names]
    files = contents(run.path / "plots")
    assert sorted(files) == names
    for name, content in files.items():
        is_png = name.endswith(".png")
        assert content.startswith(b"\x89PNG" if is_png else b"<?xml")
        assert content.rstrip().endswith(b"IEND\xaeB`\x82" if is_png else b"</svg>")
        assert len(content) > 10_000
    draw_run(run.path)
    assert contents(run.path / "plots") == files


@pytest.mark.parametrize(
    ("backend", "remains"),
    [
        ("module://matplotlib_inline.backend_inline", False),  # A notebook sets it.
        ("module://no_notebook.backend", True),  # Matplotlib imports it with pyplot only.
        ("no_such_backend", False),
        ("tkagg", True),  # It needs a display.
        ("module://matplotlib.backends.backend_svg", True),
    ],
)
def test_a_run_is_drawn_whatever_backend_the_environment_names(make_run, backend, remains):
    run = make_run("a", {"evaluator": EVALUATIONS})
    code = (
        "import os, sys; from apex_agents.plotting import draw_run; draw_run(sys.argv[1]);"
        "import matplotlib; name = os.environ['MPLBACKEND'];"
        "print(name == sys.argv[2], matplotlib.rcParams['backend'].lower() == sys.argv[2])"
    )
    environ = {**os.environ, "MPLBACKEND": backend}
    result = subprocess.run(
        [sys.executable, "-c", code, run.path, backend], env=environ, capture_output=True, text=True
    )
    assert (result.stdout, result.returncode) == (f"True {remains}\n", 0), result.stderr
    assert sorted(contents(run.path / "plots")) == ["returns.png", "returns.svg"]


def test_a_run_without_rows_gets_no_folder_of_figures(make_run):
    run = make_run("a")
    assert draw_run(run.path) == []
    assert not (run.path / "plots").exists()


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(ValueError):
        draw_run(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_warning(make_run, caplog):
    run = make_run("a", {"evaluator": EVALUATIONS})
    in_the_way = run.path / "plots"
    in_the_way.touch()
    with caplog.at_level(logging.INFO):
        assert draw_run(run.path) == []
        assert draw_run(run.path) == []
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        in_the_way.unlink()
        assert len(draw_run(run.path)) == 2
        assert [record.levelno for record in caplog.records[1:]] == [logging.INFO]


def test_several_runs_are_drawn_into_a_given_folder(make_run, tmp_path):
    runs = [make_run(f"seed{i}", {"evaluator": EVALUATIONS}, seed=i) for i in range(2)]
    paths = draw_runs(runs, tmp_path / "a" / "b")
    assert [path.name for path in paths] == ["returns.png", "returns.svg"]
    (tmp_path / "a" / "b" / "exploration.png").write_text("of other runs")
    (tmp_path / "a" / "b" / "of_the_user.png").write_text("kept")
    draw_runs(runs, tmp_path / "a" / "b")
    names = ["of_the_user.png", "returns.png", "returns.svg"]
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == names
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        draw_runs(runs, tmp_path / "file")


def test_a_sweep_is_one_figure(make_run, tmp_path):
    runs = [make_run(task, {"evaluator": EVALUATIONS}, task=task) for task in ("a", "b", "c", "d")]
    one, four = tmp_path / "one", tmp_path / "four"
    draw_runs(runs[:1], one)
    draw_runs(runs, four)
    assert sorted(contents(one)) == sorted(contents(four)) == ["returns.png", "returns.svg"]
    assert contents(one)["returns.png"] != contents(four)["returns.png"]
    assert draw_runs([], tmp_path / "none") == []
    assert draw_study([], tmp_path / "none", "", "actor_steps") == []


def test_matplotlib_does_not_report_its_fonts():
    assert not logging.getLogger("matplotlib.font_manager").isEnabledFor(logging.INFO)
