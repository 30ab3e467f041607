"""A replay server in a process of its own, for the benchmarks."""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import reverb
from measuring import pin_to_core


class ReplayServer(NamedTuple):
    """A replay server in another process.

    Attributes:
      address: address for clients.
      pid: id of the process.
    """

    address: str
    pid: int


@contextlib.contextmanager
def replay_server(
    make_tables: Callable[..., list[reverb.Table]], *args: Any, core: int | None = None
) -> Iterator[ReplayServer]:
    """Serve tables for as long as the context lasts.

    Args:
      make_tables: function of a module, called in the server's process.
      *args: arguments of `make_tables`.
      core: index of the core on which the server is kept; None for all cores.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, core, make_tables, args), daemon=True)
    process.start()
    there.close()  # If the server dies, the pipe then ends and `recv` raises.
    try:
        yield ReplayServer(f"localhost:{here.recv()}", process.pid or 0)
    finally:
        process.kill()
        process.join()


def leave_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _serve(
    connection: Connection,
    core: int | None,
    make_tables: Callable[..., list[reverb.Table]],
    args: tuple[Any, ...],
) -> None:
    leave_with_parent()
    if core is not None:
        pin_to_core(core)
    server = reverb.Server(make_tables(*args))
    connection.send(server.port)
    server.wait()
    os._exit(0)
