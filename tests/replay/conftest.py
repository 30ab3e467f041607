"""In-process Reverb servers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import reverb


@pytest.fixture
def serve() -> Iterator[Callable[..., reverb.Client]]:
    """Start a server with the tables given and return a client of it."""
    servers = []

    def start(*tables: reverb.Table) -> reverb.Client:
        servers.append(reverb.Server(list(tables)))
        return reverb.Client(f"localhost:{servers[-1].port}")

    yield start
    for server in servers:
        server.stop()
