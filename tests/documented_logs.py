"""The files and columns that the tables of `docs/reference/logs.md` explain."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = (ROOT / "docs" / "reference" / "logs.md").read_text()
FILES = re.findall(r"^## `logs/(.+)\.csv`$", DOCUMENT, re.MULTILINE)


# What an agent is called where a column is said to be of some agents only.
_NAMES = {
    "dqn": {"Ape-X", "Ape-X with one learner", "DQN"},
    "dpg": {"Ape-X", "Ape-X with one learner", "DPG"},
    "r2d2": {"R2D2", "R2D2 with one learner"},
    "r2d2_staleness": {
        "R2D2",
        "R2D2 with one learner",
        "R2D2 with `agent.measure_staleness`",
    },
    "several_dqn": {"Ape-X", "DQN", "several learners"},
    "several_dpg": {"Ape-X", "DPG", "several learners"},
    "a2c": {"A2C"},
    "gymnasium": {"gymnasium"},
}


def columns(name: str, agent: str) -> set[str]:
    """Return the columns of `logs/<name>.csv` of a run of an agent in `_NAMES`."""
    section = DOCUMENT.partition(f"## `logs/{name}.csv`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` .*?\| (?:([^|:]+) only: )?[^|]*\|$", section, re.MULTILINE)
    return {
        column for column, agents in rows if not agents or _NAMES[agent] & {*agents.split(", ")}
    }
