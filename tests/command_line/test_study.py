"""`launch/study.py` as a user runs it: mistakes, and studies of a toy task with real processes."""

import collections
import csv
import json
import pathlib
import re
import shutil
import types

import pytest
from refusals import assert_refused
from whole_runs import CATCH, ENDLESS, ROOT

from apex_agents.command_line import study as command
from apex_agents.presets import load_config
from apex_agents.studies.results import to_csv
from apex_agents.user_code import execute_config_file

GRID = ("launch/study.py", "--workdir={workdir}", *CATCH)
# The least return that Catch has.
ENDS_WITH_THE_FIRST_EVALUATION = "--config.run.target_return=-1.0"
LIMIT = "--config.run.max_actor_steps=1000"
RANGE = "--config.agent.learning_rate=log:1e-4:1e-2"
ATARI = f"--config={ROOT}/configs/apex_dqn_atari_single_host.py"

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
ENDING = {**FIELDS, "run.target_return": -1.0}

OTHER_CONFIG = """
import dataclasses
from apex_agents.environments import EnvironmentConfig
from apex_agents.config import ExperimentConfig, RunConfig


@dataclasses.dataclass
class Other:
    def validate(self, prefix):
        pass


def get_config():
    environment = EnvironmentConfig(suite="toy", task="catch")
    return ExperimentConfig(Other(), environment, RunConfig())
"""


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
    return str(folder / name)


def count_rows(path: pathlib.Path) -> dict[str, int]:
    """Count the evaluations of each setting in a file."""
    return dict(collections.Counter(row["setting"] for row in csv.DictReader(path.open())))


# Arguments, and what has to be in the one line. {tmp} is a folder of this test's own.
MISTAKES = {
    # Mistakes in a grid.
    "runs_without_an_end": ([ATARI], ["the first run would never end", "run.max_actor_steps"]),
    "pattern_as_a_folder": (
        ["--workdir={tmp}/a[1]", "--config.run.max_actor_steps=1e6"],
        ["a[1] needs a path of printable text without any of"],
    ),
    "limit_before_the_first_learner_step": (
        ["--config.run.max_actor_steps=10"],
        ["run.max_actor_steps is 10", "agent.replay.min_size"],
    ),
    "agent_that_does_not_fit": (
        ["--config.environment.task=CartPole-v1,Pendulum-v1"],
        ["needs discrete actions"],
    ),
    "agent_that_is_unknown": (["--config={tmp}/other.py"], ["agent is Other()"]),
    "value_of_a_grid_that_cannot_work": (
        ["--config.agent.discount=0.9,1.5"],
        ["setting 'discount=1.5': ", "agent.discount is 1.5"],
    ),
    "value_of_a_grid_that_cannot_be_read": (
        ["--config.agent.batch_size=8,x"],
        ["agent.batch_size is 'x'"],
    ),
    "no_seeds": (["--seeds=0"], ["--seeds=0", "[1, 10000]"]),
    "none_at_once": (["--parallel=0"], ["--parallel=0"]),
    "workdir_in_the_way": (["--workdir={tmp}/other.py/x"], ["other.py/x cannot be written"]),
    "workdir_of_a_single_run": (
        ["--workdir={tmp}/old/CartPole-v1/seed_1"],
        ["CartPole-v1/seed_1 holds a single run; name another one."],
    ),
    "workdir_with_a_run_of_another_setting": (
        ["--workdir={tmp}/old", "--seeds=2"],
        ["CartPole-v1/seed_1 holds a run with format_version None"],
    ),
    # Mistakes in a search.
    "nothing_to_search_for": ([LIMIT, "--runs=3"], ["--config.agent.learning_rate=log:"]),
    "search_without_a_limit": (
        [RANGE, "--config.run.max_actor_steps=None"],
        ["run.max_actor_steps is None", "a number"],
    ),
    "no_runs": (["--runs=0"], ["--runs=0"]),
    "seeds_of_a_search": ([RANGE, LIMIT, "--seeds=2"], ["--seeds is no flag of a search"]),
    # Mistakes in a study.
    "unknown_study": (["haeds"], ["haeds is neither", "12", "the closest: heads."]),
    "two_studies": (["heads", "4"], ["heads 4 is neither"]),
    "no_file": (["mne.py"], ["mne.py is neither the Python file"]),
    "no_study": (["{tmp}/none.py"], ["none.py gives 3; it has to be an"]),
    "no_function": (["{tmp}/empty.py"], ["AttributeError: it has no function get_study"]),
    "field_of_a_study": (
        ["heads", "--config.agent.n_step=3"],
        ["--config.agent.n_step is no flag of a study"],
    ),
    "config_of_a_study": (["heads", "--config=catch"], ["--config is no flag of a study"]),
    "runs_of_a_study": (["heads", "--runs=3"], ["--runs is no flag of a study"]),
    "no_tasks": (["{tmp}/tasks.py"], ["tasks.py: tasks is (); it has to be a tuple"]),
    "other_task_drawn": (
        ["{tmp}/mine.py", "--draw={tmp}/pong.csv"],
        ["pong.csv has evaluations of pong; the study's tasks are catch."],
    ),
    "curve_that_is_there_beside": (
        ["{tmp}/mine.py", "--beside={tmp}/two.csv"],
        ["two.csv has evaluations of two, which the study has already."],
    ),
    "no_csv": (["{tmp}/mine.py", "--draw={tmp}/no.csv"], ["no.csv cannot be read"]),
    "other_csv": (
        ["{tmp}/mine.py", "--draw={tmp}/other.csv"],
        ["other.csv cannot be read: its columns are a, b"],
    ),
    "unknown_axis": (["{tmp}/mine.py", "--x=steps"], ["--x=steps", "actor_steps"]),
    "unknown_task": (
        ["{tmp}/mine.py", "--tasks=^atch"],
        ["--tasks=^atch is found in none of: catch."],
    ),
    "unknown_setting": (
        ["{tmp}/mine.py", "--settings=four"],
        ["--settings=four is found in none of: three; two."],
    ),
    "runs_on_a_cluster": (
        ["{tmp}/mine.py", "--lp_launch_type=ray"],
        ["--lp_launch_type=ray", "local_mp|local_mt"],
    ),
    "no_regular_expression": (
        ["{tmp}/mine.py", "--settings=("],
        ["--settings=( is no regular expression: "],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_before_anything_starts(name, run_command_line, tmp_path):
    old = tmp_path / "old" / "CartPole-v1" / "seed_1"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    (tmp_path / "other.py").write_text(OTHER_CONFIG)
    write_study(tmp_path)
    (tmp_path / "none.py").write_text("def get_study():\n    return 3\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "other.csv").write_text("a,b\n")
    write_study(tmp_path, "tasks.py", tasks=())
    for name_, row in {"pong": "pong,theirs", "two": "catch,two"}.items():
        (tmp_path / f"{name_}.csv").write_text(f"{to_csv([]).strip()}\n{row},0,1,2,3,4\n")
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)}
    flags, expected = MISTAKES[name]
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    assert_refused(run_command_line(flags, tmp_path, "study.py"), expected)
    assert {path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)} == before


def test_help_names_the_flags(run_command_line, tmp_path):
    exit_code, stdout, _ = run_command_line(["--help"], tmp_path, "study.py")
    assert exit_code == 0
    for flag in ("seeds", "parallel", "runs", "minutes", "tasks", "settings", "draw", "workdir"):
        assert f"  --{flag}:" in stdout
    assert "  --config.agent.n_step=" in stdout


@pytest.mark.parametrize(("project", "expected"), [("pong", ["--wandb=pong"]), (None, [])])
def test_runs_get_the_flags_that_are_theirs(monkeypatch, project, expected):
    monkeypatch.setattr(command, "_WANDB", types.SimpleNamespace(value=project))
    monkeypatch.setattr(command, "_LAUNCH_TYPE", types.SimpleNamespace(value="local_mt"))
    file, config = pathlib.Path("a.py"), load_config("a2c_cartpole")
    *_, agent, launch_type = command._make_command(file, config, {})[: -1 - len(expected)]
    assert (agent, launch_type) == ("a2c", "--lp_launch_type=local_mt")
    flags = command._make_command(file, config, {"agent.n_step": 7})[-2 - len(expected) :]
    assert flags == [*expected, "--config=a.py", "--config.agent.n_step=7"]


def test_the_grid_of_settings(run_command_line, tmp_path):
    """With folders in which files are in the way, all runs are planned and none is started."""
    folder = tmp_path / "grid" / "CartPole-v1"
    folder.mkdir(parents=True)
    names = [
        f"learning_rate={rate},mlp_hidden_sizes={sizes}"
        for rate in ("0.001", "0.004")
        for sizes in ("64_64", "128")
    ]
    for name in names:
        (folder / name).touch()
    flags = [
        "--config.agent.learning_rate=1e-3,0.004,0.0010",
        "--config.agent.mlp_hidden_sizes=(64,64),128",
    ]
    exit_code, _, stderr = run_command_line(
        [*flags, "--seeds=1", f"--workdir={tmp_path}/grid"], tmp_path, "study.py"
    )
    assert exit_code == 1, stderr
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    rows = list(csv.DictReader((tmp_path / "grid" / "results.csv").open()))
    assert [(row["learning_rate"], row["mlp_hidden_sizes"]) for row in rows] == [
        ("0.001", "(64, 64)"),
        ("0.001", "(128,)"),
        ("0.004", "(64, 64)"),
        ("0.004", "(128,)"),
    ]
    assert {row["runs"] for row in rows} == {"1 failed"}


def test_a_run_that_fails_stops_no_other(start):
    flags = ("--seeds=2", "--parallel=2", "--config.run.seed=5", ENDS_WITH_THE_FIRST_EVALUATION)
    grid = start(*GRID, *flags)
    failing, working = (grid.workdir / "catch" / f"seed_{seed}" for seed in (5, 6))
    failing.mkdir(parents=True)
    (failing / "logs").touch()  # It is in the way of a folder.
    grid.finish()
    assert grid.exit_code == 1
    assert str(failing / "output.log") in grid.stdout().splitlines()[-1]
    assert grid.left_behind() == []

    (row,) = csv.DictReader((grid.workdir / "results.csv").open())
    assert (row["task"], row["runs"]) == ("catch", "1 failed, 1 finished")
    assert -1 <= float(row["last_return"]) <= float(row["best_return"]) <= 1
    assert float(row["actor_steps"]) >= 20  # Learning starts then.
    assert "| 1 failed, 1 finished |" in (grid.workdir / "results.md").read_text()
    assert (grid.workdir / "returns.png").stat().st_size > 10_000
    assert (grid.workdir / "returns.svg").exists()
    config = json.loads((working / "config.json").read_text())
    assert config["agent"]["mlp_hidden_sizes"] == [16]  # `CATCH` has this value.
    assert config["run"]["seed"] == 6


def read_learner_steps(run) -> list[float]:
    return [
        float(row["learner_steps"]) for row in csv.DictReader((run / "logs/learner.csv").open())
    ]


def test_a_grid_that_is_stopped_resumes(start, tmp_path):
    flags = (*GRID, f"--workdir={tmp_path}/grid", "--seeds=1")
    run = tmp_path / "grid" / "catch" / "seed_0"
    grid = start(*flags, *ENDLESS)
    grid.wait_for((run / "logs" / "learner.csv").exists)
    other = start(*flags, *ENDLESS).finish()
    assert other.exit_code == 2
    assert f"{tmp_path}/grid is in use: another command trains in it" in other.output()
    grid.press_ctrl_c()
    grid.finish()
    assert grid.exit_code == 130
    assert grid.left_behind() == []
    (row,) = csv.DictReader((tmp_path / "grid" / "results.csv").open())
    assert row["runs"] == "1 stopped"
    before = read_learner_steps(run)

    grid = start(*flags, *ENDLESS, ENDS_WITH_THE_FIRST_EVALUATION).finish()
    assert grid.exit_code == 0
    steps = read_learner_steps(run)
    assert steps[: len(before)] == before
    assert steps == sorted(steps)
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    grid = start(*flags, *ENDLESS, ENDS_WITH_THE_FIRST_EVALUATION).finish()
    assert grid.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == files


def test_a_search_that_is_stopped_is_continued(start, tmp_path):
    flags = ("launch/study.py", f"--workdir={tmp_path}/search", *CATCH, RANGE, "--runs=2")
    search = start(*flags, *ENDLESS)
    first_run = tmp_path / "search" / "run_000"
    search.wait_for((first_run / "logs" / "evaluator.csv").exists)
    search.press_ctrl_c()
    search.finish()
    assert search.exit_code == 130
    assert search.left_behind() == []
    results = tmp_path / "search" / "results.csv"
    (stopped,) = csv.DictReader(results.open())
    assert (stopped["setting"], stopped["runs"]) == ("run_000", "1 stopped")

    # Without time, the run is stopped again, and the command has done what it was asked for.
    search = start(*flags, *ENDLESS, "--minutes=0").finish()
    assert search.exit_code == 1  # No run has a score.

    # A run that fails makes its command fail, and no later one.
    ending = "--config.run.max_learner_steps=100"
    in_the_way = tmp_path / "search" / "run_001"
    in_the_way.touch()
    assert start(*flags, *ENDLESS, ending).finish().exit_code == 1
    in_the_way.unlink()
    search = start(*flags, *ENDLESS, ending, "--runs=3").finish()
    assert search.exit_code == 0, search.output()
    rows = {row["setting"]: row for row in csv.DictReader(results.open())}
    assert rows["run_000"]["learning_rate"] == stopped["learning_rate"]
    ended = {"run_000": "1 finished", "run_001": "1 failed", "run_002": "1 finished"}
    assert {name: row["runs"] for name, row in rows.items()} == ended
    assert all(-1 <= float(rows[name]["score"]) <= 1 for name in ("run_000", "run_002"))


def test_a_study_trains_draws_and_is_not_repeated(start, tmp_path):
    argv = ("launch/study.py", write_study(tmp_path), "--seeds=1", "--parallel=2")
    folder = tmp_path / "study"
    run = start(*argv, f"--workdir={folder}").finish()
    assert run.exit_code == 0, run.output()
    assert run.left_behind() == []
    saved = folder / "evaluations.csv"
    rows = list(csv.DictReader(saved.open()))
    assert {(row["task"], row["setting"], row["seed"]) for row in rows} == {
        ("catch", "three", "0"),
        ("catch", "two", "0"),
    }
    assert all(-1 <= float(row["mean_return"]) <= 1 for row in rows)
    table = (folder / "results.md").read_text()
    assert table in run.stdout()
    assert "or its last return if it reached its target" in table
    assert (folder / "returns.png").stat().st_size > 10_000
    runs = [folder / "catch" / f"setting={label}" / "seed_0" for label in ("three", "two")]
    files = {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*")}

    run = start(*argv, f"--workdir={folder}").finish()
    assert run.exit_code == 0
    assert {path: path.stat().st_mtime_ns for run in runs for path in run.rglob("*")} == files
    assert (folder / "results.md").read_text() == table

    run = start(*argv, f"--draw={saved}", f"--workdir={tmp_path}/drawn").finish()
    assert run.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "drawn").glob("[!.]*")) == [
        *("evaluations.csv", "results.csv", "results.md", "returns.png", "returns.svg"),
    ]
    assert (tmp_path / "drawn" / "evaluations.csv").read_text() == saved.read_text()
    assert "quarter of a run's learner steps" in (tmp_path / "drawn" / "results.md").read_text()

    flags = [f"--draw={saved}", "--x=wall_time_seconds", f"--workdir={tmp_path}/time"]
    assert start(*argv, *flags).finish().exit_code == 0
    assert "quarter of a run's wall time" in (tmp_path / "time" / "results.md").read_text()

    lines = saved.read_text().splitlines()
    theirs = [line.replace(",two,", ",theirs,") for line in lines if ",three," not in line]
    (tmp_path / "theirs.csv").write_text("\n".join(theirs))
    run = start(*argv, f"--draw={tmp_path}/theirs.csv", f"--workdir={folder}").finish()
    assert run.exit_code == 2
    assert "holds the study's own figure; name another --workdir" in run.output()

    # Drawn again in its folder, a part of the study leaves the evaluations of the others there.
    evaluations = saved.read_text()
    run = start(*argv, f"--draw={saved}", "--settings=three", f"--workdir={folder}").finish()
    assert run.exit_code == 0, run.output()
    assert saved.read_text() == evaluations
    (row,) = csv.DictReader((folder / "results.csv").open())
    assert (row["setting"], row["runs"]) == ("three", "1 finished")
    assert start(*argv, f"--draw={saved}", f"--workdir={folder}").finish().exit_code == 0
    assert (folder / "results.md").read_text() == table

    flags = [f"--beside={tmp_path}/theirs.csv", f"--workdir={tmp_path}/both"]
    assert start(*argv, f"--draw={saved}", *flags).finish().exit_code == 0
    rows = list(csv.DictReader((tmp_path / "both" / "results.csv").open()))
    assert [row["setting"] for row in rows] == ["three", "two", "theirs"]

    flags = [*flags[:1], "--settings=^t.[er]", f"--workdir={tmp_path}/part"]
    assert start(*argv, f"--draw={saved}", *flags).finish().exit_code == 0
    assert count_rows(tmp_path / "part" / "evaluations.csv").keys() == {"three", "theirs"}

    # A part of the study, and an unfinished run, in the same folder.
    before = count_rows(saved)
    (runs[1] / "summary.json").unlink()
    shutil.copytree(runs[0], runs[0].with_name("seed_4"))  # Left by a command with more seeds.
    flags = ["--settings=three", f"--workdir={folder}"]
    run = start(*argv, *flags).finish()
    assert run.exit_code == 0
    assert count_rows(saved) == {**before, "three": 2 * before["three"]}
    rows = csv.DictReader((folder / "results.csv").open())
    assert {row["setting"]: row["runs"] for row in rows} == {
        "three": "2 finished",
        "two": "1 stopped",
    }
    assert "[1/1]" not in run.stdout()
    (runs[1] / "summary.json").write_text('{"exit_code": 1}')
    assert start(*argv, *flags).finish().exit_code == 0
    rows = csv.DictReader((folder / "results.csv").open())
    assert [row["runs"] for row in rows if row["setting"] == "two"] == ["1 failed"]

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
    flags = [name, f"--workdir={tmp_path}", "--seeds=1"]
    exit_code, stdout, stderr = run_command_line(flags, tmp_path, "study.py")
    assert exit_code == 1, stderr
    num_runs = len(study.tasks) * len(study.settings)
    assert stdout.count("seed 0 failed: ") == num_runs, stdout


def test_fields_of_a_study_without_effect_are_named(run_command_line, tmp_path):
    file = write_study(tmp_path, **{"agent.head": "dueling", "agent.num_quantiles": 7})
    (tmp_path / "catch").touch()
    _, _, stderr = run_command_line([file, f"--workdir={tmp_path}"], tmp_path, "study.py")
    lines = [line for line in stderr.splitlines() if "has no effect" in line]
    assert len(lines) == 2  # Of each setting once, whatever the number of tasks and seeds.
    assert lines[0].startswith("warning: setting 'three': agent.num_quantiles has no effect: ")


def test_a_part_of_a_study_is_planned(run_command_line, tmp_path):
    (tmp_path / "MinAtar_Asterix-v1").touch()
    flags = ["4", "--tasks=Asterix", "--settings=^(4|256) ", "--seeds=1"]
    _, stdout, _ = run_command_line([*flags, f"--workdir={tmp_path}"], tmp_path, "study.py")
    found = re.findall(r"\[\d+/\d+\] (.*), seed 0 failed: ", stdout)
    settings = [f"{number} environments" for number in (4, 256)]
    assert sorted(found) == sorted(f"MinAtar/Asterix-v1, {name}" for name in settings), stdout
