"""Tests of the live view, of a real run in real terminals."""

import contextlib
import os
import pathlib
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from refusals import assert_refused
from whole_runs import ENDLESS, ROOT, TIMEOUT_SECONDS, Command, apex_dqn

MONITOR = str(ROOT / "launch" / "monitor.py")


class Terminal:
    """A terminal of 100 columns with a command in it.

    Attributes:
      process: the command.
    """

    def __init__(self, *argv: str):
        leader, follower = pty.openpty()
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, args=(leader,), daemon=True)
        self._reader.start()
        env = {**os.environ, "COLUMNS": "100", "LINES": "50", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, *argv], stdin=follower, stdout=follower, stderr=follower, env=env
        )
        os.close(follower)

    def wait(self) -> int:
        """Wait until the command has ended and all of its output is there; return its exit code."""
        exit_code = self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        return exit_code

    def screen(self) -> str:
        return self._output.decode(errors="replace")

    def _read(self, leader: int) -> None:
        try:
            while data := os.read(leader, 65536):
                self._output += data
        except OSError:  # How a terminal ends that nobody has open.
            pass


@pytest.fixture
def open_terminal() -> Iterator[Callable[..., Terminal]]:
    """Open terminals with commands, which are killed in the end if they have not ended."""
    with contextlib.ExitStack() as opened:

        def open_one(*argv: str) -> Terminal:
            terminal = Terminal(*argv)
            opened.callback(terminal.process.wait)
            opened.callback(terminal.process.kill)
            return terminal

        yield open_one


@pytest.fixture(scope="module")
def run(start) -> Command:
    """A run that learns and does not end by itself."""
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(lambda: run.is_learning() and run.rows("evaluator") and run.rows("actor_0_envs"))
    return run


def monitor(*flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, MONITOR, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.fault(
    breaks="`kill -9` of a live view", holds="no node is affected; the learner continues"
)
def test_killing_a_view_does_not_disturb_the_run(run, open_terminal):
    terminal = open_terminal(MONITOR, f"--workdir={run.workdir}")
    run.wait_for(lambda: "running for" in terminal.screen())
    for group in ("replay", "learner", "actor", "evaluator"):
        assert group in terminal.screen()
    nodes = run.nodes()
    steps = run.learner_steps()
    terminal.process.kill()
    terminal.process.wait()
    run.wait_for(lambda: run.learner_steps() > steps)
    assert run.nodes() == nodes


def test_without_a_terminal_it_shows_a_run_once_if_asked(run):
    shown = monitor(str(run.workdir), "--once")
    assert shown.returncode == 0
    assert shown.stdout.count("run · catch") == 1
    assert "1/1" in shown.stdout
    assert "running for" in shown.stdout
    assert "\x1b" not in shown.stdout


def test_a_terminal_may_lack_characters(run):
    command = [sys.executable, MONITOR, str(run.workdir), "--once"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "run ? catch" in shown.stdout


def test_a_view_that_is_piped_writes_at_once_and_ends_with_its_reader(run):
    command = [sys.executable, MONITOR, str(run.workdir)]
    shown = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "actors" in shown.stdout.readline()
    shown.stdout.close()
    assert shown.wait(timeout=600) == 1
    assert shown.stderr.read() == ""
    shown.stderr.close()


def test_a_view_ends_with_its_run(run, open_terminal):
    terminal = open_terminal(MONITOR, f"--workdir={run.workdir}")
    run.wait_for(lambda: "running for" in terminal.screen())
    run.press_ctrl_c()
    run.finish()
    assert terminal.wait() == 0
    # The command says later than the learner what stopped the run.
    assert re.search(r"stopped (from outside|by SIGINT)", terminal.screen())
    shown = monitor(f"--workdir={run.workdir}")
    assert shown.returncode == 0
    assert "stopped by SIGINT" in shown.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "name the folder of one run"),
        (["nowhere"], "nowhere is no folder; name the work directory of a run."),
        ([f"--workdir={ROOT}"], f"{ROOT} holds no run: it has no config.json that can be read."),
        (["--wrkdir=x"], "Unknown command line flag 'wrkdir'"),
    ],
)
def test_mistakes_get_one_line(flags, message, run_command_line, tmp_path):
    assert_refused(run_command_line(flags, tmp_path, "monitor.py"), [message])


def test_a_fault_of_the_view_is_no_mistake_of_its_user(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    code = (
        "from apex_agents.command_line import arguments, monitor;"
        "monitor.render = lambda run: int('');"
        "arguments.run_command(monitor.main)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (result.returncode, "Traceback" in result.stderr) == (1, True)


def test_a_run_in_a_terminal_is_shown_in_it(tmp_path, open_terminal):
    workdir = tmp_path / "run"
    flags = [arg.replace("{workdir}", str(workdir)) for arg in apex_dqn("local_mp")]
    script, *rest = flags
    terminal = open_terminal(str(ROOT / script), *rest, "--config.run.max_learner_steps=8000")
    assert terminal.wait() == 0
    screen = terminal.screen()
    assert screen.count("running for") > 1
    assert "limit of 8000 learner steps reached after" in screen
    assert pathlib.Path(workdir, "summary.json").exists()
