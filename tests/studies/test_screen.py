"""Tests of what a sweep shows."""

import errno
import io
import subprocess
import sys

import pytest
from rich.console import Console

from apex_agents.studies.screen import Screen

TABLE = "| task | runs |\n| ---- | ---- |\n| pong | 1 finished |\n"
PIPED = """
import sys
from rich.console import Console
from apex_agents.studies.screen import Screen
screen = Screen(Console())
sys.stdin.read()  # Until the reader of the output has exited.
for _ in range(3):
    screen.print("a line")
    screen.show(["another"])
screen.print_table("| a |")
print("still alive", file=sys.stderr)
"""


def show_everything(is_terminal: bool, file: io.StringIO) -> None:
    screen = Screen(Console(file=file, force_terminal=is_terminal, width=60))
    screen.print("pong, seed 0 [1] starts")
    screen.show(["pong, seed 0: learns"])
    screen.print_table(TABLE)


def test_a_file_gets_the_lines_that_stay():
    file = io.StringIO()
    show_everything(False, file)
    assert file.getvalue().split("\n") == ["pong, seed 0 [1] starts", "", *TABLE.split("\n"), ""]


def test_a_terminal_gets_the_newest_output_and_a_drawn_table(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    show_everything(True, file)
    assert "pong, seed 0 [1] starts" in file.getvalue()
    assert "pong, seed 0: learns" in file.getvalue()
    assert "1 finished" in file.getvalue()
    assert "|" not in file.getvalue()
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")  # The cursor.


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_full_disk_ends_nothing(is_terminal, monkeypatch):
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TERM", "xterm-256color")
    show_everything(is_terminal, FullDisk())


def test_a_reader_that_has_exited_ends_nothing():
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PIPED]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read().startswith("still alive")
