"""What CONTRIBUTING.md names exists, and every dependency has its reason there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = "apex_agents|benchmarks|courier_shim|launch|tests"


def test_every_direct_dependency_has_its_reason():
    pyproject = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", pyproject, flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r'^ *"([A-Za-z0-9-]+)(?:\[[\w,-]+\])?[<>=]', block[1], re.MULTILINE)
    assert {"tensorflow", "etils"} <= set(names)
    for name in names:
        assert re.search(rf"^\|[^|]*\b{name}\b[^|]*\|", TEXT, flags=re.MULTILINE), name


@pytest.mark.parametrize("path", sorted(set(re.findall(rf"\b((?:{FOLDERS})/[\w./]*)", TEXT))))
def test_files_that_are_named_exist(path):
    if "NAME" not in path:  # What is to be made.
        assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)\b[`  ]", TEXT))))
def test_targets_that_are_named_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
