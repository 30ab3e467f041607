"""The files and columns that the tables of `docs/reference/logs.md` explain."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = (ROOT / "docs" / "reference" / "logs.md").read_text()
FILES = re.findall(r"^## `logs/(.+)\.csv`$", DOCUMENT, re.MULTILINE)


def columns(name: str, agent: str) -> set[str]:
    """Return the columns of `logs/<name>.csv` of a run of 'dqn', 'dpg' or 'a2c'."""
    other_only = {
        "dqn": "(?:DPG|R2D2|A3C) only:",
        "dpg": "(?:DQN|R2D2|A3C) only:",
        "a2c": "(?:DQN|DPG|R2D2|Ape-X) only:",
    }[agent]
    section = DOCUMENT.partition(f"## `logs/{name}.csv`\n")[2].partition("\n## ")[0]
    return set(re.findall(rf"^\| `(\w+)` (?!.*{other_only})", section, re.MULTILINE))
