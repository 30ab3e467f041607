"""The README's example runs, and what the README names exists."""

import pathlib
import re
import subprocess
import sys

import fault_table
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


# The first block is a program; the others replace what it begins with, down to this line.
START_OF_THE_COMMON_PART = "# From here on nothing depends on the algorithm.\n"


PROGRAMS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


# Mean returns of 20 episodes: a random player of Catch gets about -0.6 and a perfect one 1; a point
# mass that nobody pushes gets -5 and one that is pushed to the middle about -0.7.
@pytest.mark.parametrize(
    ("index", "name", "least_return"), [(0, "Catch", 0.8), (1, "PointMass", -1.2)]
)
def test_example_learns(index, name, least_return, tmp_path):
    _, *blocks = PROGRAMS
    program, start = blocks[0], blocks[index].partition(START_OF_THE_COMMON_PART)[0]
    assert f"environment = {name}(" in start
    _, marker, common_part = program.partition(START_OF_THE_COMMON_PART)
    script = tmp_path / "example.py"
    script.write_text(start + marker + common_part)
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=180
    )
    assert result.returncode == 0, result.stderr[-2000:]
    match = re.search(r"mean return: (\S+)", result.stdout)
    assert float(match[1]) >= least_return


def test_the_shortest_program_trains_and_loads(tmp_path):
    program = PROGRAMS[0].replace("50_000", "3_000")
    script = tmp_path / "train.py"
    script.write_text(f"{program}\nprint('learner steps:', policy.learner_steps)")
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(re.search(r"^learner steps: (\d+)$", result.stdout, re.MULTILINE)[1]) > 0
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(r"`((?:apex_agents|launch|configs|courier_shim)/[\w./]*)`", README))),
)
def test_files_that_are_named_exist(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("field", sorted(set(re.findall(r"--config\.([\w.]+)=", README))))
def test_config_fields_that_are_named_exist(field):
    from apex_agents.config import ExperimentConfig, RunConfig
    from apex_agents.dpg.config import ApexDPGConfig
    from apex_agents.dqn.config import ApexDQNConfig
    from apex_agents.environments import EnvironmentConfig
    from apex_agents.validation import field_paths

    configs = [
        ExperimentConfig(agent, EnvironmentConfig(), RunConfig())
        for agent in (ApexDQNConfig(), ApexDPGConfig())
    ]
    assert any(field in field_paths(config) for config in configs)


def test_the_table_of_faults_is_that_of_the_tests():
    assert fault_table.to_markdown(fault_table.list_faults()) in README
