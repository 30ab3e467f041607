"""The evaluations in results/ give the tables of the documentation, and figures."""

from __future__ import annotations

import pathlib

import pytest

from apex_agents.command_line.config_files import execute_file
from apex_agents.plotting import draw_study
from apex_agents.sweep.study import Study, from_csv, make_panels, to_markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAPER = ROOT / "results" / "paper"
# The file of a study, and its evaluations.
STUDIES = {
    path.stem: (path, PAPER / path.name.replace(".py", ".csv"))
    for path in sorted((ROOT / "configs" / "paper").glob("*.py"))
    if (PAPER / f"{path.stem}.csv").exists()
}
# Studies of benchmarks/, and what their files in results/atari/ are called.
STUDIES |= {
    name: (ROOT / "benchmarks" / f"{name}.py", ROOT / "results" / "atari" / f"{stem}.csv")
    for name, stem in {
        "atari_settings": "settings",
        "atari_million": "million_settings",
        "atari_half_hour": "half_hour",
        "pong_hour": "pong_hour",
    }.items()
}


def test_every_file_belongs_to_a_study():
    paths = [*PAPER.glob("*.csv")]
    assert len(paths) > 10
    for path in paths:
        assert any(path.stem == name or path.stem.startswith(f"{name}_") for name in STUDIES)


def read(name: str) -> tuple[Study, dict]:
    """Return a study and its curves, with those of other programs, `<name>_*.csv`, if any."""
    path, evaluations = STUDIES[name]
    study = execute_file("figure", path, Study, "get_study")
    paths = [evaluations, *sorted(evaluations.parent.glob(f"{evaluations.stem}_*.csv"))]
    points = [point for path in paths for point in from_csv(path.read_text())]
    return study, make_panels(study, points)


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_of_the_documentation_is_that_of_the_data(name):
    study, panels = read(name)
    rows = [line for line in to_markdown(study, panels).splitlines() if line.startswith("|")]
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [row for row in rows if row not in pages] == []
    assert pages.count("\n".join(rows)) == 1


@pytest.mark.parametrize("name", STUDIES)
def test_the_figure_can_be_drawn(name, tmp_path):
    study, panels = read(name)
    assert [*panels] == list(study.tasks)
    for settings in panels.values():
        assert {len(settings[setting]) for setting in study.settings} == {study.num_seeds}
    paths = draw_study(study.title, panels, study.x, tmp_path, name)
    assert all(path.stat().st_size > 10_000 for path in paths)
