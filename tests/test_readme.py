"""The README's example runs, and what the README names exists."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_learns_catch(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=180
    )
    assert result.returncode == 0, result.stderr[-2000:]
    match = re.search(r"mean return: (\S+)", result.stdout)
    # A random player gets about -0.6, a perfect one 1.
    assert float(match[1]) >= 0.8


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(r"`((?:apex_agents|launch|configs|courier_shim)/[\w./]*)`", README))),
)
def test_files_that_are_named_exist(path):
    assert (ROOT / path).exists()


def test_every_direct_dependency_earns_its_line():
    pyproject = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", pyproject, flags=re.DOTALL | re.MULTILINE)
    for name in re.findall(r'"([A-Za-z0-9-]+)[<>=]', block[1]):
        assert re.search(rf"^\|[^|]*\b{name}\b[^|]*\|", README, flags=re.MULTILINE), name


@pytest.mark.parametrize("field", sorted(set(re.findall(r"--config\.([\w.]+)=", README))))
def test_config_fields_that_are_named_exist(field):
    from apex_agents.dqn.config import ApexDQNConfig
    from apex_agents.environments import EnvironmentConfig
    from apex_agents.experiment import ExperimentConfig, RunConfig
    from apex_agents.validation import field_paths

    config = ExperimentConfig(ApexDQNConfig(), EnvironmentConfig(), RunConfig())
    assert field in field_paths(config)
