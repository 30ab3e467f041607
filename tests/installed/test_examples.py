"""Each file of examples/, copied out of the checkout and run with the installed wheel."""

import csv
import json
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import pytest
from r2d2.sequences import make_config
from tiny_runs import make_run
from whole_runs import ROOT

from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import AtariConfig, EnvironmentConfig

EXAMPLES = (
    "atari_lives",
    "fine_tuning",
    "load_and_play",
    "own_critic",
    "own_environment",
    "own_exploration",
    "own_loss",
    "own_network",
    "own_priority",
    "own_program",
    "own_update",
    "play_onnx",
    "two_players",
)
# Runs an example as a script and prints which libraries it has imported.
SCRIPT = """
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
print(sorted({"apex_agents", "reverb", "sonnet", "tensorflow", "torch"} & set(sys.modules)))
"""

MLP = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(8,), stream_hidden_size=8, frame_stack=0)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8))
SHORT = AtariConfig(evaluation_max_frames=40)
RUNS = {
    "cartpole": (MLP, EnvironmentConfig("gymnasium", "CartPole-v1")),
    "pendulum": (DPG, EnvironmentConfig("gymnasium", "Pendulum-v1")),
    "memory": (make_config(), EnvironmentConfig("gymnasium", "CartPole-v1")),
    "pong": (ApexDQNConfig(stream_hidden_size=8), EnvironmentConfig(task="pong", atari=SHORT)),
}
EPISODE = re.compile(r"episode \d: (-?\d+\.\d)")


@pytest.fixture
def copy(tmp_path):
    """Copies an example into a folder of the test's own, and returns that folder."""

    def copy_example(name: str) -> pathlib.Path:
        folder = tmp_path / "project"
        folder.mkdir(exist_ok=True)
        shutil.copy(ROOT / "examples" / name, folder)
        return folder

    return copy_example


@pytest.fixture(params=RUNS)
def name(request) -> str:
    return request.param


def read_returns(lines: list[str]) -> list[float]:
    matches = [EPISODE.fullmatch(line) for line in lines]
    return [float(match[1]) for match in matches if match]


def read_summary(folder: pathlib.Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def test_examples_are_short_and_have_a_test():
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert [example.stem for example in examples] == [*EXAMPLES]
    assert all(len(example.read_text().splitlines()) < 40 for example in examples)


def test_own_environment_is_learned_and_played_from_other_folders(installation, copy, tmp_path):
    project, elsewhere, workdir = copy("own_environment.py"), tmp_path / "other", tmp_path / "run"
    elsewhere.mkdir()
    argv = (f"--config={project / 'own_environment.py'}", f"--workdir={workdir}")
    # It is stopped by a limit before it can reach its target, and resumed without these two.
    limits = ("--config.run.max_actor_steps=1000", "--config.run.target_return=2")
    installation.run("apex-dqn", *argv, *limits, cwd=project)
    assert "Resuming from learner step" in installation.run("apex-dqn", *argv, cwd=elsewhere)
    summary = read_summary(workdir)
    assert (summary["finished"], summary["best_return"]) == (True, 1.0)
    assert summary["actor_steps"] >= 1000
    shutil.copy(ROOT / "examples" / "load_and_play.py", elsewhere)
    task, *lines = installation.run("python", "load_and_play.py", workdir, cwd=elsewhere).split(
        "\n"
    )
    assert task.startswith("Corridor-v0, learner step ")
    assert read_returns(lines) == 5 * [1.0]


def test_own_network_trains_and_is_evaluated_from_other_folders(installation, copy, tmp_path):
    project, workdir = copy("own_network.py"), tmp_path / "run"
    limit = "--config.run.max_actor_steps=3000"
    # Not from the example's folder, where every process would find its module anyway.
    argv = (f"--config={project / 'own_network.py'}", f"--workdir={workdir}", limit)
    installation.run("apex-dqn", *argv, cwd=tmp_path)
    with np.load(workdir / "checkpoints" / "last.npz") as arrays:
        names = {name for name in arrays.files if "linear" in name}
    layers = [f"torso/mlp/linear_{i}/{name}" for i in (0, 1) for name in "bw"]
    assert names == set(layers)
    installation.run("apex-evaluate", workdir, "--checkpoint=last", "--episodes=2", cwd=workdir)
    (evaluation,) = (workdir / "evaluations").iterdir()
    assert read_summary(evaluation)["learner_steps"] > 0


def test_own_update_learns(installation, copy, tmp_path):
    folder = copy("own_update.py")
    output = installation.run("python", "own_update.py", cwd=folder)
    match = re.search(r"mean return of the last evaluation: (\S+)", output)
    assert match and float(match[1]) >= 0.9
    with (folder / "runs" / "shuffled" / "logs" / "learner.csv").open() as file:
        assert all(float(row["max_priority"]) > 0 for row in csv.DictReader(file))


@pytest.mark.parametrize(
    ("command", "example", "builder"),
    [
        ("apex-dqn", "own_exploration", "HalvingBuilder"),
        ("apex-dqn", "own_loss", "AdvantageLearningBuilder"),
        ("apex-dqn", "own_priority", "RarityBuilder"),
        ("apex-dpg", "own_critic", "CriticBuilder"),
    ],
)
def test_own_parts_in_a_config_file_train(installation, copy, tmp_path, command, example, builder):
    project, workdir = copy(f"{example}.py"), tmp_path / "run"
    limit = "--config.run.max_actor_steps=3000"
    argv = (f"--config={project / f'{example}.py'}", f"--workdir={workdir}", limit)
    installation.run(command, *argv, cwd=tmp_path)
    agent = json.loads((workdir / "config.json").read_text())["agent"]
    assert agent["builder"].endswith(f"{example}:{builder}")
    installation.run("apex-evaluate", workdir, "--checkpoint=last", "--episodes=2", cwd=workdir)
    (evaluation,) = (workdir / "evaluations").iterdir()
    assert read_summary(evaluation)["learner_steps"] > 0


def test_fine_tuning_begins_with_the_parameters_of_an_agent(installation, copy, tmp_path):
    folder, workdir = copy("fine_tuning.py"), tmp_path / "run"
    shutil.copytree(ROOT / "agents" / "pong", folder / "agents" / "pong")
    short = ("evaluation.num_episodes=1", "max_learner_steps=1", "num_envs_per_actor=2")
    flags = [f"--config.run.{field}" for field in short]
    flags += ["--config.agent.replay.min_size=200", "--config.agent.bfloat16=False"]
    flags += ["--config.environment.atari.evaluation_max_frames=400"]
    installation.run(
        "apex-dqn", "--config=fine_tuning.py", f"--workdir={workdir}", *flags, cwd=folder
    )
    paths = [workdir / "checkpoints" / "last.npz", ROOT / "agents/pong/checkpoints/best.npz"]
    learned, before = [dict(np.load(path)) for path in paths]
    assert learned.pop("learner_steps") == 1
    for name, array in learned.items():
        # Adam's first step changes each parameter by at most the learning rate.
        np.testing.assert_allclose(array, before[name].astype(np.float32), atol=7e-4)
    # The class is one of the config file, which is found from other folders, too; but there is no
    # agent there, of which only the learner needs to know.
    installation.run("apex-evaluate", workdir, "--checkpoint=last", "--episodes=1", cwd=tmp_path)


def test_own_program_learns_and_leaves_nothing(installation, copy, tmp_path):
    folder, home = copy("own_program.py"), tmp_path / "home"
    output = installation.run("python", "own_program.py", cwd=folder, HOME=home)
    match = re.search(r"mean return: (\S+)", output)
    # A random player of Catch gets about -0.6 and a perfect one 1.
    assert match and float(match[1]) >= 0.8
    assert [path.name for path in folder.iterdir()] == ["own_program.py"]
    # Keras writes this file when it is imported.
    assert [path for path in home.rglob("*") if path.is_file()] == [home / ".keras" / "keras.json"]


def test_load_and_play(installation, copy, name, tmp_path):
    make_run(tmp_path / "run", *RUNS[name])
    folder = copy("load_and_play.py")
    task, *lines = installation.run(
        "python", "load_and_play.py", tmp_path / "run", "3", cwd=folder
    ).splitlines()
    assert task == f"{RUNS[name][1].task}, learner step 1,234"
    assert len(lines) == len(read_returns(lines)) == 3


def test_play_onnx_without_tensorflow(installation, copy, name, tmp_path):
    make_run(tmp_path / "run", *RUNS[name])
    folder = copy("play_onnx.py")
    installation.run("apex-export", "../run", "--output=export", cwd=folder)
    *lines, imported = installation.run(
        "python", "-c", SCRIPT, "play_onnx.py", "export", cwd=folder
    ).splitlines()
    assert imported == "[]"
    assert len(lines) == len(read_returns(lines)) == 5


def test_two_players_make_legal_moves(installation, copy, tmp_path):
    project, workdir = copy("two_players.py"), tmp_path / "run"
    environment = {"suite": "function", "task": "two_players:TwoPlayers"}
    flags = [f"--config.environment.{name}={value}" for name, value in environment.items()]
    flags += ["--config.environment.kwargs.game=connect_four_v3", "--config.agent.torso=auto"]
    flags += [f"--workdir={workdir}", "--config.run.max_actor_steps=3000"]
    installation.run("apex-dqn", "--config=apex_dqn_cartpole", *flags, cwd=project)
    assert read_summary(workdir)["actor_steps"] >= 3000
    logs = "".join(path.read_text() for path in (workdir / "logs").glob("*.log"))
    assert "Illegal move" not in logs and "Traceback" not in logs
