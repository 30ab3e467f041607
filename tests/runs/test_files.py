"""Tests of file locks, atomic writes and reports of I/O failures; test_full_disk.py has more."""

import errno
import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import IO

import pytest

from apex_agents.runs.files import (
    hold_lock,
    is_held,
    replace_file,
    report_failure,
    report_success,
    write_json,
)


def fail_with(number: int) -> Callable[[IO[str], int], None]:
    """Return the `flock` of a file system without locks."""

    def flock(file: IO[str], kind: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


FLOCKS = {
    "flock": fcntl.flock,
    "ENOSYS": fail_with(errno.ENOSYS),
    "ENOLCK": fail_with(errno.ENOLCK),
    "EOPNOTSUPP": fail_with(errno.EOPNOTSUPP),
}


@pytest.fixture(params=FLOCKS)
def flock(request):
    return FLOCKS[request.param]


def test_a_lock_keeps_others_out_until_its_file_is_closed(flock, tmp_path):
    path = tmp_path / ".lock"
    assert not is_held(path, flock)
    file = hold_lock(path, 0, flock)
    assert is_held(path, flock)
    with pytest.raises(BlockingIOError):
        hold_lock(path, 0, flock)
    file.close()
    assert not is_held(path, flock)
    hold_lock(path, 0, flock).close()


def test_a_lock_is_held_while_a_process_that_inherits_it_lives(flock, tmp_path):
    path = tmp_path / ".lock"
    file = hold_lock(path, 0, flock)
    wait_for_input = [sys.executable, "-c", "input()"]
    with subprocess.Popen(
        wait_for_input, stdin=subprocess.PIPE, pass_fds=[file.fileno()]
    ) as process:
        file.close()
        assert is_held(path, flock)
        process.communicate(b"\n")
    hold_lock(path, 0, flock).close()


def test_reading_a_file_does_not_lock_it(flock, tmp_path):
    path, link = tmp_path / ".lock", tmp_path / "link"
    hold_lock(path, 0, flock).close()
    link.symlink_to(path)
    with path.open():
        assert not is_held(path, flock)
        with hold_lock(link, 0, flock):
            assert is_held(path, flock) and is_held(link, flock)


@pytest.mark.parametrize("name", FLOCKS)
def test_a_file_system_without_locks_is_warned_of(name, tmp_path, caplog):
    hold_lock(tmp_path / ".lock", 0, FLOCKS[name]).close()
    is_held(tmp_path / ".lock", FLOCKS[name])
    assert len(caplog.records) == (name != "flock")


def test_another_error_of_a_lock_is_raised(tmp_path):
    with pytest.raises(OSError, match="Input/output"):
        hold_lock(tmp_path / ".lock", 0, fail_with(errno.EIO))


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
