"""`launch/plot.py` as a user runs it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from refusals import assert_refused

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EVALUATIONS = (
    "actor_steps,learner_steps,mean_return,num_episodes,standard_error,wall_time_seconds\n"
    "100,10,1.0,20,0.5,5\n"
    "200,20,3.0,20,0.5,10\n"
)


@pytest.fixture
def make_run(tmp_path):
    def make(name: str, seed: int = 0, rows: str = EVALUATIONS) -> pathlib.Path:
        (tmp_path / name / "logs").mkdir(parents=True)
        config = {"agent_type": "ApexDQNConfig", "environment": {"task": "pong"}}
        config |= {"run": {"seed": seed}}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / name / "logs" / "evaluator.csv").write_text(rows)
        return tmp_path / name

    return make


def plot(folder: pathlib.Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(ROOT / "launch" / "plot.py"), *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )


def test_one_run_is_drawn_into_its_folder(make_run, tmp_path):
    run = make_run("a")
    result = plot(tmp_path, "a")
    assert (result.returncode, result.stderr) == (0, "")
    files = [run / "plots" / "returns.png", run / "plots" / "returns.svg"]
    assert result.stdout.splitlines() == [str(file) for file in files]
    assert all(file.stat().st_size > 10_000 for file in files)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_path_may_have_any_letters_in_any_locale(encoding, make_run, tmp_path):
    run, name = make_run("grün"), "läuft"
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0" if encoding == "ascii" else "1"}
    result = plot(tmp_path, str(run), f"--output={name}", **locale)
    assert (result.returncode, result.stderr) == (0, "")
    files = [f"{name}/returns.png", f"{name}/returns.svg"]
    assert result.stdout.splitlines() == files
    assert all((tmp_path / file).exists() for file in files)


def test_several_runs_are_drawn_where_the_command_is_run(make_run, tmp_path):
    for seed in range(3):
        make_run(f"seed_{seed}", seed)
    result = plot(tmp_path, "seed_0", "seed_1", "seed_2", "seed_1/")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["plots/returns.png", "plots/returns.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plots",
        "seed_0",
        "seed_1",
        "seed_2",
    ]
    svg = (tmp_path / "plots" / "returns.svg").read_text()
    assert "<!-- Ape-X DQN on pong, 3 seeds -->" in svg  # One that was named twice counts once.


def test_the_folder_of_a_sweep_is_drawn_into_it(make_run, tmp_path):
    for seed in range(2):
        make_run(f"sweep/pong/seed_{seed}", seed)
    result = plot(tmp_path, "sweep")
    plots = tmp_path / "sweep" / "plots"
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["sweep/plots/returns.png", "sweep/plots/returns.svg"]
    assert "<!-- Ape-X DQN on pong, 2 seeds -->" in (plots / "returns.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "RUN is missing"),
        (["missing"], "missing is no folder"),
        (["empty"], "empty: there is nothing to draw in logs/ yet"),
        (["good", "--output=file/x"], "file/x: Not a directory"),
    ],
)
def test_mistake_gets_one_line_and_exit_code_2(
    arguments, message, make_run, run_command_line, tmp_path
):
    make_run("good")
    make_run("empty", rows="")
    (tmp_path / "file").touch()
    assert_refused(run_command_line(arguments, tmp_path, "plot.py"), [message])
    assert not (tmp_path / "good" / "plots").exists()


def test_help(tmp_path):
    result = plot(tmp_path, "--help")
    for text in ("RUN [RUN ...]", "--output", "returns", "seed_0"):
        assert text in result.stdout


def test_drawing_needs_no_tensorflow(make_run):
    code = (
        "import sys\n"
        "from apex_agents.plotting import draw_run\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"assert draw_run({str(make_run('a'))!r})\n"
        "assert not {'tensorflow', 'reverb', 'matplotlib.pyplot', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
