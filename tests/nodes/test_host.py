"""Tests of what this machine, or a container on it, has free."""

from __future__ import annotations

import pathlib

import psutil
import pytest

from apex_agents.nodes.host import available_memory, free_in_cgroups


def make_group(
    folder: pathlib.Path, limit: str, used: int, reclaimable: int, version: int = 2
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {reclaimable}\nactive_file 7\n")


def test_no_cgroups(tmp_path):
    assert list(free_in_cgroups(tmp_path, "")) == []
    assert list(free_in_cgroups(tmp_path, "0::/user\n")) == []


# A container sees its own group as the root, whatever the path says.
@pytest.mark.parametrize("path", ["/", "/docker/0123"])
@pytest.mark.parametrize(
    ("limit", "used", "reclaimable", "expected"),
    [
        ("1000", 300, 0, [1000 - 300]),
        ("1000", 300, 50, [1000 - 300 + 50]),  # The cache of files makes room.
        ("1000", 1200, 100, [0]),
        ("max", 300, 50, []),
    ],
)
def test_limit_of_a_container(limit, used, reclaimable, expected, path, tmp_path):
    make_group(tmp_path, limit, used, reclaimable)
    assert list(free_in_cgroups(tmp_path, f"0::{path}\n")) == expected


def test_limits_of_a_group_and_its_parents(tmp_path):
    make_group(tmp_path / "a" / "b", "5000", 100, 0)
    make_group(tmp_path / "a", "3000", 1000, 0)
    make_group(tmp_path, "max", 9000, 0)
    make_group(tmp_path / "c", "10", 0, 0)  # The process is not in this one.
    assert list(free_in_cgroups(tmp_path, "0::/a/b\n")) == [4900, 2000]


def test_version_1(tmp_path):
    make_group(tmp_path / "memory" / "job", "5000", 1000, 200, version=1)
    make_group(tmp_path / "memory", str(2**63 - 4096), 9000, 0, version=1)
    # None of these limit the process: version 2, another group, and outside of the mount.
    make_group(tmp_path / "job", "10", 0, 0)
    make_group(tmp_path / "memory" / "other", "10", 0, 0, version=1)
    make_group(tmp_path, "10", 0, 0, version=1)
    memberships = "9:name=systemd:/job\n5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n"
    assert min(free_in_cgroups(tmp_path, memberships)) == 4200


@pytest.mark.parametrize("content", ["", "many\n", "-"])
def test_a_limit_that_cannot_be_read_is_none(content, tmp_path):
    make_group(tmp_path, "1000", 0, 0)
    (tmp_path / "memory.max").write_text(content)
    assert list(free_in_cgroups(tmp_path, "0::/\n")) == []


def test_memory_of_this_machine():
    assert 0 < available_memory() <= psutil.virtual_memory().total
