"""Tests of file locks, atomic writes and reports of I/O failures; test_full_disk.py has more."""

import logging
import os
import subprocess
import sys

import pytest

from apex_agents.runs.files import (
    hold_lock,
    is_held,
    replace_file,
    report_failure,
    report_success,
    write_json,
)


def test_a_lock_keeps_others_out_until_its_file_is_closed(tmp_path):
    path = tmp_path / ".lock"
    assert not is_held(path)
    file = hold_lock(path, wait_seconds=0)
    assert is_held(path)
    with pytest.raises(BlockingIOError):
        hold_lock(path, wait_seconds=0)
    file.close()
    assert not is_held(path)
    hold_lock(path, wait_seconds=0).close()


def test_a_lock_is_held_while_a_process_that_inherits_it_lives(tmp_path):
    path = tmp_path / ".lock"
    file = hold_lock(path, wait_seconds=0)
    wait_for_input = [sys.executable, "-c", "input()"]
    with subprocess.Popen(
        wait_for_input, stdin=subprocess.PIPE, pass_fds=[file.fileno()]
    ) as process:
        file.close()
        assert is_held(path)
        process.communicate(b"\n")
    hold_lock(path, wait_seconds=0).close()


def test_a_lock_is_waited_for(tmp_path):
    path = tmp_path / ".lock"
    file = hold_lock(path, wait_seconds=0)
    # Inherits the lock, and releases it by ending once this process has closed its own file.
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[file.fileno()]
    ) as process:
        file.close()
        process.stdin.write(b"\n")
        process.stdin.flush()
        hold_lock(path, wait_seconds=60).close()


def test_a_file_is_replaced_or_stays_as_it_was(tmp_path):
    path = tmp_path / "file"
    replace_file(path, b"old")
    (tmp_path / "file.partial").mkdir()  # In the way of the new content.
    with pytest.raises(OSError):
        replace_file(path, b"new")
    assert not write_json(path, "newer")
    assert path.read_bytes() == b"old"
    (tmp_path / "file.partial").rmdir()
    assert write_json(path, {"a": 1})
    assert path.read_text() == '{\n  "a": 1\n}'
    assert os.listdir(tmp_path) == ["file"]


def test_failures_are_logged_when_they_start_and_when_they_end(tmp_path, caplog):
    first, second = tmp_path / "first", tmp_path / "second"
    with caplog.at_level(logging.INFO):
        report_success(first)
        for error in (OSError("full"), OSError("still full")):
            report_failure(first, error)
        report_failure(second, OSError("full, too"))
        for _ in range(2):
            report_success(first)
        report_failure(first, OSError("full again"))
    found = [(record.levelname, record.args) for record in caplog.records]
    assert [(level, *map(str, args)) for level, args in found] == [
        ("WARNING", str(first), "full"),
        ("WARNING", str(second), "full, too"),
        ("INFO", str(first)),
        ("WARNING", str(first), "full again"),
    ]
