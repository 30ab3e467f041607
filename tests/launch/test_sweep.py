"""`launch/sweep.py` as a user runs it: several seeds of a toy task, with real processes."""

import csv
import pathlib
import subprocess
import sys

import pytest
from whole_runs import CATCH, ROOT

SWEEP = (
    "launch/sweep.py",
    "--config=configs/apex_dqn_cartpole.py",
    "--workdir={workdir}",
    *(flag for flag in CATCH if "environment.task" not in flag),
    "--games=catch",
    "--seeds=2",
)
ENDS_SOON = ("--config.run.max_actor_steps=3000", "--config.run.target_return=2.0")

# Flags, and what has to be in the one line.
MISTAKES = {
    "unknown_game": (
        ["--config=configs/apex_dqn_atari_single_host.py", "--games=pong,braekout"],
        ["'braekout'", "closest: breakout"],
    ),
    "misspelt_field": (["--config.agent.batchsize=8"], ["closest is --config.agent.batch_size"]),
    "value_that_cannot_work": (["--config.run.num_actors=0"], ["run.num_actors is 0"]),
    "agent_that_does_not_fit": (["--games=CartPole-v1,Pendulum-v1"], ["needs discrete actions"]),
    "no_seeds": (["--seeds=0"], ["--seeds=0"]),
    "no_flag": (["pong"], ["'pong' is not a flag"]),
    "workdir_in_the_way": (["--workdir=README.md/x"], ["README.md/x cannot be written"]),
    "workdir_of_other_settings": (
        ["--workdir={old}", "--seeds=1"],
        ["CartPole-v1/seed_0 holds a run with agent None"],
    ),
}


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """Runs all command lines, two at a time; gives exit code, standard output and error."""
    old = tmp_path_factory.mktemp("old")
    (old / "CartPole-v1" / "seed_0").mkdir(parents=True)
    (old / "CartPole-v1" / "seed_0" / "config.json").write_text("{}")
    results = {}
    names = list(MISTAKES)
    for pair in zip(names[::2], names[1::2], strict=True):
        processes = {
            name: subprocess.Popen(
                [
                    sys.executable,
                    "launch/sweep.py",
                    *(f.format(old=old) for f in MISTAKES[name][0]),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in pair
        }
        for name, process in processes.items():
            stdout, stderr = process.communicate(timeout=120)
            results[name] = (process.returncode, stdout, stderr)
    return results


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line_before_anything_starts(mistakes, name):
    exit_code, stdout, stderr = mistakes[name]
    assert (exit_code, stdout) == (2, ""), stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    for text in MISTAKES[name][1]:
        assert text in stderr


def rows(path: pathlib.Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))
