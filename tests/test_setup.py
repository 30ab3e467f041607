"""Tests of the installation: Courier stand-in, both install forms, pins, Makefile."""

import email
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import apex_agents

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE_PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
SHIM_FILES = ("apex_agents_courier_shim.pth", "apex_agents_courier_shim.py")
_DIST_INFO = f"apex_agents-{apex_agents.__version__}.dist-info"

# Runs with nothing but the standard library and the shim.
REFUSALS = """
import courier
from courier.handlers.python import pybind

assert "apex_agents_courier_shim" in courier.__spec__.origin, courier.__spec__
for use in (lambda: courier.Client("localhost:1"), courier.Server, courier.list_methods):
    try:
        use()
    except RuntimeError as error:
        assert "apex_agents does not use Courier" in str(error), error
    else:
        raise AssertionError("Courier did not refuse")
print("refused")
"""

LIBRARIES = """
from acme import core, environment_loop, specs
from acme.tf import savers, variable_utils
from acme.utils import counting, loggers
import launchpad as lp
lp.ReverbNode, lp.PyNode
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    # Needs no network: hatchling is one of the pins.
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.parametrize(
    "imports", ["import launchpad, acme", "import acme, launchpad"], ids=["launchpad", "acme"]
)
def test_acme_and_launchpad_import_in_any_order(imports):
    output = _run(sys.executable, "-c", imports + LIBRARIES + REFUSALS)
    assert output.splitlines()[-1] == "refused"


def test_editable_install_has_the_current_shim():
    for name in SHIM_FILES:
        source = ROOT / "courier_shim" / name
        assert (SITE_PACKAGES / name).read_text() == source.read_text(), "run `make` again"


def test_shim_imports_nothing_at_the_start_of_python():
    # -S leaves site-packages, and so all .pth files, out.
    program = "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules);"
    program += "import apex_agents_courier_shim; print(*(set(sys.modules) - before))"
    output = _run(sys.executable, "-S", "-c", program, str(ROOT / "courier_shim"))
    assert output.split() == ["apex_agents_courier_shim"]


def test_wheel_has_the_package_and_the_shim_and_says_what_it_is(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"apex_agents", _DIST_INFO, *SHIM_FILES}
    assert set(SHIM_FILES) <= set(names)
    assert {"apex_agents/py.typed", "apex_agents/evaluation/atari_scores.csv"} <= set(names)
    assert f"{_DIST_INFO}/licenses/LICENSE" in names
    metadata = email.message_from_bytes(zipfile.ZipFile(wheel).read(f"{_DIST_INFO}/METADATA"))
    assert metadata["Version"] == apex_agents.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "the apex_agents developers"
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert "prioritized experience replay" in metadata["Keywords"].split(",")
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_every_file_names_the_same_version():
    version = re.escape(apex_agents.__version__)
    citation = (ROOT / "CITATION.cff").read_text()
    date = re.search(r"^date-released: (\S+)$", citation, re.M)[1]
    assert re.search(rf"^version: {version}$", citation, re.M)
    assert re.search(rf"^## \[{version}\] - {date}$", (ROOT / "CHANGELOG.md").read_text(), re.M)


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_call_targets_that_exist(name):
    workflow = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text()
    commands = re.findall(r"run: (make|\.ci/run)(?: (\S+))?$", workflow, re.M)
    assert (".ci/run", "") in commands
    makefile = (ROOT / "Makefile").read_text()
    for _, target in commands:
        assert not target or re.search(rf"^{target}:", makefile, re.M), target


def test_the_image_gets_nothing_that_git_ignores():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    listed = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()}
    environments = (".venv", ".venv-peers", ".venv-appo")
    for name in (*environments, ".uv", "__pycache__", "runs", "sweeps", "build", "dist"):
        assert name in ignored & listed, name


def test_wheel_install_has_the_shim_active(wheel, tmp_path):
    # A fresh environment holds our wheel alone: `courier` can come only from the shim.
    _run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    python = str(tmp_path / "env" / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    assert _run(python, "-c", REFUSALS, cwd=tmp_path).split() == ["refused"]
    program = "import launchpad.nodes"
    missing = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert missing.returncode == 1
    assert "wheel tags --python-tag cp311 --abi-tag cp311" in missing.stderr


@pytest.mark.parametrize(
    "file",
    [
        "requirements.txt",
        "benchmarks/peers/requirements.txt",
        "benchmarks/peers/appo_requirements.txt",
    ],
)
def test_requirements_are_plain_pins(file):
    for line in (ROOT / file).read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line


def test_every_direct_dependency_is_pinned_within_its_bounds():
    pins = _pins()
    assert "apex-agents" not in pins
    direct = [
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("apex_agents") or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": "dev"})
    ]
    assert {"tensorflow", "dm-reverb", "pytest"} <= {requirement.name for requirement in direct}
    for requirement in direct:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None and requirement.specifier.contains(pin), (str(requirement), pin)


def test_installed_versions_are_the_pins():
    pins = _pins()
    assert {name: importlib.metadata.version(name) for name in pins} == pins


def test_package_metadata():
    assert pathlib.Path(apex_agents.__file__).parent == ROOT / "apex_agents"
    assert importlib.metadata.version("apex_agents") == apex_agents.__version__


def test_make_help_lists_the_targets():
    # A surrounding make (`make test`) hands its own flags down and would add lines.
    output = _run("make", "MAKEFLAGS=", "--no-print-directory", "help", cwd=ROOT)
    assert re.findall(r"^  make ([\w-]+)", output, re.M) == [
        "help",
        "train",
        "train-dpg",
        "train-a2c",
        "train-r2d2",
        "quick",
        "test",
        "test-all",
        "test-faults",
        "test-cluster",
        "bench",
        "pages",
        "docs",
        "docs-serve",
        "lint",
        "format",
        "pins",
        "dist",
        "clean",
    ]


def test_ci_runs_lint_and_tests():
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    assert commands[-3:] == ["make lint", "make docs", "make test"]
    _run("bash", "-n", ".ci/run", cwd=ROOT)


FAKE_UV = """#!/bin/sh
echo "cache: ${UV_CACHE_DIR-default}, Pythons: ${UV_PYTHON_INSTALL_DIR-default}"
echo "error: the reason" >&2
exit 2
"""


@pytest.fixture
def checkout(tmp_path) -> pathlib.Path:
    """A checkout without .venv, whose uv fails after it has told where it would write."""
    folder = tmp_path / "checkout"
    version = re.search(r"^UV_VERSION := (.+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    uv = folder / ".uv" / version / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(FAKE_UV)
    uv.chmod(0o755)
    for name in ("Makefile", "requirements.txt", "pyproject.toml", ".python-version"):
        shutil.copy(ROOT / name, folder)
    launchpad = folder / ".uv" / "launchpad" / ".tagged"
    launchpad.parent.mkdir()
    launchpad.touch()
    return folder


def _make(checkout: pathlib.Path, **env: str) -> subprocess.CompletedProcess[str]:
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        cleared.pop(name, None)
    command = ["make", "MAKEFLAGS=", "lint"]
    return subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, env={**cleared, **env}
    )


# Not even root can write into /proc.
@pytest.mark.parametrize(
    ("environ", "cache", "pythons"),
    [
        ({"HOME": "{tmp}"}, "default", "default"),
        ({"HOME": "/proc/missing"}, "{own}/cache", "{own}/python"),
        ({"HOME": ""}, "{own}/cache", "{own}/python"),
        ({"HOME": "/proc/missing", "UV_CACHE_DIR": "/named"}, "/named", "{own}/python"),
        ({"HOME": "/proc/missing", "XDG_CACHE_HOME": "{tmp}"}, "default", "{own}/python"),
    ],
)
def test_uv_writes_into_the_home_folder_or_beside_itself(
    checkout, tmp_path, environ, cache, pythons
):
    own = f"{checkout}/.uv"
    result = _make(
        checkout, **{name: value.format(tmp=tmp_path) for name, value in environ.items()}
    )
    cache, pythons = cache.format(own=own), pythons.format(own=own)
    assert f"cache: {cache}, Pythons: {pythons}\n" in result.stdout
    assert result.returncode == 2
    assert "error: the reason\n" in result.stderr  # Why there is no environment.


@pytest.mark.parametrize("is_moved", [False, True])
def test_an_environment_that_was_made_in_another_folder_is_made_anew(checkout, is_moved):
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    packages = checkout / ".venv" / "lib" / "python3.10" / "site-packages"
    packages.mkdir(parents=True)
    path = "/elsewhere" if is_moved else str(checkout.resolve())
    (packages / "_apex_agents.pth").write_text(path)
    result = _make(checkout, HOME="/proc/missing")
    assert ("copied or moved" in result.stdout) == is_moved
    assert python.is_symlink() != is_moved


def _pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


def _run(*command: str, cwd=None) -> str:
    """Runs a command to its end and returns its standard output; fails with all it printed."""
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout
