"""Commands on a cluster of hosts that are namespaces of this machine."""

from __future__ import annotations

import cluster_hosts
import pytest
from cluster_hosts import Hosts
from cluster_runs import add_host


@pytest.fixture(scope="module")
def hosts(request):
    """The hosts in the module's `HOSTS`, by their names: the options of `ray start` on each."""
    if reason := cluster_hosts.missing():
        pytest.skip(reason)
    hosts = Hosts()
    try:
        for name, options in request.module.HOSTS.items():
            add_host(hosts, name, *options)
        yield hosts
    finally:
        hosts.close()


@pytest.fixture(scope="package", autouse=True)
def no_token():
    """Keeps Ray from taking a token that it finds in the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        yield


@pytest.fixture(scope="module")
def token(no_token):
    """A secret that the cluster and its commands share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef0123456789abcdef")
        yield


@pytest.fixture(scope="module")
def enter(hosts) -> list[str]:
    """Commands run on host A."""
    return hosts.head.space.enter()
