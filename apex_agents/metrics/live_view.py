"""What a person sees of a run in the terminal: one picture, or a line from time to time."""

import datetime
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from apex_agents.metrics.run_state import RunState, number
from apex_agents.runs.folder import Row

_BARS = "▁▂▃▄▅▆▇█"
_NUM_BARS = 24
_NUM_HOSTS = 3  # That are named.


def render(state: RunState, note: str = "") -> RenderableType:
    """Draw how a run stands.

    Args:
      state: of the run.
      note: shown below everything else.
    """
    parts: list[RenderableType] = [_draw_progress(state)]
    for draw in (_draw_nodes, _draw_learning, _draw_returns):
        parts += [Text(), draw(state)]
    if note:
        parts += [Text(), Text(note, style="yellow")]
    environment = state.run.config.get("environment", {})
    title = f"[bold]{state.run.path.name}[/] · {environment.get('task', '?')}"
    panel = Panel(Group(*parts), title=title, subtitle=_describe_end(state), padding=(0, 1))
    return Padding(panel, (0, 3, 0, 0))  # Room for the ^C that a terminal shows: no line may break.


def format_line(state: RunState) -> str:
    """Say in one line how a run stands."""
    learner, replay = state.learner, state.replay
    evaluation = "none yet"
    if state.evaluations:
        last = state.evaluations[-1]
        evaluation = f"{_return(last)} at learner step {_count(number(last, 'learner_steps'))}"
    return (
        f"[{state.elapsed_seconds():5.0f} s] "
        f"actors {_count(state.actor_speed())} steps/s ({_count(number(replay, 'actor_steps'))}) | "
        f"learner {_speed(number(learner, 'learner_steps_per_second'))} steps/s "
        f"({_count(number(learner, 'learner_steps'))}) | "
        f"{_ratio(number(replay, 'samples_per_insert'))} samples/insert | "
        f"replay {_count(number(replay, 'replay_size'))} | "
        f"evaluation {evaluation}"
    )


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as bars, the newest ones if there are too many; '' without a number."""
    shown = [value for value in values if math.isfinite(value)][-_NUM_BARS:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


class _Bar(NamedTuple):
    """Something that fills up.

    Attributes:
      name: of what fills up.
      done: how much there is.
      total: how much there can be.
      seconds_left: until it is full; NaN if that is not known.
    """

    name: str
    done: float
    total: float
    seconds_left: float = math.nan


def _draw_progress(state: RunState) -> RenderableType:
    """Draw how far the run is from each of its ends, and how full the replay is."""
    table = _make_table(*[""] * 5)
    replay = state.run.settings("agent", "replay")
    bars = _list_limits(state)
    if max_size := replay.get("max_size"):
        bars.append(_Bar("replay", number(state.replay, "replay_size"), max_size))
    for bar in bars:
        share = min(max(bar.done / bar.total, 0.0), 1.0) if math.isfinite(bar.done) else 0.0
        left = ""
        if math.isfinite(bar.seconds_left) and not state.is_over():
            left = f"{datetime.timedelta(seconds=round(bar.seconds_left))} left"
        amount = f"{_count(bar.done)} of {_count(bar.total)}"
        progress = ProgressBar(total=1.0, completed=share, width=20)
        table.add_row(Text(bar.name, style="bold"), progress, f"{share:.0%}", amount, left)
    return table


def _list_limits(state: RunState) -> list[_Bar]:
    run = state.run.settings("run")
    sources = {
        "actor_steps": (state.replay, state.actor_speed()),
        "learner_steps": (state.learner, number(state.learner, "learner_steps_per_second")),
    }
    bars = []
    for name, (row, speed) in sources.items():
        if total := run.get(f"max_{name}"):
            left = (total - number(row, name)) / speed if speed > 0 else math.nan
            bars.append(_Bar(name.replace("_", " "), number(row, name), total, left))
    return bars


def _draw_nodes(state: RunState) -> RenderableType:
    """Draw a row per group of nodes: how many live, and how fast they are."""
    replay, learner = state.replay, state.learner
    cells = {
        "replay": (
            f"{_count(number(replay, 'inserts_per_second'))} added/s",
            f"{_count(number(replay, 'samples_per_second'))} sampled/s",
            f"{_ratio(number(replay, 'samples_per_insert'))} per insert",
        ),
        "learner": (
            f"{_speed(number(learner, 'learner_steps_per_second'))} steps/s",
            f"{_count(number(learner, 'learner_steps'))} steps",
            f"{_share(number(learner, 'data_wait_fraction'))} waiting",
        ),
        "actor": (
            f"{_count(state.actor_speed())} steps/s",
            f"{_count(number(replay, 'actor_steps'))} steps",
            f"in {state.num_envs():,} environments",
        ),
        "evaluator": ("", f"{len(state.evaluations):,} evaluations", ""),
    }
    hosts = {group: _list_hosts(state, group) for group in cells}
    columns = ["", "alive", "restarts", "speed", "", ""]
    table = _make_table(*columns, *["hosts"] * any(hosts.values()), gap=1)
    for group, texts in cells.items():
        name = Text(group, style="bold")
        table.add_row(name, *_describe_health(state, group), *texts, *hosts[group])
    return table


def _list_hosts(state: RunState, group: str) -> list[str]:
    """Say on which hosts a group's nodes are: one cell, or none on a single machine."""
    hosts = sorted({node["host"] for node in _members(state, group) if node.get("host")})
    more = f" and {len(hosts) - _NUM_HOSTS} more" if len(hosts) > _NUM_HOSTS else ""
    return [", ".join(hosts[:_NUM_HOSTS]) + more] if hosts else []


def _members(state: RunState, group: str) -> list[dict[str, Any]]:
    return [node for name, node in state.nodes.items() if name.split("_")[0] == group]


def _describe_health(state: RunState, group: str) -> tuple[Text, Text]:
    """Say how many of a group's nodes live, and how often they were started again."""
    members = _members(state, group)
    if not members:
        return Text("-", style="dim"), Text("-", style="dim")
    alive = sum(bool(node.get("is_alive")) for node in members) * state.is_running
    color = "green" if alive == len(members) else "red"
    restarts = sum(node.get("num_restarts", 0) for node in members)
    return (
        Text(f"{alive}/{len(members)}", style="dim" if state.is_over() else color),
        Text(str(restarts), style="yellow" if restarts else "dim"),
    )


def _draw_learning(state: RunState) -> RenderableType:
    """Draw the newest metrics of the learner, and how old what it and the actors use is."""
    row = state.learner
    metrics = {
        "loss": _value(number(row, "loss")),
        "TD error": _value(number(row, "td_error")),
        "Q-value": _value(number(row, "q_value")),
        "gradient norm": _value(number(row, "gradient_norm")),
        "age of samples": f"{_count(number(row, 'sample_age_steps'))} steps",
        "of parameters": f"{_count(state.parameter_age())} steps",
    }
    table = _make_table(*metrics)
    table.add_row(*metrics.values())
    return table


def _draw_returns(state: RunState) -> RenderableType:
    """Draw the evaluations, and the environments at both ends of the ladder."""
    table = _make_table("return", "last", "best", "")
    evaluations = state.evaluations
    returns = [number(row, "mean_return") for row in evaluations]
    if evaluations:
        best = evaluations[returns.index(max(returns))]
        line = sparkline(returns)
        table.add_row(
            Text("evaluator", style="bold"), _return(evaluations[-1]), _return(best), line
        )
    ends = (
        {max(state.environments): "greediest", min(state.environments): "most exploring"}
        if state.environments
        else {}
    )
    for env_index, title in ends.items():
        row = state.environments[env_index]
        newest = _value(number(row, "episode_return"))
        if "epsilon" in row:
            title = f"{title}, epsilon {_value(number(row, 'epsilon'))}"
        elif "noise_scale" in row:
            title = f"noise scale {_value(number(row, 'noise_scale'))}"
        table.add_row(Text(f"environment {env_index}", style="bold"), newest, "", title)
    if (target := state.run.settings("run").get("target_return")) is not None:
        table.add_row(Text("target", style="bold"), f"{target:g}", "", "")
    if not table.rows:
        table.add_row(Text("no finished episode yet", style="dim"))
    return table


def _describe_end(state: RunState) -> str:
    clock = datetime.timedelta(seconds=round(state.elapsed_seconds()))
    if state.summary is not None:
        return f"{state.summary.get('reason', 'over')} after {clock}"
    return f"running for {clock}" if state.is_running else f"not running, after {clock}"


def _make_table(*headers: str, gap: int = 2) -> Table:
    """Make a table without lines whose columns are as wide as they have to be."""
    has_headers = any(headers)
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", show_header=has_headers)
    for header in headers:
        table.add_column(header, no_wrap=True)
    return table


def _return(row: Row) -> str:
    return f"{number(row, 'mean_return'):.1f} ± {number(row, 'standard_error'):.1f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "-"


def _speed(value: float) -> str:
    return f"{value:,.1f}" if math.isfinite(value) else "-"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def _share(value: float) -> str:
    return f"{value:.0%}" if math.isfinite(value) else "-"


def _value(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"
