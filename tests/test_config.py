"""Tests of what nodes take of a cluster's hosts."""

from __future__ import annotations

import pytest

from apex_agents.config import ClusterConfig, HostShare


@pytest.mark.parametrize(
    ("share", "resources"),
    [
        (HostShare(), {"CPU": 1.0}),
        (HostShare(num_cpus=0.0), {}),
        (HostShare(num_cpus=8.0, num_gpus=1.0), {"CPU": 8.0, "GPU": 1.0}),
        (
            HostShare(custom="memory_host=1, fast=0.25"),
            {"CPU": 1.0, "memory_host": 1, "fast": 0.25},
        ),
        (HostShare(custom="spare=0,"), {"CPU": 1.0}),
    ],
)
def test_resources(share, resources):
    share.validate("run.cluster.actor.")
    assert share.resources() == resources


def test_groups_have_shares_of_their_own():
    cluster = ClusterConfig(learner=HostShare(num_gpus=1.0))
    assert cluster.share("learner").resources() == {"CPU": 1.0, "GPU": 1.0}
    assert cluster.share("actor").resources() == {"CPU": 1.0}
