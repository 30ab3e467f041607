"""`launch/paper.py` as a user runs it: mistakes, and a study of a toy task with real processes."""

import collections
import csv
import json
import pathlib
import re
import shutil

import pytest
from refusals import assert_refused
from whole_runs import CATCH, ROOT

from apex_agents.studies.study import to_csv
from apex_agents.user_code import execute_config_file

STUDY = """
import apex_agents


def get_study():
    fields = {fields!r}
    setting = apex_agents.Setting({config!r}, fields)
    other = apex_agents.Setting({config!r}, {{**fields, "agent.n_step": 2}})
    return apex_agents.Study("Steps", {{"three": setting, {label!r}: other}}, {tasks!r}, {{}})
"""
FIELDS = dict(flag.removeprefix("--config.").split("=", 1) for flag in CATCH)
del FIELDS["environment.task"]
# The least return that Catch has: runs end with their first evaluation.
ENDING = {**FIELDS, "run.target_return": -1.0}


def write_study(
    folder,
    name: str = "mine.py",
    config: str = "apex_dqn_cartpole",
    label: str = "two",
    tasks: tuple = ("catch",),
    **fields,
) -> str:
    text = STUDY.format(config=config, fields={**ENDING, **fields}, label=label, tasks=tasks)
    (folder / name).write_text(text)
    return f"--figure={folder / name}"


def count_rows(path: pathlib.Path) -> dict[str, int]:
    """Count the evaluations of each setting in the file of a study."""
    return dict(collections.Counter(row["setting"] for row in csv.DictReader(path.open())))


MISSPELT = """
import apex_agents


def get_config():
    config = apex_agents.load_config("apex_dqn_catch")
    config.agent.n_stpe = 3
    return config
"""

# The name of the study, and what has to be in the one line. {tmp} is a folder of this test's own.
MISTAKES = {
    "no_figure": ([], ["--figure= is neither a Python file", "12", "heads"]),
    "unknown_figure": (["--figure=haeds"], ["--figure=haeds is neither", "the closest: heads."]),
    "no_file": (["--figure=mne.py"], ["--figure=mne.py is neither a Python file"]),
    "no_study": (
        ["--figure={tmp}/none.py"],
        ["none.py gives 3; it has to be an"],
    ),
    "no_function": (["--figure={tmp}/empty.py"], ["AttributeError: it has no function get_study"]),
    "unknown_config": (
        ["--figure={tmp}/config.py"],
        ["setting 'three': apex_dqn_catsh is neither", "apex_dqn_catch"],
    ),
    "no_tasks": (["--figure={tmp}/tasks.py"], ["tasks.py: tasks is (); it has to be a tuple"]),
    "one_folder_for_two": (
        ["--figure={tmp}/label.py"],
        ["catch, setting=three, seed 0 and catch, setting=<three>, seed 0 would share the folder"],
    ),
    "misspelt_attribute": (
        ["--figure={tmp}/sub/own.py"],
        ["setting 'three': agent.n_stpe is set, but is no field; the closest: n_step."],
    ),
    "other_task_beside": (
        ["--figure={tmp}/mine.py", "--draw={tmp}/pong.csv"],
        ["pong.csv has evaluations of pong; the study's tasks are catch."],
    ),
    "curve_that_is_there_beside": (
        ["--figure={tmp}/mine.py", "--beside={tmp}/two.csv"],
        ["two.csv has evaluations of two, a curve that is there."],
    ),
    "unknown_field": (
        ["--figure={tmp}/field.py"],
        ["agent.batchsize", "the closest: agent.batch_size"],
    ),
    "value_that_cannot_work": (["--figure={tmp}/value.py"], ["setting 'three': agent.discount is"]),
    "no_seeds": (["--figure={tmp}/mine.py", "--seeds=0"], ["--seeds=0"]),
    "no_csv": (["--figure={tmp}/mine.py", "--draw={tmp}/no.csv"], ["no.csv cannot be read"]),
    "other_csv": (
        ["--figure={tmp}/mine.py", "--draw={tmp}/other.csv"],
        ["other.csv cannot be read: its columns are a, b"],
    ),
    "no_csv_beside": (
        ["--figure={tmp}/mine.py", "--beside={tmp}/no.csv"],
        ["--beside=", "no.csv cannot be read"],
    ),
    "unknown_axis": (["--figure={tmp}/mine.py", "--x=steps"], ["--x=steps", "actor_steps"]),
    "unknown_task": (
        ["--figure={tmp}/mine.py", "--tasks=^atch"],
        ["--tasks=^atch is found in none of: catch."],
    ),
    "unknown_setting": (
        ["--figure={tmp}/mine.py", "--settings=four"],
        ["--settings=four is found in none of: three; two."],
    ),
    "runs_on_a_cluster": (
        ["--figure={tmp}/mine.py", "--lp_launch_type=ray"],
        ["--lp_launch_type=ray", "local_mp|local_mt"],
    ),
    "no_regular_expression": (
        ["--figure={tmp}/mine.py", "--settings=("],
        ["--settings=( is no regular expression: "],
    ),
    "no_flag": (["4"], ["'4' is not a flag"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_before_anything_starts(name, run_command_line, tmp_path):
    write_study(tmp_path)
    write_study(tmp_path, "config.py", "apex_dqn_catsh")
    write_study(tmp_path, "field.py", **{"agent.batchsize": 8})
    write_study(tmp_path, "value.py", **{"agent.discount": 2.0})
    (tmp_path / "none.py").write_text("def get_study():\n    return 3\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "other.csv").write_text("a,b\n")
    write_study(tmp_path, "tasks.py", tasks=())
    write_study(tmp_path, "label.py", label="<three>")
    (tmp_path / "sub").mkdir()  # A config beside the study comes before one in this folder.
    write_study(tmp_path / "sub", "own.py", "my_config.py")
    (tmp_path / "sub" / "my_config.py").write_text(MISSPELT)
    (tmp_path / "my_config.py").write_text(MISSPELT.replace("n_stpe", "n_step"))
    for name_, row in {"pong": "pong,theirs", "two": "catch,two"}.items():
        (tmp_path / f"{name_}.csv").write_text(f"{to_csv([]).strip()}\n{row},0,1,2,3,4\n")
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)}
    flags, expected = MISTAKES[name]
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    assert_refused(run_command_line(flags, tmp_path, "paper.py"), expected)
    assert {path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)} == before


def test_a_study_trains_draws_and_is_not_repeated(start, tmp_path):
    argv = ("launch/paper.py", write_study(tmp_path), "--seeds=1", "--parallel=2")
    folder = tmp_path / "study"
    run = start(*argv, f"--workdir={folder}").finish()
    assert run.exit_code == 0, run.output()
    assert run.left_behind() == []
    rows = list(csv.DictReader((folder / "mine.csv").open()))
    assert {(row["task"], row["setting"], row["seed"]) for row in rows} == {
        ("catch", "three", "0"),
        ("catch", "two", "0"),
    }
    assert all(-1 <= float(row["mean_return"]) <= 1 for row in rows)
    table = (folder / "mine.md").read_text()
    assert table in run.stdout()
    assert (folder / "mine.png").stat().st_size > 10_000
    runs = [folder / "catch" / f"setting={label}" / "seed_0" for label in ("three", "two")]
    files = {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*")}

    run = start(*argv, f"--workdir={folder}").finish()
    assert run.exit_code == 0
    assert {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*")} == files
    assert (folder / "mine.md").read_text() == table

    run = start(*argv, f"--draw={folder}/mine.csv", f"--workdir={tmp_path}/drawn").finish()
    assert run.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == [
        *("mine.csv", "mine.md", "mine.png", "mine.svg"),
    ]
    assert (tmp_path / "drawn" / "mine.md").read_text() == table
    assert "the last quarter of its learner steps" in table

    flags = [f"--draw={folder}/mine.csv", "--x=wall_time_seconds", f"--workdir={tmp_path}/time"]
    run = start(*argv, *flags).finish()
    assert run.exit_code == 0
    table = (tmp_path / "time" / "mine.md").read_text()
    assert "the last quarter of its wall time" in table

    run = start(*argv, f"--draw={folder}/mine.csv", "--x=actor_steps", f"--workdir={folder}")
    assert run.finish().exit_code == 2
    assert "holds the study's own figure; name another --workdir" in run.output()

    lines = (folder / "mine.csv").read_text().splitlines()
    theirs = [line.replace(",two,", ",theirs,") for line in lines if ",three," not in line]
    (tmp_path / "theirs.csv").write_text("\n".join(theirs))
    run = start(*argv, f"--draw={tmp_path}/theirs.csv", f"--workdir={folder}")
    assert run.finish().exit_code == 2
    assert "holds the study's own figure; name another --workdir" in run.output()

    flags = [f"--beside={tmp_path}/theirs.csv", f"--workdir={tmp_path}/both"]
    run = start(*argv, f"--draw={folder}/mine.csv", *flags).finish()
    assert run.exit_code == 0
    rows = (tmp_path / "both" / "mine.md").read_text().splitlines()[2:5]
    assert [row.strip("| ").split(" ")[0] for row in rows] == ["three", "two", "theirs"]

    flags = [*flags[:1], "--settings=^t.[er]", f"--workdir={tmp_path}/part"]
    assert start(*argv, f"--draw={folder}/mine.csv", *flags).finish().exit_code == 0
    rows = csv.DictReader((tmp_path / "part" / "mine.csv").open())
    assert {row["setting"] for row in rows} == {"three", "theirs"}

    # A part of the study, and an unfinished run, in the same folder.
    before = count_rows(folder / "mine.csv")
    (runs[1] / "summary.json").unlink()
    shutil.copytree(runs[0], runs[0].with_name("seed_4"))  # Of a command with more seeds.
    flags = ["--settings=three", f"--workdir={folder}"]
    run = start(*argv, *flags).finish()
    assert run.exit_code == 0
    assert count_rows(folder / "mine.csv") == {**before, "three": 2 * before["three"]}
    unfinished = "Not finished (1), scored by what there is: catch, setting=two, seed 0"
    assert unfinished in (folder / "mine.md").read_text()
    assert "[1/1]" not in run.stdout()

    flags = ["--settings=three", "--lp_launch_type=local_mt", f"--workdir={tmp_path}/threads"]
    run = start(*argv, *flags).finish()
    assert run.exit_code == 0, run.output()
    assert "[1/1] catch, setting=three, seed 0 finished" in run.stdout()
    summary = (
        tmp_path / "threads" / "catch" / "setting=three" / "seed_0" / "summary.json"
    ).read_text()
    assert "--lp_launch_type=local_mt" in json.loads(summary)["command"]

    write_study(tmp_path, **{"run.num_envs_per_actor": 3})
    run = start(*argv, "--settings=two", f"--workdir={folder}").finish()
    assert run.exit_code == 2
    assert "setting 'three': The folder " in run.output()  # Outside of the part, but in the table.
    assert "holds a run with run.num_envs_per_actor 2, not 3" in run.output()


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "configs/paper").glob("*.py")))
def test_studies_of_the_paper_can_start(name, run_command_line, tmp_path):
    """With a file in the way of every task's folder all runs are planned and none is started."""
    study = execute_config_file(ROOT / f"configs/paper/{name}.py", False, "get_study")
    for task in study.tasks:
        (tmp_path / re.sub("[/:]", "_", task)).touch()
    flags = [f"--figure={name}", f"--workdir={tmp_path}", "--seeds=1"]
    exit_code, stdout, stderr = run_command_line(flags, tmp_path, "paper.py")
    assert exit_code == 1, stderr
    num_runs = len(study.tasks) * len(study.settings)
    assert stdout.count("seed 0 failed: ") == num_runs, stdout


def test_a_part_of_a_study_is_planned(run_command_line, tmp_path):
    (tmp_path / "MinAtar_Asterix-v1").touch()
    flags = ["--figure=4", "--tasks=Asterix", "--settings=^(4|256) ", "--seeds=1"]
    _, stdout, _ = run_command_line([*flags, f"--workdir={tmp_path}"], tmp_path, "paper.py")
    found = re.findall(r"\[\d+/\d+\] (.*), seed 0 failed: ", stdout)
    settings = [f"setting={number} environments" for number in (4, 256)]
    assert sorted(found) == sorted(f"MinAtar/Asterix-v1, {setting}" for setting in settings), stdout
