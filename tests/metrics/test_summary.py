"""Tests of the version of the code in a summary; tests/test_ending.py has the rest of it."""

import pathlib
import subprocess

from apex_agents.metrics.summary import git_commit


def git(folder: pathlib.Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_checkout_and_whether_it_was_changed(tmp_path):
    (tmp_path / "code.py").write_text("1")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message=first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(tmp_path) == commit
    git_commit.cache_clear()
    (tmp_path / "code.py").write_text("2")
    assert git_commit(tmp_path) == f"{commit}-dirty"
    (tmp_path / "inside").mkdir()
    assert git_commit(tmp_path / "inside") is None  # The checkout above is another project's.


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    git(tmp_path, "init")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit(tmp_path) is None
