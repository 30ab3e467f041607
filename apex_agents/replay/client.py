"""A replay server's tables belong to one run: their names end with its id.

A Reverb server looks the table's name up for every request, and compares nothing else. Clients of
another run, for example of one that had the same port before, thus cannot add to these tables.
"""

from typing import Any

import reverb


class RunClient(reverb.Client):
    """A client for the tables of one run."""

    def __init__(self, server_address: str, run_id: str):
        """Remember the run; `run_id` is '' for tables with plain names."""
        super().__init__(server_address)
        self.run_id = run_id

    def __reduce__(self) -> Any:
        return type(self), (self.server_address, self.run_id)


def run_table_name(name: str, run_id: str) -> str:
    """Return the name that a table has in a run."""
    return f"{name}-{run_id}" if run_id else name


def table_name(client: reverb.Client, name: str) -> str:
    """Return the name that a table has in the client's run; an ordinary client has no run."""
    return run_table_name(name, getattr(client, "run_id", ""))
