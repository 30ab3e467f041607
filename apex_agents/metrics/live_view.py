"""The state of a run in the terminal: a picture of all of it, or one line."""

import datetime
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from apex_agents.metrics import columns
from apex_agents.metrics.run_state import RunState, format_return, number
from apex_agents.runs.csv_file import Row
from apex_agents.runs.workdir import PARAMETER_SERVER

_BARS = "▁▂▃▄▅▆▇█"
_NUM_BARS = 24
_NUM_HOSTS = 3  # Named per role.
_NUM_WAITS = 3  # Described in a line each.


def render(state: RunState, note: str = "") -> RenderableType:
    """Draw the state of a run, with a note below everything else."""
    parts: list[RenderableType] = [_draw_progress(state)]
    for draw in (_draw_nodes, _draw_learning, _draw_returns):
        parts += [Text(), draw(state)]
    waits = "\n".join(_describe_waits(state, _NUM_WAITS))
    texts = [waits, _describe_dropped(state.learner), state.warning(), note]
    parts += [Text(f"\n{text}", style="yellow") for text in texts if text]
    task = state.run.settings("environment").get("task", "?")
    # A `Text`, since brackets in names of folders and in errors would be markup.
    title = Text.assemble((state.run.path.name, "bold"), f" · {task}")
    panel = Panel(Group(*parts), title=title, subtitle=Text(_describe_end(state)), padding=(0, 1))
    # The margin is for the ^C that a terminal shows: it would break a line of the full width.
    return Padding(panel, (0, 3, 0, 0))


def format_line(state: RunState) -> str:
    """Describe the state of a run in one line."""
    learner, replay = state.learner, state.replay
    evaluation = "none yet"
    if state.evaluations:
        last = state.evaluations[-1]
        step = _format(last, columns.LEARNER_STEPS)
        evaluation = f"{_format_return(last)} at learner step {step}"
    waiting = _describe_last_evaluation(state)
    parts = [
        f"[{state.elapsed_seconds():5.0f} s] "
        f"actors {state.actor_speed():,.0f} steps/s ({_format(replay, columns.ACTOR_STEPS)})",
        f"learner {_format(learner, columns.LEARNER_STEPS_PER_SECOND, ',.1f')} steps/s "
        f"({_format(learner, columns.LEARNER_STEPS)})",
    ]
    if state.run.settings("agent", "replay"):  # Actor-critics sample nothing again.
        parts += [
            f"{_format(replay, columns.SAMPLES_PER_INSERT, '.2f')} samples/insert",
            f"replay {_format(replay, columns.REPLAY_SIZE)}",
        ]
    parts.append(f"evaluation {evaluation}{waiting and f'; {waiting}'}")
    return " | ".join([*parts, *_describe_waits(state, 1)])


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as bars, the newest ones if there are too many; '' without a number."""
    shown = [value for value in values if math.isfinite(value)][-_NUM_BARS:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def _draw_progress(state: RunState) -> RenderableType:
    """Draw how far the run is from each of its limits, and how full the replay is."""
    learner_steps = number(state.learner, columns.LEARNER_STEPS)
    learner_speed = number(state.learner, columns.LEARNER_STEPS_PER_SECOND)
    actor_steps = number(state.replay, columns.ACTOR_STEPS)
    replay_size = number(state.replay, columns.REPLAY_SIZE)
    run, replay = state.run.settings("run"), state.run.settings("agent", "replay")
    table = _make_table(*[""] * 5)
    for name, done, total, speed in (
        ("actor steps", actor_steps, run.get("max_actor_steps"), state.actor_speed()),
        ("learner steps", learner_steps, run.get("max_learner_steps"), learner_speed),
        ("seconds", state.elapsed_seconds(), run.get("max_seconds"), 1.0),
        ("replay", replay_size, replay.get("max_size", 0) / replay.get("replicas", 1), math.nan),
    ):
        if not total:
            continue
        share = min(done / total, 1.0) if math.isfinite(done) else 0.0
        left = max((total - done) / speed, 0.0) if speed > 0 else math.nan
        table.add_row(
            Text(name, style="bold"),
            ProgressBar(total=1.0, completed=share, width=20),
            f"{share:.0%}",
            f"{_format_number(done)} of {_format_number(total)}",
            f"{_format_seconds(left)} left" if math.isfinite(left) and not state.is_over() else "",
        )
    return table


def _draw_nodes(state: RunState) -> RenderableType:
    """Draw a row per role of nodes: how many are alive, and their speed."""
    replay = state.replay
    cells = {
        "replay": (
            f"{_format(replay, columns.INSERTS_PER_SECOND)} added/s",
            f"{_format(replay, columns.SAMPLES_PER_SECOND)} sampled/s",
            f"{_format(replay, columns.SAMPLES_PER_INSERT, '.2f')} per insert",
        ),
        **_describe_learners(state),
        "actor": (
            f"{state.actor_speed():,.0f} steps/s",
            f"{_format(replay, columns.ACTOR_STEPS)} steps",
            f"{state.num_envs():,} environments",
        ),
        "evaluator": ("", f"{len(state.evaluations):,} evaluations", ""),
    }
    is_cluster = any(node.get("host") for node in state.nodes.values())
    any_waits = bool(state.waits())
    headers = ["", "alive", "restarts", *["waits"] * any_waits, "speed", "", ""]
    table = _make_table(*headers, *["hosts"] * is_cluster, gap=1)
    roles = dict.fromkeys([*cells, *map(columns.role_of, state.nodes)])
    for role in roles:
        nodes = [node for name, node in state.nodes.items() if columns.role_of(name) == role]
        hosts = [_list_hosts(nodes)] * is_cluster
        waits = [_describe_longest_wait(state, role)] * any_waits
        health = (*_describe_health(state, nodes), *waits)
        texts = cells.get(role, ("", "", ""))
        table.add_row(Text(role, style="bold"), *health, *texts, *hosts)
    return table


def _describe_learners(state: RunState) -> dict[str, tuple[str, str, str]]:
    """Return the cells of the learner, or of several and their parameter server."""
    learner = state.learner
    cells = (
        f"{_format(learner, columns.LEARNER_STEPS_PER_SECOND, ',.1f')} steps/s",
        f"{_format(learner, columns.LEARNER_STEPS)} steps",
        f"{_format(learner, columns.DATA_WAIT_FRACTION, '.0%')} waiting",
    )
    if state.num_learners() == 1:
        return {columns.LEARNER: cells}
    of_each = (
        f"{_format_number(state.gradient_speed(), ',.1f')} gradients/s",
        f"{_format(learner, columns.STALENESS_STEPS, '.2f')} steps stale",
        f"{_format_number(state.learners_waiting(), '.0%')} waiting",
    )
    return {PARAMETER_SERVER: cells, columns.LEARNER: of_each}


def _describe_longest_wait(state: RunState, role: str) -> Text:
    """Return the longest wait of a role's nodes."""
    seconds = [s for name, _, s in state.waits() if columns.role_of(name) == role]
    return Text(f"{seconds[0]} s", style="yellow") if seconds else Text("-", style="dim")


def _describe_waits(state: RunState, most: int) -> list[str]:
    """Return a line for each of the longest waits: the node, the seconds, and the cause."""
    waits = state.waits()
    lines = [f"{name} waits {seconds} s for {what}" for name, what, seconds in waits[:most]]
    more = len(waits) - most
    return [*lines, f"and {more} more wait"] if more > 0 else lines


def _describe_dropped(learner: Row) -> str:
    """Return how many gradients of workers or learners were dropped, '' for none."""
    dropped = number(learner, columns.GRADIENTS_DROPPED)
    return f"gradients dropped, too late or too stale: {dropped:,.0f}" if dropped > 0 else ""


def _list_hosts(nodes: Sequence[dict[str, Any]]) -> str:
    hosts = sorted({node["host"] for node in nodes if node.get("host")})
    more = f" and {len(hosts) - _NUM_HOSTS} more" if len(hosts) > _NUM_HOSTS else ""
    return ", ".join(hosts[:_NUM_HOSTS]) + more


def _describe_health(state: RunState, nodes: Sequence[dict[str, Any]]) -> tuple[Text, Text]:
    """Return how many of a role's nodes are alive, and how often they were restarted."""
    if not nodes:
        return Text("-", style="dim"), Text("-", style="dim")
    alive = sum(bool(node.get("is_alive")) for node in nodes) * state.is_running
    color = "green" if alive == len(nodes) else "red"
    restarts = sum(node.get("num_restarts", 0) for node in nodes)
    return (
        Text(f"{alive}/{len(nodes)}", style="dim" if state.is_over() else color),
        Text(str(restarts), style="yellow" if restarts else "dim"),
    )


def _draw_learning(state: RunState) -> RenderableType:
    """Draw the learner's newest metrics, and the age of its samples and the actors' parameters."""
    row = state.learner
    metrics = {  # The header of each column, and the cell below it.
        "loss": _format(row, columns.LOSS, ".3g"),
        "TD error": _format(row, columns.TD_ERROR, ".3g"),
        "Q-value": _format(row, columns.Q_VALUE, ".3g"),
        "gradient norm": _format(row, columns.GRADIENT_NORM, ".3g"),
        "sample age": f"{_format(row, columns.SAMPLE_AGE_STEPS)} steps",
        "parameter age": f"{_format_number(state.parameter_age())} steps",
    }
    if columns.ENTROPY in row:  # An actor-critic.
        metrics = {
            "loss": metrics["loss"],
            "entropy": _format(row, columns.ENTROPY, ".3g"),
            "value": _format(row, columns.VALUE, ".3g"),
            "gradient norm": metrics["gradient norm"],
            "staleness": f"{_format(row, columns.STALENESS_STEPS, '.2f')} steps",
        }
    table = _make_table(*metrics)
    table.add_row(*metrics.values())
    return table


def _draw_returns(state: RunState) -> RenderableType:
    """Draw the evaluations, and the environments at both ends of the exploration ladder."""
    table = _make_table("return", "last", "best", "")
    if evaluations := state.evaluations:
        returns = [number(row, columns.MEAN_RETURN) for row in evaluations]
        best = evaluations[returns.index(max(returns))]
        cells = _format_return(evaluations[-1]), _format_return(best), sparkline(returns)
        table.add_row(Text("evaluator", style="bold"), *cells)
    if environments := state.environments:
        # The greater the index, the less an environment explores, unless all explore alike.
        for i, end in {max(environments): "lowest", min(environments): "highest"}.items():
            row = environments[i]
            exploration = ""
            for column in {columns.EPSILON, columns.NOISE_SCALE} & row.keys():
                exploration = f"{column.replace('_', ' ')} {_format(row, column, '.3g')}"
                if len({other.get(column) for other in environments.values()}) > 1:
                    exploration = f"{end} {exploration}"
            last = _format(row, columns.EPISODE_RETURN, ".3g")
            table.add_row(Text(f"environment {i}", style="bold"), last, "", exploration)
    if (target := state.run.settings("run").get("target_return")) is not None:
        table.add_row(Text("target", style="bold"), f"{target:g}", "", "")
    if not table.rows:
        table.add_row(Text("no finished episode yet", style="dim"))
    return table


def _describe_end(state: RunState) -> str:
    elapsed = _format_seconds(state.elapsed_seconds())
    if state.summary is not None:
        return f"{state.summary.get('reason', 'over')} after {elapsed}"
    if waiting := _describe_last_evaluation(state):
        return f"{waiting}, {elapsed}"
    return f"running for {elapsed}" if state.is_running else f"not running, after {elapsed}"


def _describe_last_evaluation(state: RunState) -> str:
    """Return a note while the run evaluates its last parameters, '' before that."""
    return "evaluating the last parameters" if state.is_evaluating_last() else ""


def _make_table(*headers: str, gap: int = 2) -> Table:
    """Make a table without lines whose columns are as wide as they have to be."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", show_header=any(headers))
    for header in headers:
        table.add_column(header, no_wrap=True)
    return table


def _format(row: Row, column: str, spec: str = ",.0f") -> str:
    """Format a value of a row; '-' if the row has no such number."""
    return _format_number(number(row, column), spec)


def _format_number(value: float, spec: str = ",.0f") -> str:
    return format(value, spec) if math.isfinite(value) else "-"


def _format_return(row: Row) -> str:
    error = number(row, columns.STANDARD_ERROR)
    text = format_return(number(row, columns.MEAN_RETURN), error, ".1f")
    return text if math.isfinite(error) else f"{text} (episodes: {_format(row, 'num_episodes')})"


def _format_seconds(seconds: float) -> str:
    shown = min(round(seconds), datetime.timedelta.max.days * 24 * 3600)
    return str(datetime.timedelta(seconds=shown))
