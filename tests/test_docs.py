"""What the pages say: programs run, names exist, tables are the code's."""

import pathlib
import re
import runpy
import subprocess
import sys
from typing import Any

import fault_table
import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from gymnasium import spaces

from apex_agents import exit_codes
from apex_agents.environments import EnvironmentSpec
from apex_agents.environments.conversion import convert_observations

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("", "docs/**/", "results/")
FILES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}
TEXT = "\n".join(PAGES.values())

# The example is a program for DQN; the page has what the one for DPG begins with, to this line.
START_OF_THE_COMMON_PART = "# From here on nothing depends on the algorithm.\n"


def read_programs() -> dict[str, str]:
    example = (ROOT / "examples" / "own_program.py").read_text()
    common_part = "".join(example.partition(START_OF_THE_COMMON_PART)[1:])
    page = PAGES["docs/tutorials/own_program.md"]
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (start,) = (
        block.partition(START_OF_THE_COMMON_PART)[0]
        for block in blocks
        if START_OF_THE_COMMON_PART in block and "PointMass(" in block
    )
    return {"Catch": example, "PointMass": start + common_part}


# Mean returns of 20 episodes: a random player of Catch gets about -0.6 and a perfect one 1; a point
# mass that nobody pushes gets -5 and one that is pushed to the middle about -0.7.
@pytest.mark.parametrize(("name", "least_return"), [("Catch", 0.8), ("PointMass", -1.2)])
def test_example_learns(name, least_return, tmp_path):
    program = read_programs()[name]
    assert f"environment = {name}(" in program
    script = tmp_path / "example.py"
    script.write_text(program)
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stderr[-2000:]
    match = re.search(r"mean return: (\S+)", result.stdout)
    assert float(match[1]) >= least_return


def test_the_torso_for_an_image_and_a_vector_reads_both():
    page = PAGES["docs/tutorials/own_network.md"]
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (block,) = (block for block in blocks if "make_parts_torso" in block)
    names: dict[str, Any] = {}
    exec(block, names)
    image, vector = spaces.Box(0, 255, (5, 5, 3), np.uint8), spaces.Box(-1, 1, (4,), np.float32)
    space = spaces.Dict({"speed": vector, "image": image})
    space.seed(0)
    observations = [space.sample() for _ in range(2)]
    observation_spec, convert = convert_observations(space)
    torso = names["make_parts_torso"](EnvironmentSpec(observation_spec, None, None, None), None)
    features = torso(tf.stack([convert(observation) for observation in observations]))
    images = tf.stack([part["image"] / np.float32(255) for part in observations])
    convolved = snt.flatten(tf.nn.relu(torso.convolution(images)))
    vectors = tf.stack([part["speed"] for part in observations])
    expected = tf.nn.relu(torso.dense(tf.concat([convolved, vectors], axis=1)))
    np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6)


NAMED = "apex_agents|launch|configs|examples|benchmarks|courier_shim|tests|results"


def find_names(pattern: str) -> list[str]:
    return sorted(set(re.findall(pattern, TEXT, re.MULTILINE)))


def test_files_that_are_named_exist():
    paths = find_names(rf"\b((?:{NAMED})/\w[\w./]*\w)")
    named = [path for path in paths if "NAME" not in path]  # With it, a file that is to be made.
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_targets_that_are_named_exist():
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(find_names(r"(?:^|`)make ([a-z0-9-]+)")) <= set(targets)


def test_links_lead_to_files():
    for page, text in PAGES.items():
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", text)
        links += re.findall(r"<img src=\"([^\"]+)\"", text)
        folder = (ROOT / page).parent
        assert [link for link in links if not folder.joinpath(link).exists()] == [], page


def test_every_page_is_reached_from_the_readme():
    reached, found = set(), ["README.md"]
    while found:
        page = found.pop()
        reached.add(page)
        links = re.findall(r"\]\((?!https?:)([^)#]+\.md)", PAGES[page])
        paths = [ROOT.joinpath(page).parent.joinpath(link).resolve() for link in links]
        found += {path.relative_to(ROOT).as_posix() for path in paths} & set(PAGES) - reached
    assert [page for page in PAGES if page.startswith("docs/") and page not in reached] == []


def test_settings_that_are_named_exist():
    names = find_names(r"--config=((?:apex|r2d2|a2c|a3c|dqn|prioritized|ddpg)_\w+)")
    assert [name for name in names if not (ROOT / "configs" / f"{name}.py").exists()] == []


def test_config_fields_that_are_named_exist():
    from apex_agents.config import ExperimentConfig, RunConfig
    from apex_agents.dpg.config import ApexDPGConfig
    from apex_agents.dqn.config import ApexDQNConfig
    from apex_agents.environments import EnvironmentConfig
    from apex_agents.fields import field_paths
    from apex_agents.r2d2.config import R2D2Config

    configs = [
        ExperimentConfig(agent, EnvironmentConfig(), RunConfig())
        for agent in (ApexDQNConfig(), ApexDPGConfig(), R2D2Config())
    ]
    configs.append(runpy.run_path(str(ROOT / "examples" / "own_priority.py"))["get_config"]())
    known = {path for config in configs for path in field_paths(config)}
    named = find_names(r"--config\.([a-z_.]+)=")
    # Without entries of a dict.
    fields = {re.sub(r"(kwargs|part_torsos)\..*", r"\1", name) for name in named}
    assert fields - known == set()


def test_the_pages_are_what_the_code_says():
    command = [sys.executable, str(ROOT / "docs" / "from_code.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("modules", "Policy.__call__"),  # All that a policy is asked for.
        ("modules", "Update.compute"),
        ("api", "RunningNormalization.__call__"),
        ("api", "TrainedPolicy.make_environment"),
    ],
)
def test_all_that_can_be_called_is_documented(page, name):
    headings = re.findall(r"^#+ `(.+)`$", PAGES[f"docs/reference/{page}.md"], re.MULTILINE)
    assert headings.count(name) == 1


def test_every_setting_is_on_the_page_of_settings():
    page = PAGES["docs/reference/settings.md"]
    listed = re.findall(r"<!-- fields ([\w.<>]+) apex_agents\.(?:\w+\.)?(\w+) -->", page)
    assert set(listed) == set(_find_sections()) - {("", "ExperimentConfig")}


def _find_sections() -> list[tuple[str, str]]:
    """Return the path and the class of every config in the config of an experiment."""
    import dataclasses

    from apex_agents import (
        A2CConfig,
        ApexDPGConfig,
        ApexDQNConfig,
        ExperimentConfig,
        R2D2Config,
    )

    def walk(config, path):
        yield path, type(config).__name__
        for field in dataclasses.fields(config):
            value = getattr(config, field.name)
            if dataclasses.is_dataclass(value):
                inner = f"{path}.{field.name}".lstrip(".")
                group = re.sub(r"(?<=cluster\.)\w+$", "<group>", inner)
                yield from walk(value, group)

    agents = (ApexDQNConfig(), ApexDPGConfig(), R2D2Config(), A2CConfig())
    return [section for agent in agents for section in walk(ExperimentConfig(agent), "")]


def test_every_command_is_on_the_page_of_commands():
    page = PAGES["docs/reference/commands.md"]
    pyproject = (ROOT / "pyproject.toml").read_text()
    installed = re.findall(r"^(apex-\w+) = \"", pyproject, re.MULTILINE)
    headings = re.findall(r"^## (apex-.*)$", page, re.MULTILINE)
    assert sorted(name for heading in headings for name in heading.split(", ")) == sorted(installed)
    assert len(re.findall(r"<!-- command \w+ -->", page)) == len(headings)


def test_every_exit_code_is_on_the_page_of_commands():
    listed = re.findall(r"^\| (\d+) \|", PAGES["docs/reference/commands.md"], re.MULTILINE)
    codes = [code for name, code in vars(exit_codes).items() if name.startswith("EXIT_")]
    assert sorted(map(int, listed)) == sorted(codes)


def test_the_table_of_faults_has_rows_of_the_tests():
    _, _, table = PAGES["docs/explanation/reliability.md"].partition("| what breaks |")
    rows = f"| what breaks |{table}".splitlines()
    assert len(rows) == 2 + 10
    assert set(rows) <= set(fault_table.to_markdown(fault_table.list_faults()).splitlines())


def test_no_row_is_lost_from_the_table_of_faults():
    sources = [path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    num_marked = sum(
        len(re.findall(r"^ *@pytest\.mark\.fault\(", s, re.MULTILINE)) for s in sources
    )
    command = [sys.executable, str(ROOT / "tests" / "fault_table.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # A number that falls with a test that is removed or loses its marker; it grows with new ones.
    assert len(printed.splitlines()) - 2 == num_marked == 76


def test_every_direct_dependency_earns_its_line():
    pyproject = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", pyproject, flags=re.DOTALL | re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name in re.findall(r'"([A-Za-z0-9-]+)(?:\[[\w,-]+\])?[<>=]', block[1]):
        assert re.search(rf"^\|[^|]*\b{name}\b[^|]*\|", page, flags=re.MULTILINE), name
