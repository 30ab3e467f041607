"""Tests of what is said of a cluster; runs on one are in `tests/cluster`."""

from __future__ import annotations

import pytest

from apex_agents.cluster.host_agent import HostInfo, versions
from apex_agents.cluster.placement import check_versions, last_line, show_all


def test_the_host_with_another_version_is_named():
    ours = versions()
    check_versions(HostInfo("id", "10.0.0.7", versions(), True), ours)
    other = HostInfo("id", "10.0.0.7", {**ours, "tensorflow": "2.16.1"}, True)
    with pytest.raises(ValueError, match=r"The host 10\.0\.0\.7 has tensorflow 2\.16\.1, this one"):
        check_versions(other, ours)
    check_versions(other, {**ours, "tensorflow": "2.16.1"})


def test_hosts_that_are_alike_are_counted():
    small = {"CPU": 4.0, "memory": 1e9, "object_store_memory": 1e9, "node:10.0.0.7": 1.0}
    of_groups = {"bundle_group_0_1f": 1000.0, "CPU_group_0_1f": 1.0, "CPU_group_1f": 1.0}
    large = {**small, **of_groups, "CPU": 8.5, "GPU": 1.0, "memory_host": 1.0}
    shown = show_all([small, large, {**small, "node:10.0.0.8": 1.0}])
    assert shown == "2 x (4 CPU), 1 x (8.5 CPU and 1 GPU and 1 memory_host)"
    assert show_all([{}]) == "1 x (nothing)"


def test_last_line_of_an_error_from_far_away():
    error = RuntimeError(
        "Traceback ...\n  File ...\nModuleNotFoundError: No module named 'reverb'\n"
    )
    assert last_line(error) == "ModuleNotFoundError: No module named 'reverb'"
    assert last_line(ValueError()) == "ValueError"
