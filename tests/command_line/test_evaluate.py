"""Tests of the command that evaluates: real folders, real episodes, real videos."""

import csv
import dataclasses
import json
import pathlib
import shutil

import imageio
import numpy as np
import pytest
from refusals import assert_refused
from tiny_runs import make_run

from apex_agents.agent_folder import write_agent_folder
from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig, ExplorationConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig
from apex_agents.runs.parameter_file import PARAMETERS

MLP = ApexDQNConfig(
    torso="mlp",
    mlp_hidden_sizes=(8,),
    stream_hidden_size=8,
    frame_stack=0,
    exploration=ExplorationConfig(evaluation_epsilon=0.5),
)
ATARI = ApexDQNConfig(stream_hidden_size=8, exploration=ExplorationConfig(evaluation_epsilon=1.0))
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))

# The run's own rules, which are not those of the evaluation.
ODD_RULES = AtariConfig(max_noops=0, evaluation_max_frames=20, sticky_action_probability=0.25)

RUNS = {
    "catch": (MLP, EnvironmentConfig("toy", "catch")),
    "cartpole": (MLP, EnvironmentConfig("gymnasium", "CartPole-v1")),
    "pong": (ATARI, EnvironmentConfig(task="pong", atari=ODD_RULES)),
    "point_mass": (DPG, EnvironmentConfig("toy", "point_mass")),
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> pathlib.Path:
    """A folder with a run of each kind that has just begun: with best.npz and a checkpoint."""
    folder = tmp_path_factory.mktemp("runs")
    for name, (agent, environment) in RUNS.items():
        make_run(folder / name, agent, environment, f"learner-000000005678/{PARAMETERS}")
    return folder


@pytest.fixture
def evaluate(run_command_line, runs, tmp_path):
    """Evaluate a run; give what was printed and the folder with the results."""

    def run(name: str, *flags: str, output: str = "results") -> tuple[str, pathlib.Path]:
        folder = tmp_path / output
        arguments = [str(runs / name), f"--output={folder}", *flags]
        exit_code, stdout, stderr = run_command_line(arguments, tmp_path, "evaluate.py")
        assert exit_code == 0, stderr
        return stdout + stderr, folder

    return run


def rows(folder: pathlib.Path) -> list[dict[str, str]]:
    with (folder / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


def summary(folder: pathlib.Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_what_is_reported(evaluate):
    printed, folder = evaluate("cartpole", "--episodes=5", "--seed=2")
    episodes = rows(folder)
    assert [(row["episode"], row["env_index"]) for row in episodes] == [
        (str(i),) * 2 for i in range(5)
    ]
    returns = [float(row["episode_return"]) for row in episodes]
    assert [float(row["episode_length"]) for row in episodes] == returns  # A reward of 1 a step.
    assert len(set(returns)) > 2
    a, b, c, d, e = sorted(returns)
    mean = (a + b + c + d + e) / 5
    squares = sum((value - mean) ** 2 for value in returns)
    assert summary(folder) == {
        "suite": "gymnasium",
        "task": "CartPole-v1",
        "checkpoint": "best",
        "learner_steps": 1234,
        "seed": 2,
        "epsilon": 0.5,
        "episodes": 5,
        "environment_failures": 0,
        "mean_return": pytest.approx(mean),
        "standard_error": pytest.approx((squares / 4 / 5) ** 0.5),
        "median_return": c,
        "min_return": a,
        "max_return": e,
        "mean_length": pytest.approx(mean),
        "max_envs": 100,
    }
    assert printed.splitlines() == [
        "              task: CartPole-v1",
        "        parameters: best, learner step 1,234",
        "          episodes: 5, seed 2, epsilon 0.5",
        f"       mean return: {mean:.2f} ± {(squares / 20) ** 0.5:.2f}",
        f"            median: {c:.2f}",
        f"   lowest, highest: {a:.2f}, {e:.2f}",
        f"       mean length: {mean:.1f} steps",
        "            videos: none",
        f"           results: {folder}",
    ]


def test_atari_is_evaluated_by_the_rules_of_the_paper_and_compared_with_it(evaluate):
    printed, folder = evaluate("pong", "--episodes=2")
    for row in rows(folder):
        assert int(row["episode_length"]) > 700  # And not 5, as by the rules of the run.
        score = float(row["episode_return"])
        assert -21 <= score <= -15  # Actions are random.
        assert float(row["human_normalized_score"]) == pytest.approx((score + 20.7) / 35.3)
    mean = (float(rows(folder)[0]["episode_return"]) + float(rows(folder)[1]["episode_return"])) / 2
    normalized = (mean + 20.7) / 35.3
    result = summary(folder)
    assert result["human_normalized"] == {
        "mean": pytest.approx(normalized),
        "median": pytest.approx(normalized),  # The median of two is their mean.
        "paper": pytest.approx(41.6 / 35.3),
    }
    assert result["rules"] == {
        "max_noops": 30,
        "max_frames": 108_000,
        "action_repeat": 4,
        "sticky_action_probability": 0.25,
    }
    lines = [
        f"  human-normalized: mean {normalized:.1%}, median {normalized:.1%}",
        "      in the paper: 20.9 (117.8%)",
        "     random, human: -20.7, 14.6",
        "             rules: 30 no-ops, 108,000 frames, action repeat 4, sticky actions 0.25",
    ]
    assert "\n".join(lines) in printed
    warning = "sticky_action_probability is 0.25, not 0.0"
    assert result["departures_from_the_paper"] == [warning]
    assert f"warning: scores do not compare with the paper's: {warning}.\n" in printed


def test_videos(evaluate):
    names = ["episode-000.mp4", "episode-001.mp4"]
    printed, folder = evaluate("catch", "--episodes=4", "--video=2")
    assert sorted(path.name for path in folder.glob("*.mp4*")) == names
    assert f"            videos: {', '.join(names)}\n" in printed
    reader = imageio.get_reader(folder / "episode-001.mp4")
    assert reader.get_meta_data()["size"] == (320, 56 + 640)
    frames = np.stack(list(reader.iter_data()))
    assert len(frames) == 1 + 9
    # The score on the last frame is not that on the first one.
    strips = frames[:, :30, 160:].astype(int)
    assert np.abs(strips[-1] - strips[0]).max() > 100
    assert np.abs(strips[-2] - strips[0]).max() < 50


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        ("last", ("learner-000000005678", 5678)),
        ("{runs}/catch/checkpoints/best.npz", ("best", 1234)),
    ],
)
def test_parameters_and_epsilon(evaluate, runs, checkpoint, expected):
    flags = (f"--checkpoint={checkpoint.format(runs=runs)}", "--epsilon=0.25")
    printed, folder = evaluate("catch", "--episodes=3", *flags)
    result = summary(folder)
    assert (result["checkpoint"], result["learner_steps"]) == expected
    assert f"        parameters: {expected[0]}, learner step {expected[1]:,}\n" in printed
    assert result["epsilon"] == 0.25


def test_every_evaluation_has_a_folder_of_its_own_in_that_of_the_run(
    run_command_line, runs, tmp_path
):
    run = tmp_path / "run"
    shutil.copytree(runs / "catch", run)

    def evaluate(*flags: str) -> None:
        assert run_command_line([str(run), "--seed=5", *flags], tmp_path, "evaluate.py")[0] == 0

    before = read_files(run)
    evaluate("--episodes=3", "--video=1")
    first = read_files(run)
    assert sorted(path.relative_to(run / "evaluations") for path in first.keys() - before) == [
        pathlib.Path("best-1234-seed5", name)
        for name in ("episode-000.mp4", "episodes.csv", "summary.json")
    ]
    evaluate("--episodes=2")
    evaluate("--episodes=2", "--epsilon=0.25")
    shutil.copy(run / "checkpoints/learner-000000005678" / PARAMETERS, run / "checkpoints/best.npz")
    evaluate("--episodes=2")
    evaluate("--episodes=2", "--checkpoint=learner-5678")
    episodes = {
        path.parent.name: json.loads(path.read_text())["episodes"]
        for path in run.glob("evaluations/*/summary.json")
    }
    assert episodes == {
        "best-1234-seed5": 3,
        "best-1234-seed5-2": 2,
        "best-1234-seed5-3": 2,
        "best-5678-seed5": 2,
        "learner-000000005678-seed5": 2,
    }
    del first[run / "checkpoints" / "best.npz"]  # Copied above.
    assert first.items() <= read_files(run).items()


def test_parameters_of_another_run_are_told_from_those_of_this_one(
    run_command_line, runs, tmp_path
):
    run, other = tmp_path / "run", tmp_path / "other.npz"
    shutil.copytree(runs / "catch", run)
    shutil.copy(run / "checkpoints" / "best.npz", other)
    flags = [str(run), "--episodes=2", f"--checkpoint={other}"]
    assert run_command_line(flags, tmp_path, "evaluate.py")[0] == 0
    assert summary(run / "evaluations" / "other-other-1234-seed0")["checkpoint"] == str(other)
    write_agent_folder(run, tmp_path / "agent", "best", False)
    assert "return of" not in (tmp_path / "agent" / "README.md").read_text()


def read_files(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_results_elsewhere_are_not_overwritten_either(evaluate, run_command_line, runs, tmp_path):
    _, folder = evaluate("catch", "--episodes=2")
    before = read_files(folder)
    flags = [str(runs / "catch"), f"--output={folder}", "--episodes=3"]
    assert_refused(run_command_line(flags, tmp_path, "evaluate.py"), [str(folder)])
    assert read_files(folder) == before


def test_a_mistake_leaves_no_folder(run_command_line, runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "cartpole", run)
    flags = [str(run), f"--checkpoint={runs}/catch/checkpoints/best.npz"]
    assert_refused(run_command_line(flags, tmp_path, "evaluate.py"))
    assert list(run.glob("evaluations/*")) == []


# Flags, and what the one line says. {runs} is the folder of the runs, {tmp} one of this test.
@pytest.mark.parametrize("script", ["evaluate.py", "play.py", "export.py"])
def test_a_run_of_an_environment_with_another_spec_is_refused(
    run_command_line, runs, tmp_path, script
):
    shutil.copytree(runs / "cartpole", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    values = json.loads(path.read_text())
    values["environment_spec"]["actions"]["num_values"] = 3
    path.write_text(json.dumps(values))
    result = run_command_line(["run"], tmp_path, script)
    assert_refused(result, ["actions are discrete, 3 of them; now they are discrete, 2"])


MISTAKES = {
    "no_such_workdir": (["--workdir={runs}/gone"], ["gone is no folder"]),
    "no_run": (["--workdir={runs}"], ["holds no run", "config.json"]),
    "no_parameters": (["--workdir={tmp}/new"], ["has no parameters yet"]),
    "no_such_checkpoint": (
        ["--workdir={runs}/catch", "--checkpoint=newest"],
        ["checkpoint=newest", "best, learner-000000005678"],
    ),
    "no_such_file": (
        ["--workdir={runs}/catch", "--checkpoint={tmp}/gone.npz"],
        ["gone.npz: there is no such file"],
    ),
    "parameters_of_another_run": (
        ["--workdir={runs}/cartpole", "--checkpoint={runs}/catch/checkpoints/best.npz"],
        ["best.npz does not fit the networks of the run"],
    ),
    "a_checkpoint_of_another_agent": (
        ["--workdir={runs}/point_mass", "--checkpoint={runs}/catch/checkpoints/learner-5678"],
        ["there is no such file or folder"],
    ),
    "no_episodes": (["--workdir={runs}/catch", "--episodes=0"], ["--episodes=0"]),
    "too_many_videos": (
        ["--workdir={runs}/catch", "--episodes=2", "--video=3"],
        ["--video is 3", "at most --episodes"],
    ),
    "more_videos_than_envs": (
        ["--workdir={runs}/catch", "--episodes=200", "--video=101"],
        ["--video=101"],
    ),
    "empty_folder": (
        ["--workdir={runs}/catch", "--output="],
        ["--output is empty, as with a variable that is not set"],
    ),
    "evaluations_behind_a_link_to_nothing": (
        ["--workdir={tmp}/linked"],
        ["evaluations", "a link to a folder that is gone"],
    ),
    "negative_seed": (["--workdir={runs}/catch", "--seed=-1"], ["--seed=-1"]),
    "epsilon_above_1": (["--workdir={runs}/catch", "--epsilon=1.5"], ["--epsilon=1.5"]),
    "epsilon_of_dpg": (["--workdir={runs}/point_mass", "--epsilon=0.1"], ["has no epsilon"]),
    "run_missing": ([], ["name the folder of one run"]),
    "two_runs": (["{runs}/catch", "best"], ["'best' given; name the folder of one run"]),
    "unknown_flag": (["--workdir={runs}/catch", "--video_period=3"], ["video_period"]),
    "output_that_is_a_file": (
        ["--workdir={runs}/catch", "--output={tmp}/file"],
        ["File exists", "file"],
    ),
    "config_of_another_version": (["--workdir={tmp}/other"], ["agent.new is no field"]),
}


@pytest.fixture(scope="session")
def mistakes(run_command_line, runs, tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "file").write_text("")
    for name, new in (("new", {}), ("other", {"new": 1})):
        (folder / name).mkdir()
        config = dataclasses.asdict(ExperimentConfig(MLP, RUNS["catch"][1], RunConfig()))
        config["agent"] |= new
        config["agent_type"] = "ApexDQNConfig"
        (folder / name / "config.json").write_text(json.dumps(config))
    shutil.copytree(runs / "catch", folder / "linked")
    (folder / "linked" / "evaluations").symlink_to(folder / "not_mounted")
    return {
        name: run_command_line(
            [flag.format(runs=runs, tmp=folder) for flag in flags], folder, "evaluate.py"
        )
        for name, (flags, _) in MISTAKES.items()
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_and_exit_code_2(mistakes, name):
    assert_refused(mistakes[name], MISTAKES[name][1])
