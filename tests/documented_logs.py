"""The columns of the CSV files, as `docs/logs.md` lists them."""

import pathlib
import re

_TEXT = (pathlib.Path(__file__).resolve().parent.parent / "docs" / "logs.md").read_text()


def columns(name: str, agent: str) -> set[str]:
    """Return the columns of `logs/<name>.csv` of a run of 'dqn' or 'dpg'."""
    section = _TEXT.partition(f"## `logs/{name}.csv`\n")[2].partition("\n## ")[0]
    other = {"dqn": "DPG only", "dpg": "DQN only"}[agent]
    rows = [line for line in section.splitlines() if line.startswith("| `") and other not in line]
    return {column for row in rows for column in re.findall(r"`(\w+)`", row.split("|")[1])}
