"""What a user can type: mistakes get one line and exit code 2, overrides land in the config."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from refusals import assert_refused
from whole_runs import TIMEOUT_SECONDS

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Flags, and what has to be in the one line. {tmp} is a folder of this test's own, {configs} that of
# the configs.
MISTAKES = {
    "unknown_environment": (
        ["--config.environment.task=CartPol-v1"],
        ["'CartPol-v1'", "closest: CartPole-v1"],
    ),
    "continuous_actions": (
        ["--config.environment.task=Pendulum-v1"],
        ["Ape-X DQN needs discrete actions"],
    ),
    "config_of_the_other_agent": (
        ["--config={configs}/apex_dpg_pendulum.py"],
        ["agent is an ApexDPGConfig", "an ApexDQNConfig", "apex-dpg"],
    ),
    "unknown_eviction_policy": (
        ["--config.agent.replay.eviction_policy=lifo"],
        ["agent.replay.eviction_policy is 'lifo'", "'fifo' or 'prioritized'"],
    ),
    "misspelt_field": (
        ["--config.agent.batchsize=8"],
        ["--config.agent.batchsize is no field of", "closest is --config.agent.batch_size"],
    ),
    "element_of_a_field": (
        ["--config.agent.mlp_hidden_sizes[0]=1"],
        [
            "--config.agent.mlp_hidden_sizes[0] is no field of",
            "is --config.agent.mlp_hidden_sizes.",
        ],
    ),
    "flag_of_another_library": (
        ["--total_timesteps=1000"],
        ["--total_timesteps is no flag", "--config.run.max_actor_steps."],
    ),
    "device_of_another_library": (
        ["--device=cpu"],
        ["--device is no flag", "CUDA_VISIBLE"],
    ),
    "field_of_another_library": (["--config.agent.gamma=0.9"], ["is --config.agent.discount."]),
    "no_actors": (
        ["--config.run.num_actors=0"],
        ["run.num_actors is 0", "equal to 1"],
    ),
    "whole_number_of_many_digits": (
        ["--config.agent.batch_size=1e300"],
        ["agent.batch_size is 1000000000000000052504760255204", "at most 64 bits"],
    ),
    "very_long_value": (
        ["--config.agent.torso=" + 20_000 * "x"],
        [
            "agent.torso is 'xxx",
            "xxx ... xxx",
            "it has to be 'atari', 'atari_small', 'mlp', 'conv', 'auto' or 'module:function'",
        ],
    ),
    "task_that_nothing_registers": (
        ["--config.environment.task=json:CartPol-v1"],
        ["unknown gymnasium task 'CartPol-v1'", "CartPole-v1", "'module:id'"],
    ),
    "task_with_an_unknown_argument": (
        ["--config.environment.kwargs={{'colour': 'red'}}"],
        ["environment.task 'CartPole-v1' cannot be made", "colour"],
    ),
    "arguments_that_lost_their_quotes": (
        ["--config.environment.kwargs={{is_slippery: false}}"],
        ["kwargs={is_slippery: false}: it has to be a dict", "JSON", "its quotes"],
    ),
    "task_that_warns": (
        ["--config.environment.task=CartPole-v0", "--config.agent.frame_stack=4"],
        ["agent.frame_stack is 4, but observations are float32 (4,)"],
    ),
    "several_lines": (["a\nb\u2028c"], [r"'a\nb\u2028c' is not a flag"]),
    "several_lines_in_a_flag": (["--a\nb"], [r"'a\nb'"]),
    "unknown_flag": (["--wrokdir=x"], ["wrokdir"]),
    "positional_argument": (["local_mp"], ["'local_mp' is not a flag"]),
    "config_missing": (
        ["--config=nothing.py"],
        ["--config=nothing.py is neither a file", "apex_dqn_cartpole"],
    ),
    "config_that_raises_several_lines": (
        ["--config={tmp}/lines.py"],
        ["lines.py cannot be read: RuntimeError: a b (", "lines.py, line 1)"],
    ),
    "config_given_twice": (
        ["--config={configs}/apex_dqn_catch.py", "--config={configs}/apex_dqn_cartpole.py"],
        ["--config is given 2 times", "catch.py, ", "cartpole.py"],
    ),
    "flagfile_missing": (["--flagfile={tmp}/missing"], ["Unable to open flagfile", "missing"]),
    "flagfile_that_is_no_text": (["--flagfile={tmp}/binary"], ["--flagfile=", "binary", "utf-8"]),
    "flagfile_with_a_mistake": (
        ["--flagfile={tmp}/flags"],
        ["--config=nothing.py is neither a file"],
    ),
    "flag_of_absl": (["--logger_levels=a:b"], ["--logger_levels=a:b", "Unknown level: 'b'"]),
    "workdir_has_a_file_in_the_way": (
        ["--workdir={tmp}/file/run"],
        ["file/run cannot be written", "Not a directory"],
    ),
    "workdir_holds_another_run": (
        ["--workdir={tmp}/old"],
        ["/old holds a run with format_version None, not 2", "step_timeout_seconds can change"],
    ),
    # One of Launchpad's, which would not work.
    "unknown_launch_type": (
        ["--lp_launch_type=vertex_ai"],
        ["--lp_launch_type=vertex_ai", "local_mp|local_mt|ray"],
    ),
    "isolated_cluster": (
        ["--lp_launch_type=ray", "--isolate"],
        ["--isolate and --lp_launch_type=ray exclude each other"],
    ),
    "cores_split_on_a_cluster": (
        ["--lp_launch_type=ray", "--config.run.cpu_split=0.5"],
        ["run.cpu_split and --lp_launch_type=ray exclude each other"],
    ),
    "ray_address_without_port": (
        ["--lp_launch_type=ray", "--ray_address=head"],
        ["--ray_address=head has to be HOST:PORT or auto"],
    ),
    "ray_address_of_nobody": (
        ["--lp_launch_type=ray", "--ray_address=127.0.0.1:1"],
        ["--ray_address=127.0.0.1:1 cannot be reached", "refused"],
    ),
}

# What is in {tmp}, beside a file `binary`.
FILES = {
    "lines.py": "raise RuntimeError('a\\nb')\n",
    "flags": "--config=nothing.py\n",
    "file": "",
    "old/config.json": "{}",
}

# Flag, where in config.json, and the value there.
OVERRIDES = {
    "entry_of_a_dict": (
        "--config.environment.kwargs.sutton_barto_reward=true",
        "environment.kwargs",
        {"sutton_barto_reward": True},
    ),
    "target_of_another_task": (
        "--config.environment.task=MountainCar-v0",
        "run.target_return",
        None,
    ),
    "target_of_the_same_task": ("--config.run.seed=3", "run.target_return", 475.0),
    "nothing": ("--lp_launch_type=local_mt", "agent.max_gradient_norm", 40.0),
}


BY_NAME = {
    "config_by_a_word": "catch",
    "config_by_file_name": "apex_dqn_catch.py",
    "config_by_a_part_of_a_word": "catc",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("command_lines")
    for path, text in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    (folder / "binary").write_bytes(b"\xff")
    return folder


@pytest.fixture(scope="module")
def results(folder, run_command_line) -> dict[str, tuple[int, str, str]]:
    """Runs all command lines; gives exit code, standard output and standard error of each."""
    atari = ["--config", str(ROOT / "configs" / "apex_dqn_atari.py"), "--config.run.num_actors=3"]
    command_lines = {
        "help": ["--help"],
        "config_as_two_arguments": atari,
        **{name: [f"--config={value}"] for name, value in BY_NAME.items()},
        "huge_replay": ["--config.agent.replay.max_size=2000000000"],
        **{name: [flag] for name, (flag, _, _) in OVERRIDES.items()},
        **{
            name: [flag.format(tmp=folder, configs=ROOT / "configs") for flag in flags]
            for name, (flags, _) in MISTAKES.items()
        },
    }
    return {
        # A flag given twice counts the second time.
        name: run_command_line([f"--workdir={folder}/{name}", *flags], folder)
        for name, flags in command_lines.items()
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_and_exit_code_2(results, name):
    assert_refused(results[name], MISTAKES[name][1])


@pytest.mark.parametrize("name", OVERRIDES)
def test_override_lands_in_config_json(results, folder, name):
    exit_code, stdout, stderr = results[name]
    assert exit_code == 0, stdout + stderr
    value = json.loads((folder / name / "config.json").read_text())
    for part in OVERRIDES[name][1].split("."):
        value = value[part]
    assert value == OVERRIDES[name][2]
    assert type(value) is type(OVERRIDES[name][2])


def test_a_replay_larger_than_the_memory_is_a_warning(results):
    exit_code, stdout, stderr = results["huge_replay"]
    assert exit_code == 0, stdout + stderr
    # CartPole's 917 bytes per item, see `tests/replay/test_layout.py`.
    expected = "warning: The replay will grow to about 1.8 TB (2,000,000,000 items of"
    assert stderr.startswith(expected)
    assert stderr.count("\n") == 1


def test_mistake_in_a_real_command(tmp_path):
    flags, expected = MISTAKES["no_actors"]
    refuse(flags, expected, tmp_path)


def test_isolate_is_refused_where_it_cannot_be_had(tmp_path):
    expected = ["--isolate: there is no command unshare"]
    refuse(["--isolate", "--workdir=run"], expected, tmp_path, PATH="/nowhere")


def test_ray_is_an_extra(tmp_path):
    packages, folder = tmp_path / "packages", tmp_path / "folder"
    packages.mkdir()
    folder.mkdir()
    (packages / "ray.py").write_text("raise ImportError\n")
    expected = ["--lp_launch_type=ray needs the extra 'ray'", "'apex_agents[ray]'"]
    flags = ["--lp_launch_type=ray", "--workdir=run"]
    refuse(flags, expected, folder, PYTHONPATH=f"{packages}:{ROOT}")


def refuse(flags: list[str], expected: list[str], folder: pathlib.Path, **env: str) -> None:
    """Run a real command in an empty folder, where `runs/` would appear."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "launch" / "apex_dqn.py"), *flags],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
    )
    assert_refused((result.returncode, result.stdout, result.stderr), expected, folder)


def test_mistakes_leave_no_file(results, folder):
    fixtures = {"binary", "old", *FILES}
    runs = {"config_as_two_arguments", *BY_NAME, "huge_replay", *OVERRIDES}
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    left -= fixtures
    assert {path.split("/")[0] for path in left} == runs


def test_config_flag_may_be_two_arguments(results, folder):
    assert results["config_as_two_arguments"][0] == 0, results["config_as_two_arguments"]
    config = json.loads((folder / "config_as_two_arguments" / "config.json").read_text())
    assert config["run"]["num_actors"] == 3
    assert config["environment"]["suite"] == "atari"


@pytest.mark.parametrize("name", BY_NAME)
def test_settings_are_found_by_name(results, folder, name):
    assert results[name][0] == 0, results[name]
    config = json.loads((folder / name / "config.json").read_text())
    assert config["environment"]["task"] == "catch"


def test_a_config_file_is_executed_once(run_command_line, tmp_path):
    text = (ROOT / "configs" / "apex_dqn_catch.py").read_text()
    (tmp_path / "counting.py").write_text(f"print('executed')\n{text}")
    flags = ["--config=counting.py", "--config.agent.batch_size=16", "--workdir=run"]
    exit_code, stdout, _ = run_command_line(flags, tmp_path)
    assert (exit_code, stdout.count("executed")) == (0, 1)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["agent"]["batch_size"] == 16


def test_help_names_the_flags_and_the_fields(results):
    exit_code, stdout, _ = results["help"]
    assert exit_code == 0
    for flag in ("--config", "--workdir", "isolate", "--lp_launch_type"):
        assert flag in stdout
    assert "  --config.agent.n_step=10  (int >= 1, <= 10000)\n    steps per transition" in stdout


@pytest.mark.parametrize(
    ("script", "name", "command"),
    [
        ("apex_dqn.py", "apex_dpg_pendulum", "apex-dpg"),
        ("apex_dpg.py", "apex_dqn_cartpole", "apex-dqn"),
    ],
)
def test_settings_of_another_agent(run_command_line, script, name, command, tmp_path):
    result = run_command_line([f"--config={name}"], tmp_path, script)
    assert_refused(result, [command], tmp_path)
