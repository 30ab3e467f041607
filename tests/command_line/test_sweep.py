"""`launch/sweep.py` as a user runs it: mistakes, and sweeps of a toy task with real processes."""

import csv
import json
import signal

import psutil
import pytest
from refusals import assert_refused
from whole_runs import CATCH, ENDLESS, LEAVE_WITHIN_SECONDS, ROOT

SWEEP = ("launch/sweep.py", "--workdir={workdir}", *CATCH)
# The least return that Catch has.
ENDS_WITH_THE_FIRST_EVALUATION = "--config.run.target_return=-1.0"

# Flags, and what has to be in the one line. {tmp} is a folder of this test's own.
MISTAKES = {
    "runs_without_an_end": (
        [f"--config={ROOT}/configs/apex_dqn_atari_single_host.py"],
        ["the first run would never end", "run.max_actor_steps"],
    ),
    "pattern_as_a_folder": (
        ["--workdir={tmp}/a[1]", "--config.run.max_actor_steps=1e6"],
        ["a[1] needs a path of printable text without any of"],
    ),
    "unknown_game": (
        [
            f"--config={ROOT}/configs/apex_dqn_atari_single_host.py",
            "--config.environment.task=pong,braekout",
            "--config.run.max_actor_steps=1e6",
        ],
        ["'braekout'", "closest: breakout"],
    ),
    "limit_before_the_first_learner_step": (
        ["--config.run.max_actor_steps=10"],
        ["run.max_actor_steps is 10", "agent.replay.min_size"],
    ),
    "misspelt_field": (
        ["--config.agent.batchsize=8"],
        ["the closest is --config.agent.batch_size"],
    ),
    "value_that_cannot_work": (["--config.run.num_actors=0"], ["run.num_actors is 0"]),
    "agent_that_does_not_fit": (
        ["--config.environment.task=CartPole-v1,Pendulum-v1"],
        ["needs discrete actions"],
    ),
    "agent_that_is_unknown": (["--config={tmp}/other.py"], ["agent is Other()"]),
    "value_of_a_grid_that_cannot_work": (
        ["--config.agent.discount=0.9,1.5"],
        ["agent.discount is 1.5"],
    ),
    "value_of_a_grid_that_cannot_be_read": (
        ["--config.agent.batch_size=8,x"],
        ["--config.agent.batch_size=x cannot be read"],
    ),
    "one_folder_for_two_settings": (
        [
            "--config.environment.kwargs="
            "{{'sutton_barto_reward':True}},{{'sutton_barto_reward':[True]}}"
        ],
        ["{'sutton_barto_reward': [True]}, seed", "would share the folder"],
    ),
    "several_limits": (
        ["--config.run.max_actor_steps=100,200"],
        ["run.max_actor_steps=100,200", "--seeds"],
    ),
    "several_first_seeds": (["--config.run.seed=1,2"], ["run.seed=1,2", "--seeds"]),
    "range": (["--config.agent.discount=0.9:0.99"], ["discount=0.9:0.99 is a range", "apex-tune"]),
    "no_seeds": (["--seeds=0"], ["--seeds=0", "[1, 10000]"]),
    "none_at_once": (["--parallel=0"], ["--parallel=0"]),
    "no_flag": (["pong"], ["'pong' is not a flag"]),
    "workdir_in_the_way": (["--workdir={tmp}/other.py/x"], ["other.py/x cannot be written"]),
    "workdir_of_a_single_run": (
        ["--workdir={tmp}/old/CartPole-v1/seed_1"],
        ["CartPole-v1/seed_1 holds a single run; name another one."],
    ),
    "workdir_with_a_run_of_another_setting": (
        ["--workdir={tmp}/old", "--seeds=2"],
        ["CartPole-v1/seed_1 holds a run with format_version None"],
    ),
}

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


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_before_anything_starts(name, run_command_line, tmp_path):
    old = tmp_path / "old" / "CartPole-v1" / "seed_1"
    old.mkdir(parents=True)
    (old / "config.json").write_text("{}")
    (tmp_path / "other.py").write_text(OTHER_CONFIG)
    before = sorted(tmp_path.rglob("*"))
    flags, expected = MISTAKES[name]
    flags = [flag.format(tmp=tmp_path) for flag in flags]
    assert_refused(run_command_line(flags, tmp_path, "sweep.py"), expected)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_grid_of_settings(run_command_line, tmp_path):
    """With folders in which files are in the way, the sweep plans all runs and starts none."""
    sweep = tmp_path / "sweep" / "CartPole-v1"
    sweep.mkdir(parents=True)
    names = [
        f"learning_rate={rate},mlp_hidden_sizes={sizes}"
        for rate in ("0.001", "0.004")
        for sizes in ("64_64", "128")
    ]
    for name in names:
        (sweep / name).touch()
    flags = [
        "--config.agent.learning_rate=1e-3,0.004,0.0010",
        "--config.agent.mlp_hidden_sizes=(64,64),128",
    ]
    exit_code, _, stderr = run_command_line(
        [*flags, "--seeds=1", f"--workdir={tmp_path}/sweep"], tmp_path, "sweep.py"
    )
    assert exit_code == 1, stderr
    assert sorted(path.name for path in sweep.iterdir()) == sorted(names)
    rows = list(csv.DictReader((tmp_path / "sweep" / "results.csv").open()))
    assert [(row["learning_rate"], row["mlp_hidden_sizes"]) for row in rows] == [
        ("0.001", "(64, 64)"),
        ("0.001", "(128,)"),
        ("0.004", "(64, 64)"),
        ("0.004", "(128,)"),
    ]
    assert {row["runs"] for row in rows} == {"1 failed"}


def test_help_names_the_flags(run_command_line, tmp_path):
    _, stdout, _ = run_command_line(["--help"], tmp_path, "sweep.py")
    for flag in ("--config", "--seeds", "--parallel", "--workdir"):
        assert f"  {flag}:" in stdout


def test_a_run_that_fails_stops_no_other(start):
    flags = ("--seeds=2", "--parallel=2", "--config.run.seed=5", ENDS_WITH_THE_FIRST_EVALUATION)
    sweep = start(*SWEEP, *flags)
    failing, working = (sweep.workdir / "catch" / f"seed_{seed}" for seed in (5, 6))
    failing.mkdir(parents=True)
    (failing / "logs").touch()  # In the way of a folder.
    sweep.finish()
    assert sweep.exit_code == 1
    assert str(failing / "output.log") in sweep.stdout().splitlines()[-1]
    assert sweep.left_behind() == []

    (row,) = csv.DictReader((sweep.workdir / "results.csv").open())
    assert (row["task"], row["runs"]) == ("catch", "1 failed, 1 finished")
    assert -1 <= float(row["last_return"]) <= float(row["best_return"]) <= 1
    assert float(row["actor_steps"]) >= 20  # Learning starts then.
    assert "| 1 failed, 1 finished |" in (sweep.workdir / "results.md").read_text()
    assert (sweep.workdir / "returns.png").stat().st_size > 10_000
    assert (sweep.workdir / "returns.svg").exists()
    config = json.loads((working / "config.json").read_text())
    assert config["agent"]["mlp_hidden_sizes"] == [16]  # As in `CATCH`.
    assert config["run"]["seed"] == 6


def read_learner_steps(run) -> list[float]:
    return [
        float(row["learner_steps"]) for row in csv.DictReader((run / "logs/learner.csv").open())
    ]


def test_a_sweep_that_is_stopped_resumes(start, tmp_path):
    flags = (*SWEEP, f"--workdir={tmp_path}/sweep", "--seeds=1")
    run = tmp_path / "sweep" / "catch" / "seed_0"
    sweep = start(*flags, *ENDLESS)
    sweep.wait_for((run / "logs" / "learner.csv").exists)
    other = start(*flags, *ENDLESS).finish()
    assert other.exit_code == 2
    assert f"{tmp_path}/sweep is in use: another command trains in it" in other.output()
    sweep.press_ctrl_c()
    sweep.finish()
    assert sweep.exit_code == 130
    assert sweep.left_behind() == []
    (row,) = csv.DictReader((tmp_path / "sweep" / "results.csv").open())
    assert row["runs"] == "1 stopped"
    before = read_learner_steps(run)

    sweep = start(*flags, *ENDLESS, ENDS_WITH_THE_FIRST_EVALUATION).finish()
    assert sweep.exit_code == 0
    steps = read_learner_steps(run)
    assert steps[: len(before)] == before
    assert steps == sorted(steps)
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    sweep = start(*flags, *ENDLESS, ENDS_WITH_THE_FIRST_EVALUATION).finish()
    assert sweep.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == files


def test_runs_end_with_a_sweep_that_is_killed(start):
    sweep = start(*SWEEP, "--seeds=1", *ENDLESS)
    run = sweep.workdir / "catch" / "seed_0"
    sweep.wait_for((run / "logs" / "learner.csv").exists)
    sweep.signal(signal.SIGKILL)
    sweep.finish()
    _, alive = psutil.wait_procs(sweep.processes(), 3 * LEAVE_WITHIN_SECONDS)
    assert alive == []
    assert list((run / "checkpoints").glob("learner-*"))
