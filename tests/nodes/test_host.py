"""Tests of what this machine, or a container on it, has free."""

from __future__ import annotations

import pathlib

import psutil
import pytest

from apex_agents.nodes import host
from apex_agents.nodes.host import available_memory, free_in_cgroups, memory_warning
from apex_agents.replay.tables import DataFlow

NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def make_group(
    folder: pathlib.Path, limit: str, used: int, reclaimable: int = 0, version: int = 2
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, used_name, reclaimable_name = NAMES[version]
    (folder / limit_name).write_text(limit)
    (folder / used_name).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{reclaimable_name} {reclaimable}\nactive_file 7")


@pytest.mark.parametrize(
    ("limit", "used", "reclaimable", "expected"),
    [
        ("1000\n", 300, 0, [1000 - 300]),
        ("1000\n", 300, 50, [1000 - 300 + 50]),  # The cache of files makes room.
        ("1000\n", 1200, 100, [0]),
        ("max\n", 300, 50, []),
        ("", 0, 0, []),  # These cannot be read.
        ("many\n", 0, 0, []),
    ],
)
def test_limit_of_a_container(limit, used, reclaimable, expected, tmp_path):
    assert list(free_in_cgroups(tmp_path, "")) == []
    assert list(free_in_cgroups(tmp_path, "0::/user\n")) == []
    make_group(tmp_path, limit, used, reclaimable)
    for path in ("/", "/docker/0123"):  # It sees its own group as the root, whatever the path says.
        assert list(free_in_cgroups(tmp_path, f"0::{path}\n")) == expected


def test_limits_of_a_group_and_its_parents(tmp_path):
    make_group(tmp_path / "a" / "b", "5000", 100)
    make_group(tmp_path / "a", "3000", 1000)
    make_group(tmp_path, "max", 9000)
    make_group(tmp_path / "c", "10", 0)  # The process is not in this one.
    assert list(free_in_cgroups(tmp_path, "0::/a/b\n")) == [4900, 2000]


def test_version_1(tmp_path):
    make_group(tmp_path / "memory" / "job", "5000", 1000, 200, version=1)
    make_group(tmp_path / "memory", str(2**63 - 4096), 9000, version=1)
    # None of these limit the process: version 2, another group, and outside of the mount.
    make_group(tmp_path / "job", "10", 0)
    make_group(tmp_path / "memory" / "other", "10", 0, version=1)
    make_group(tmp_path, "10", 0, version=1)
    memberships = "9:name=systemd:/job\n5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n"
    assert min(free_in_cgroups(tmp_path, memberships)) == 4200


def test_memory_of_this_machine_and_of_its_container(tmp_path, monkeypatch):
    assert 0 < available_memory() <= psutil.virtual_memory().total
    make_group(tmp_path / "cgroup", "1000", 300)
    (tmp_path / "memberships").write_text("0::/\n")
    monkeypatch.setattr(host, "_CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(host, "_CGROUPS_OF_THIS_PROCESS", tmp_path / "memberships")
    assert available_memory() == 700


WARNINGS = [
    (
        (2_000_000, 4_830_000_000, 3_140_000_000),
        "The replay will grow to about 4.8 GB (2,000,000 items of about 2.4 kB), and this machine "
        "has 3.1 GB of memory free: lower agent.replay.max_size to 1,000,000 or less, or use a "
        "machine with more memory.",  # 0.8 * 3.14e9 / 2415 = 1.04 million
    ),
    (
        (50_000, 75_000_000, 32_000_000),
        "The replay will grow to about 75.0 MB (50,000 items of about 1.5 kB), and this machine "
        "has 32.0 MB of memory free: lower agent.replay.max_size to 17,000 or less, or use a "
        "machine with more memory.",  # 0.8 * 32e6 / 1500 = 17 067
    ),
    (
        (50_000, 75_000_000, 1_500_000),
        "The replay will grow to about 75.0 MB (50,000 items of about 1.5 kB), and this machine "
        "has 1.5 MB of memory free: use a machine with more memory.",  # For 800 items.
    ),
    ((1000, 800, 1000), None),  # A fifth of the memory is reserved for other processes.
]


@pytest.mark.parametrize(("sizes", "expected"), WARNINGS)
def test_the_warning_says_what_to_do(sizes, expected):
    max_size, estimate, available = sizes
    flow = DataFlow(max_size=max_size, max_size_field="agent.replay.max_size", min_size=1_000)
    assert memory_warning(flow, estimate, available) == expected


def test_the_least_size_of_a_replay_counts_transitions_and_its_size_items():
    flow = DataFlow(
        replicas=8, max_size=50_000, max_size_field="agent.replay.max_size", min_size=6_250
    )
    warning = memory_warning(flow, estimate=75_000_000, available=32_000_000)  # For 17,000 items.
    assert warning is not None and "lower agent.replay.max_size" not in warning
    warning = memory_warning(flow._replace(min_size=2_000), 75_000_000, 32_000_000)
    assert warning is not None and "lower agent.replay.max_size to 17,000" in warning
