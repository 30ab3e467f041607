"""The installed commands, outside of the checkout."""

import json
import zipfile

from whole_runs import ROOT

COMMANDS = {
    *("apex-dqn", "apex-dpg", "apex-a2c", "apex-a3c", "apex-r2d2", "apex-evaluate", "apex-play"),
    *("apex-check", "apex-export", "apex-monitor", "apex-plot", "apex-study"),
}


def test_the_wheel_holds_the_settings_and_the_commands(wheel):
    archive = zipfile.ZipFile(wheel)
    files = (path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.py"))
    settings = {f"apex_agents/{path}" for path in files}
    assert settings <= set(archive.namelist())
    (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    lines = archive.read(entry_points).decode().splitlines()
    assert {line.split(" = ")[0] for line in lines if " = " in line} == COMMANDS


def test_installed_commands_train_evaluate_and_plot(installation, tmp_path):
    where = installation.run("python", "-c", "import apex_agents as a; print(a)", cwd=tmp_path)
    assert str(installation.folder) in where
    argv = ("--config=apex_dqn_catch", "--workdir=run")
    output = installation.run("apex-dqn", *argv, cwd=tmp_path)
    assert f"evaluate: {installation.folder}/bin/apex-evaluate run\n" in output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]
    installation.run("apex-evaluate", "--workdir=run", "--episodes=5", cwd=tmp_path)
    (summary,) = (tmp_path / "run" / "evaluations").glob("*/summary.json")
    assert json.loads(summary.read_text())["episodes"] == 5
    installation.run("apex-plot", "run", "--output=figures", cwd=tmp_path)
    assert list((tmp_path / "figures").glob("*.png"))
    installation.run("apex-monitor", "--workdir=run", "--once", cwd=tmp_path)
