"""The evaluations in results/ are in the tables of the documentation, and give figures."""

from __future__ import annotations

import pathlib

import pytest

from apex_agents.plotting import draw_study
from apex_agents.presets import execute_file
from apex_agents.studies.results import from_csv, make_groups
from apex_agents.studies.study import Study

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAPER = ROOT / "results" / "paper"
# The file of a study, and its evaluations.
STUDIES = {
    path.stem: (path, PAPER / path.name.replace(".py", ".csv"))
    for path in sorted((ROOT / "configs" / "paper").glob("*.py"))
    if (PAPER / f"{path.stem}.csv").exists()
}
# Studies of benchmarks/, and their files in results/.
STUDIES |= {
    name: (ROOT / "benchmarks" / f"{name}.py", ROOT / "results" / f"{file}.csv")
    for name, file in {
        "atari_settings": "atari/settings",
        "atari_million": "atari/million_settings",
        "atari_half_hour": "atari/half_hour",
        "pong_hour": "atari/pong_hour",
        "control_ten_minutes": "control_ten_minutes",
    }.items()
}


def test_every_file_belongs_to_a_study():
    paths = [*PAPER.glob("*.csv")]
    assert len(paths) > 10
    for path in paths:
        assert any(path.stem == name or path.stem.startswith(f"{name}_") for name in STUDIES)


def list_files(name: str) -> list[pathlib.Path]:
    """Return the files of a study's evaluations, and of those of other programs, `<name>_*.csv`."""
    _, evaluations = STUDIES[name]
    return [evaluations, *sorted(evaluations.parent.glob(f"{evaluations.stem}_*.csv"))]


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_of_all_data_is_in_the_documentation(name):
    paths = [STUDIES[name][0], *list_files(name)]
    files = " ".join(path.relative_to(ROOT).as_posix() for path in paths)
    files_of_pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "results").glob("*.md")]
    pages = "".join(path.read_text() for path in files_of_pages)
    assert pages.count(f"<!-- study {files} -->") == 1


@pytest.mark.parametrize("name", STUDIES)
def test_the_figure_can_be_drawn(name, tmp_path):
    study = execute_file(STUDIES[name][0], Study, "get_study")
    points = [point for file in list_files(name) for point in from_csv(file.read_text())]
    groups = make_groups(study, points)
    num_seeds = {(group.task, group.setting): len(group.runs) for group in groups}
    assert list(dict.fromkeys(task for task, _ in num_seeds)) == list(study.tasks)
    for task in study.tasks:
        assert {num_seeds[task, setting] for setting in study.settings} == {study.num_seeds}
    paths = draw_study(groups, tmp_path, study.title, study.x)
    assert all(path.stat().st_size > 10_000 for path in paths)
