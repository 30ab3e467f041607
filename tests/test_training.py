"""Training from Python, in programs of a user's own: files outside of the checkout."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import apex_agents
from apex_agents import ApexDQNConfig, EnvironmentConfig, ExperimentConfig, ReplayConfig, RunConfig
from apex_agents.environments import Catch

CONFIG = """
import os, signal, sys
from apex_agents import *

with open("executions", "a") as file:
    file.write("x")
replay = ReplayConfig(max_size=1000, min_size=20, samples_per_insert=2.0)
agent = ApexDQNConfig(torso="mlp", frame_stack=0, batch_size=8, replay=replay)
evaluation = EvaluationConfig(num_episodes=3, min_period_seconds=0.5)
limits = RunConfig(max_actor_steps=int(sys.argv[1]), evaluation=evaluation)
config = ExperimentConfig(agent, EnvironmentConfig("toy", "catch"), limits)
"""

# No `if __name__ == "__main__"`, no flags of absl: those of the command line are the script's own.
TRAIN = f"""{CONFIG}
def make_environment(rows):
    from apex_agents.environments import Catch
    return Catch(rows=rows)

def make_torso(spec, config):
    import sonnet
    return sonnet.nets.MLP([16], activate_final=True)

handler = signal.getsignal(signal.SIGINT)
config.environment.kwargs = {{"rows": 6}}
functions = {{"environment_fn": make_environment, "torso_fn": make_torso}}
run = train(config, workdir="run", launch_type=sys.argv[2], is_live=False, **functions)
assert signal.getsignal(signal.SIGINT) is handler
print("returned", run.exit_code, run.folder, run.summary["finished"], run.summary["reason"])
"""

BY_HAND = f"""{CONFIG}
import launchpad as lp
experiment = make_experiment(config, workdir="run")
lp.launch(make_program(experiment), lp.LaunchType.LOCAL_MULTI_THREADING)
"""


# An update of the script's own, which logs something else.
OWN_BUILDER = f"""{CONFIG}
from apex_agents.dqn.learning import DQNUpdate

class Update(DQNUpdate):
    def compute(self, batch, weights):
        computed = super().compute(batch, weights)
        size = 0 * batch.n_step_return[0] + 8.0
        return computed._replace(metrics={{**computed.metrics, "batch_size": size}})

class Builder(ApexDQNBuilder):
    def make_update(self, spec, seed=0):
        networks = [self.make_networks(spec, seed) for _ in range(2)]
        return Update(*networks, self.config)

class Tracker:
    def __init__(self):
        self.names, self.is_closed = set(), False

    def write(self, items):
        for item in items:
            self.names |= {{*getattr(item, "values", {{}})}}

    def close(self):
        self.is_closed = True

def is_tracked(name):
    return tracker.is_closed and name in tracker.names

tracker = Tracker()
options = {{"workdir": "run", "launch_type": "local_mp", "is_live": False}}
train(config, builder_fn=Builder, exports=[tracker], **options)
print("tracked", is_tracked("learner/batch_size"), is_tracked("evaluator/mean_return"))
try:
    train(config, **options)
except ValueError as error:
    print(error)
"""

# An environment that changes what belongs to the process, and a program that notices.
CHANGES = f"""{CONFIG}
import logging, random, warnings
import numpy as np
from apex_agents.environments import Catch

elsewhere = os.path.abspath("elsewhere")
os.mkdir(elsewhere)

def change():
    os.chdir(elsewhere)
    os.umask(0o077)
    os.environ["ADDED"] = "1"
    random.seed(0)
    np.random.seed(0)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

class Changes(Catch):
    def __init__(self):
        change()
        super().__init__()

    def reset(self):
        change()
        return super().reset()

def look():
    umask = os.umask(0)
    os.umask(umask)
    numbers = random.getstate(), np.random.get_state()[1].tolist()
    messages = logging.root.manager.disable, warnings.filters[:]
    return os.getcwd(), umask, dict(os.environ), *numbers, *messages

train(config, environment_fn=Changes, workdir="warm-up", launch_type=sys.argv[2], is_live=False)
before = look()
run = train(config, environment_fn=Changes, workdir="run", launch_type=sys.argv[2], is_live=False)
print("unchanged", [a == b for a, b in zip(before, look())])
print(run.folder)
"""

LOAD = """
import apex_agents

policy = apex_agents.load("run")
environment = policy.make_environment()
print("acts", policy.act(environment.reset().observation).shape)
"""


def execute(folder: pathlib.Path, program: str, *argv: str) -> subprocess.CompletedProcess:
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "program.py", *argv],
        cwd=folder,
        env={**os.environ, "HOME": str(folder / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def read_evaluations(folder: pathlib.Path) -> list[int]:
    """Return the learner steps that were evaluated."""
    with (folder / "run" / "logs" / "evaluator.csv").open() as file:
        return [int(float(row["learner_steps"])) for row in csv.DictReader(file)]


def test_a_script_trains_and_resumes_in_processes(tmp_path):
    first = execute(tmp_path, TRAIN, "400", "local_mp", "-v", "--help-me")
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "run"
    assert f"returned 0 {folder} True limit of 400 actor steps reached\n" in first.stdout
    # No node has executed the script.
    assert (tmp_path / "executions").read_text() == "x"
    summary = json.loads((folder / "summary.json").read_text())
    assert 400 <= summary["actor_steps"] < 400 + 8 * 3
    evaluated = read_evaluations(tmp_path)
    assert evaluated[-1] == summary["learner_steps"]
    assert (folder / "plots").is_dir()
    # Environment and network were those of the script's functions.
    recorded = json.loads((folder / "config.json").read_text())
    assert recorded["environment"]["task"] == "__main__:make_environment"
    assert recorded["agent"]["torso"] == "__main__:make_torso"
    with np.load(folder / "checkpoints" / "last.npz") as arrays:
        assert arrays["torso/mlp/linear_0/w"].shape == (6 * 5, 16)

    # Another program finds these functions, too.
    loaded = execute(tmp_path, LOAD)
    assert loaded.stdout.endswith("acts (1,)\n"), loaded.stderr

    # Over already: nothing is evaluated again.
    again = execute(tmp_path, TRAIN, "400", "local_mp")
    assert again.returncode == 0, again.stderr
    assert read_evaluations(tmp_path) == evaluated
    assert json.loads((folder / "summary.json").read_text())["learner_steps"] == evaluated[-1]


CALLBACK = f"""{CONFIG}
limits.max_actor_steps = limits.max_learner_steps = None
records = []

def on_evaluation(record):
    records.append(record)
    print("evaluated", record.actor_steps > 0, record.num_episodes, record.best_parameters.exists())
    if len(records) == 2 and sys.argv[2] == "raises":
        raise ZeroDivisionError("mine")
    return len(records) == 2

run = train(config, workdir="run", on_evaluation=on_evaluation, launch_type=sys.argv[3])
print("returned", run.exit_code, run.summary["finished"], run.summary["reason"], len(records))
"""


@pytest.mark.parametrize("launch_type", ["local_mp", "local_mt"])
def test_a_function_of_the_script_ends_the_run(launch_type, tmp_path):
    first = execute(tmp_path, CALLBACK, "0", "returns", launch_type)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("evaluated") == first.stdout.count(" 3 True\n") == 2
    assert first.stdout.endswith("returned 0 True on_evaluation returned True 2\n")
    assert "Stopping, since on_evaluation returned True; press" in first.stdout
    steps = json.loads((tmp_path / "run" / "summary.json").read_text())["learner_steps"]
    # No limit was reached: the same call goes on, and asks about new evaluations only.
    again = execute(tmp_path, CALLBACK, "0", "returns", launch_type)
    assert again.stdout.endswith("returned 0 True on_evaluation returned True 2\n"), again.stderr
    assert f"Resuming from learner step {steps:,}" in again.stdout


def test_an_error_of_the_scripts_function_is_raised_after_saving(tmp_path):
    result = execute(tmp_path, CALLBACK, "0", "raises", "local_mp")
    assert result.returncode == 1 and "returned" not in result.stdout
    assert result.stderr.endswith("ZeroDivisionError: mine\n") and "on_evaluation" in result.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert not summary["finished"]
    assert summary["reason"] == "on_evaluation raised ZeroDivisionError: mine"
    saved = tmp_path / "run" / "checkpoints" / f"learner-{summary['learner_steps']:012d}"
    assert saved.is_dir()


def test_a_script_trains_with_a_builder_of_its_own(tmp_path):
    result = execute(tmp_path, OWN_BUILDER, "400")
    assert result.returncode == 0, result.stderr
    with (tmp_path / "run" / "logs" / "learner.csv").open() as file:
        assert {float(row["batch_size"]) for row in csv.DictReader(file)} == {8.0}
    assert "tracked True True\n" in result.stdout
    # The run is not resumed with another one.
    assert "holds a run with agent.builder '__main__:Builder', not 'standard'" in result.stdout
    loaded = execute(tmp_path, LOAD)
    assert loaded.stdout.endswith("acts (1,)\n"), loaded.stderr


def test_a_script_trains_twice_in_threads(tmp_path):
    program = f"{TRAIN}\nlimits.max_actor_steps += 200\n{TRAIN.removeprefix(CONFIG)}"
    result = execute(tmp_path, program, "400", "local_mt", "-v", "--help-me")
    assert result.returncode == 0, result.stderr
    reasons = re.findall(
        r"^returned 0 .* True limit of (\d+) actor steps reached", result.stdout, re.MULTILINE
    )
    assert reasons == ["400", "600"]


@pytest.mark.parametrize("launch_type", ["local_mp", "local_mt"])
def test_what_an_environment_changes_in_the_process_is_put_back(launch_type, tmp_path):
    result = execute(tmp_path, CHANGES, "100", launch_type)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(f"unchanged {[True] * 7}\n{tmp_path / 'run'}\n")
    names = ["config.json", "logs", "checkpoints", "summary.json"]
    assert all((tmp_path / "run" / name).exists() for name in names)
    assert (tmp_path / "run" / "logs").stat().st_mode & 0o055 == 0o055  # The earlier umask applies.
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_program_launched_by_hand_writes_into_its_folder(tmp_path):
    result = execute(tmp_path, BY_HAND, "400")
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["finished"], summary["reason"]) == (True, "limit of 400 actor steps reached")
    assert read_evaluations(tmp_path)[-1] == summary["learner_steps"]
    assert (tmp_path / "run" / "config.json").exists()
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {"best.npz", "last.npz", f"learner-{summary['learner_steps']:012d}"} <= checkpoints


def holds_a_lock() -> Callable[[], Catch]:
    lock = threading.Lock()
    return lambda: Catch() if lock else None


AGENT = ApexDQNConfig(torso="mlp", frame_stack=0, replay=ReplayConfig(min_size=1000))
CATCH = EnvironmentConfig("toy", "catch")


@pytest.fixture
def no_fork_server(monkeypatch):
    """What is refused needs no processes."""
    monkeypatch.setattr("apex_agents.training.open_server", lambda modules: None)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (
            ExperimentConfig(AGENT, CATCH, RunConfig(max_actor_steps=999)),
            {},
            "1000 actor steps, by agent.replay.min_size",
        ),
        (ExperimentConfig(AGENT, CATCH, RunConfig(num_actors=0)), {}, r"run\.num_actors"),
        (ExperimentConfig(ApexDQNConfig(), CATCH), {}, "agent"),
        (ExperimentConfig(AGENT, CATCH), {"launch_type": "test_mt"}, "launch_type"),
        (ExperimentConfig(AGENT, CATCH), {"workdir": "/proc/run"}, "/proc/run"),
        (ExperimentConfig(AGENT, CATCH), {"environment_fn": holds_a_lock()}, "of lock, "),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(
    no_fork_server, config, options, message, tmp_path
):
    with pytest.raises(ValueError, match=message):
        apex_agents.train(config, **{"workdir": tmp_path / "run", **options})
    assert list(tmp_path.iterdir()) == []


def test_training_outside_of_the_main_thread_is_refused(no_fork_server, tmp_path):
    errors = []

    def train() -> None:
        try:
            apex_agents.train(ExperimentConfig(AGENT, CATCH), workdir=tmp_path / "run")
        except ValueError as error:
            errors.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "main thread" in errors[0]
