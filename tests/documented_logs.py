"""The tables of `docs/logs.md`, as `metrics/columns.py` has them; run this file to print them."""

from apex_agents.metrics.columns import COLUMNS


def columns(name: str, agent: str) -> set[str]:
    """Return the columns of `logs/<name>.csv` of a run of 'dqn' or 'dpg'."""
    return {column.name for column in COLUMNS[name] if column.agent.lower() in ("", agent)}


def to_markdown(name: str) -> str:
    """Return the table of `logs/<name>.csv`."""
    lines = ["| column | unit | meaning |", "|---|---|---|"]
    for column in COLUMNS[name]:
        only = f"{column.agent} only: " if column.agent else ""
        lines.append(f"| `{column.name}` | {column.unit} | {only}{column.meaning} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in COLUMNS:
        print(f"## `logs/{name}.csv`\n\n{to_markdown(name)}\n")
