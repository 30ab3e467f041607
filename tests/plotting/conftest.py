"""Folders of runs with given rows."""

import csv
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from apex_agents.runs.folder import RunFolder

DQN = {
    "batch_size": 32,
    "exploration": {"evaluation_epsilon": 0.01},
    "replay": {"max_size": 1000, "samples_per_insert": 8.0},
}


@pytest.fixture
def make_run(tmp_path) -> Callable[..., RunFolder]:
    """Make the folder of a run: rows of `logs/<name>.csv` by name, and fields of its config.

    A row of None is an empty line.
    """

    def make(
        folder: str,
        logs: Mapping[str, Iterable[Mapping[str, Any] | None]] | None = None,
        agent: Mapping[str, Any] = DQN,
        task: str = "catch",
        agent_type: str = "ApexDQNConfig",
        finished: bool = False,
        kwargs: Mapping[str, Any] | None = None,
        **run: Any,
    ) -> RunFolder:
        workdir = tmp_path / folder
        (workdir / "logs").mkdir(parents=True)
        config = {
            "agent_type": agent_type,
            "agent": agent,
            "environment": {"suite": "toy", "task": task, "kwargs": kwargs or {}},
            "run": {"seed": 0, "num_actors": 1, "target_return": None, **run},
        }
        (workdir / "config.json").write_text(json.dumps(config))
        if finished:
            (workdir / "summary.json").write_text('{"finished": true}')
        for name, rows in (logs or {}).items():
            write_rows(workdir / "logs" / f"{name}.csv", list(rows))
        return RunFolder(workdir)

    return make


def write_rows(path: pathlib.Path, rows: list[Mapping[str, Any] | None]) -> None:
    names = sorted(rows[0])
    with path.open("w", newline="") as file:
        lines = [[row[name] for name in names] if row else [] for row in rows]
        csv.writer(file).writerows([names, *lines])
