"""Tests of file locks, atomic writes and reports of I/O failures; test_full_disk.py has more."""

import errno
import fcntl
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import IO

import pytest

from apex_agents.runs.files import (
    hold_lock,
    is_held,
    read_json,
    remove,
    replace_file,
    try_to_write,
    write_json,
)


def fail_with(number: int) -> Callable[[IO[str], int], None]:
    """Return a `flock` that fails with an error, but for files in memory."""

    def flock(file: IO[str], kind: int) -> None:
        if file.name.startswith("/dev/shm/"):
            return fcntl.flock(file, kind)
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
    before = set(pathlib.Path("/dev/shm").iterdir())
    yield FLOCKS[request.param]
    for path in set(pathlib.Path("/dev/shm").iterdir()) - before:
        if path.name.startswith("apex_agents-"):
            path.unlink()


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


def test_a_file_system_without_locks_is_warned_of(flock, tmp_path, caplog):
    hold_lock(tmp_path / ".lock", 0, flock).close()
    is_held(tmp_path / ".lock", flock)
    assert len(caplog.records) == (flock is not fcntl.flock)


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
    (tmp_path / "file.partial").mkdir()  # A folder is in the way of the new content.
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

    def fail(message: str) -> Callable[[], None]:
        def write() -> None:
            raise OSError(message)

        return write

    with caplog.at_level(logging.INFO):
        assert try_to_write(first, lambda: None)
        assert not try_to_write(first, fail("full"))
        assert not try_to_write(first, fail("still full"))
        assert not try_to_write(second, fail("full, too"))
        assert try_to_write(first, lambda: None) and try_to_write(first, lambda: None)
        assert not try_to_write(first, fail("full again"))
    found = [(record.levelname, record.args) for record in caplog.records]
    assert [(level, *map(str, args)) for level, args in found] == [
        ("WARNING", str(first), "full"),
        ("WARNING", str(second), "full, too"),
        ("INFO", str(first)),
        ("WARNING", str(first), "full again"),
    ]


def test_only_the_named_errors_are_failures_of_writing(tmp_path):
    def fail() -> None:
        raise IndexError

    assert not try_to_write(tmp_path, fail, (OSError, IndexError))
    with pytest.raises(IndexError):
        try_to_write(tmp_path, fail)


@pytest.mark.parametrize("content", ["", "{", "[" * 10_000, "\udcff"])
def test_json_that_is_missing_or_damaged_is_none(content, tmp_path):
    path = tmp_path / "file.json"
    assert read_json(path) is None
    path.write_text(content, errors="surrogateescape")
    assert read_json(path) is None
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_whatever_is_there_is_removed(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    (folder / "inner").mkdir(parents=True)
    file.write_text("")
    for path in (folder, file, tmp_path / "missing"):
        remove(path)
    assert list(tmp_path.iterdir()) == []
