"""The installed commands, outside of the checkout, as a user of the wheel runs them."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMANDS = {
    *("apex-dqn", "apex-dpg", "apex-evaluate", "apex-export"),
    *("apex-monitor", "apex-plot", "apex-sweep", "apex-tune"),
}
TIMEOUT_SECONDS = 400


def run(*command: object, cwd: pathlib.Path) -> str:
    """Run a command as from a shell of its own, and return its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bin_folder(wheel, tmp_path_factory) -> pathlib.Path:
    """An environment with the wheel alone; what it depends on comes from this environment."""
    env = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", env, cwd=ROOT)
    python = env / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=ROOT)
    (site_packages,) = env.glob("lib/python*/site-packages")
    # A folder that is named in a .pth file is only searched: the editable install in it, which is
    # a .pth file as well, is not active.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return env / "bin"


def test_the_wheel_holds_the_settings_and_the_commands(wheel):
    archive = zipfile.ZipFile(wheel)
    settings = {f"apex_agents/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")}
    assert settings <= set(archive.namelist())
    (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    lines = archive.read(entry_points).decode().splitlines()
    assert {line.split(" = ")[0] for line in lines if " = " in line} == COMMANDS


def test_installed_commands_train_evaluate_and_plot(bin_folder, tmp_path):
    where = run(
        bin_folder / "python", "-c", "import apex_agents as a; print(a.__file__)", cwd=tmp_path
    )
    assert bin_folder.parent in pathlib.Path(where.strip()).parents
    output = run(bin_folder / "apex-dqn", "--config=apex_dqn_catch", "--workdir=run", cwd=tmp_path)
    assert f"evaluate: {bin_folder}/apex-evaluate run\n" in output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]
    run(bin_folder / "apex-evaluate", "--workdir=run", "--episodes=5", cwd=tmp_path)
    (summary,) = (tmp_path / "run" / "evaluations").glob("*/summary.json")
    assert json.loads(summary.read_text())["episodes"] == 5
    run(bin_folder / "apex-plot", "run", "--output=figures", cwd=tmp_path)
    assert list((tmp_path / "figures").glob("*.png"))
    run(bin_folder / "apex-monitor", "--workdir=run", "--once", cwd=tmp_path)
