"""What a user can type: mistakes get one line and exit code 2, overrides land in the config."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Importing TensorFlow takes seconds: once for all command lines, each of which then gets a process
# (and with it fresh flags) by forking. Training is left out: it would answer a mistake that went
# through unnoticed with exit code 0.
COMMAND_LINES = """
import json, os, pathlib, sys
sys.path.insert(0, "launch")
import command
from apex_agents.dqn.builder import ApexDQNBuilder

command.launch_program = lambda program, experiment, launch_type: 0
default_config = str(pathlib.Path("configs/apex_dqn_cartpole.py").absolute())
folder = pathlib.Path(sys.argv[1])
results = {}
for name, flags in json.load(sys.stdin).items():
    pid = os.fork()
    if pid == 0:
        for descriptor, stream in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / f"{name}.{stream}", os.O_WRONLY | os.O_CREAT), descriptor)
        os.chdir(folder)
        sys.argv = ["launch/apex_dqn.py", *flags]
        try:
            command.run(ApexDQNBuilder, default_config)
        except SystemExit as error:
            os._exit(error.code)
        os._exit(99)
    results[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps(results))
"""

# Flags, and what has to be in the one line. {tmp} is a folder of this test's own, {configs} that of
# the configs.
MISTAKES = {
    "unknown_environment": (
        ["--config.environment.task=CartPol-v1"],
        ["'CartPol-v1'", "closest: CartPole-v1"],
    ),
    "unknown_game": (
        ["--config.environment.suite=atari", "--config.environment.task=pnog"],
        ["'pnog'", "closest: pong"],
    ),
    "unknown_suite": (
        ["--config.environment.suite=atri"],
        ["suite 'atri'", "allowed: atari, control, gymnasium, toy"],
    ),
    "unknown_control_task": (
        ["--config.environment.suite=control", "--config.environment.task=humanoid:wlak"],
        ["'humanoid:wlak'", "closest: humanoid:walk"],
    ),
    "continuous_actions": (
        ["--config.environment.task=Pendulum-v1"],
        ["Ape-X DQN needs discrete actions"],
    ),
    "config_of_the_other_agent": (
        ["--config={configs}/apex_dpg_pendulum.py"],
        ["agent is 'ApexDPGConfig'", "an ApexDQNConfig"],
    ),
    "unknown_remover": (
        ["--config.agent.replay.remover=lifo"],
        ["agent.replay.remover is 'lifo'", "'fifo', 'prioritized'"],
    ),
    "misspelt_field": (
        ["--config.agent.batchsize=8"],
        ["--config.agent.batchsize does not exist", "closest is --config.agent.batch_size"],
    ),
    "misspelt_nested_field": (
        ["--config.agent.replay.maxsize=8"],
        ["--config.agent.replay.maxsize", "closest is --config.agent.replay.max_size"],
    ),
    "misspelt_section": (
        ["--config.agnet.batch_size=8"],
        ["--config.agnet.batch_size", "closest is --config.agent.batch_size"],
    ),
    "no_actors": (["--config.run.num_actors=0"], ["run.num_actors is 0", "between 1 and 10000"]),
    "negative_capacity": (
        ["--config.agent.replay.max_size=-5"],
        ["agent.replay.max_size is -5", "between 1 and 2147483647"],
    ),
    "min_size_above_max_size": (
        ["--config.agent.replay.min_size=100", "--config.agent.replay.max_size=50"],
        ["agent.replay.min_size is 100", "at most max_size (50)"],
    ),
    "fraction_above_1": (["--config.agent.discount=1.5"], ["agent.discount is 1.5", "0 and 1"]),
    "unknown_network": (
        ["--config.agent.network=cnn"],
        ["agent.network is 'cnn'", "'atari', 'mlp'"],
    ),
    "no_number": (["--config.agent.batch_size=abc"], ["--config.agent.batch_size", "abc"]),
    "number_with_a_fraction": (["--config.run.num_actors=1.5"], ["num_actors", "1.5"]),
    "no_boolean": (["--config.environment.atari.clip_rewards=abc"], ["clip_rewards", "abc"]),
    "no_tuple": (["--config.agent.mlp_hidden_sizes=abc"], ["mlp_hidden_sizes", "abc"]),
    "unknown_flag": (["--wrokdir=x"], ["wrokdir"]),
    "positional_argument": (["local_mp"], ["'local_mp' is not a flag"]),
    "config_missing": (
        ["--config=nothing.py"],
        ["--config=nothing.py is no file", "apex_dqn_cartpole.py"],
    ),
    "config_with_syntax_error": (
        ["--config={tmp}/syntax.py"],
        ["syntax.py cannot be read", "SyntaxError"],
    ),
    "config_without_get_config": (["--config={tmp}/empty.py"], ["empty.py cannot be read"]),
    "workdir_has_a_file_in_the_way": (
        ["--workdir={tmp}/file/run"],
        ["file/run cannot be written", "Not a directory"],
    ),
    "workdir_in_proc": (["--workdir=/proc/run"], ["--workdir=/proc/run cannot be written"]),
    "workdir_holds_another_run": (
        ["--workdir={tmp}/old"],
        ["/old holds a run with agent None, not", "only fields of run can change"],
    ),
    "launch_type_that_does_not_work": (
        ["--lp_launch_type=vertex_ai"],
        ["--lp_launch_type=vertex_ai does not work", "local_mp"],
    ),
    "unknown_launch_type": (["--lp_launch_type=local"], ["lp_launch_type", "local"]),
}

# Flag, where in config.json, and the value there.
OVERRIDES = {
    "integer": ("--config.agent.batch_size=16", "agent.batch_size", 16),
    "float": ("--config.agent.learning_rate=1e-3", "agent.learning_rate", 0.001),
    "float_from_integer": ("--config.agent.discount=1", "agent.discount", 1.0),
    "string": ("--config.environment.task=Acrobot-v1", "environment.task", "Acrobot-v1"),
    "boolean": (
        "--config.environment.atari.clip_rewards=false",
        "environment.atari.clip_rewards",
        False,
    ),
    "boolean_by_no": (
        "--noconfig.environment.atari.clip_rewards",
        "environment.atari.clip_rewards",
        False,
    ),
    "boolean_by_name": (
        "--config.environment.atari.full_action_set",
        "environment.atari.full_action_set",
        True,
    ),
    "optional_float": ("--config.run.target_return=12.5", "run.target_return", 12.5),
    "optional_integer_that_was_none": (
        "--config.run.max_learner_steps=7",
        "run.max_learner_steps",
        7,
    ),
    "tuple": ("--config.agent.mlp_hidden_sizes=(32, 16)", "agent.mlp_hidden_sizes", [32, 16]),
    "deep": (
        "--config.agent.exploration.evaluation_epsilon=0.5",
        "agent.exploration.evaluation_epsilon",
        0.5,
    ),
    "nothing": ("--lp_launch_type=local_mt", "agent.max_gradient_norm", 40.0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("command_lines")
    (folder / "syntax.py").write_text("def get_config(:\n")
    (folder / "empty.py").write_text("")
    (folder / "file").write_text("")
    (folder / "old").mkdir()
    (folder / "old" / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def results(folder) -> dict[str, tuple[int, str, str]]:
    """Runs all command lines; gives exit code, standard output and standard error of each."""
    atari = ["--config", str(ROOT / "configs" / "apex_dqn_atari.py"), "--config.run.num_actors=3"]
    command_lines = {
        "help": ["--help"],
        "config_as_two_arguments": atari,
        **{name: [flag] for name, (flag, _, _) in OVERRIDES.items()},
        **{
            name: [flag.format(tmp=folder, configs=ROOT / "configs") for flag in flags]
            for name, (flags, _) in MISTAKES.items()
        },
    }
    result = subprocess.run(
        [sys.executable, "-c", COMMAND_LINES, str(folder)],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        # A flag given twice counts the second time.
        input=json.dumps({n: [f"--workdir={folder}/{n}", *f] for n, f in command_lines.items()}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    return {
        name: (code, *((folder / f"{name}.{s}").read_text() for s in ("stdout", "stderr")))
        for name, code in json.loads(result.stdout).items()
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_and_exit_code_2(results, name):
    exit_code, stdout, stderr = results[name]
    assert exit_code == 2, stdout + stderr
    _assert_one_line(stderr, MISTAKES[name][1])
    assert stdout == ""


@pytest.mark.parametrize("name", OVERRIDES)
def test_override_lands_in_config_json(results, folder, name):
    exit_code, stdout, stderr = results[name]
    assert exit_code == 0, stdout + stderr
    value = json.loads((folder / name / "config.json").read_text())
    for part in OVERRIDES[name][1].split("."):
        value = value[part]
    assert value == OVERRIDES[name][2]
    assert type(value) is type(OVERRIDES[name][2])


@pytest.mark.parametrize("name", ["no_actors", "misspelt_field", "unknown_flag"])
def test_mistake_in_a_real_command(tmp_path, name):
    flags, expected = MISTAKES[name]
    result = subprocess.run(
        [sys.executable, str(ROOT / "launch" / "apex_dqn.py"), *flags],
        cwd=tmp_path,  # Where `runs/` would appear.
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    _assert_one_line(result.stderr, expected)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_leave_no_file(results, folder):
    fixtures = {"syntax.py", "empty.py", "file", "old", "old/config.json"}
    printed = {f"{name}.{stream}" for name in results for stream in ("stdout", "stderr")}
    runs = {"config_as_two_arguments", *OVERRIDES}
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    left -= fixtures | printed
    assert {path.split("/")[0] for path in left} == runs


def test_config_flag_may_be_two_arguments(results, folder):
    assert results["config_as_two_arguments"][0] == 0, results["config_as_two_arguments"]
    config = json.loads((folder / "config_as_two_arguments" / "config.json").read_text())
    assert config["run"]["num_actors"] == 3
    assert config["environment"]["suite"] == "atari"


def test_help_names_the_flags(results):
    exit_code, stdout, _ = results["help"]
    assert exit_code in (0, 1)  # absl exits with 1.
    for flag in ("--config", "--workdir", "--lp_launch_type"):
        assert flag in stdout


def _assert_one_line(stderr: str, expected: list[str]) -> None:
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1 and stderr.endswith("\n"), stderr
    for text in expected:
        assert text in stderr
