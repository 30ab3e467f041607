"""Tests of the live view: every number is in its place."""

import io
import re

import pytest
from rich.console import Console

from apex_agents.metrics.live_view import format_line, render, sparkline
from apex_agents.metrics.run_state import RunState
from apex_agents.runs.folder import RunFolder

GROUPS = ("replay", "learner", "actor", "evaluator")


def read_state(folder) -> RunState:
    """Read a run just when its newest row was written."""
    state = RunState(RunFolder(folder), lambda: 0.0)
    state.refresh()
    return state


def draw(folder, width: int = 83, note: str = "") -> list[str]:
    state = read_state(folder)
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(render(state, note))
    return console.file.getvalue().splitlines()


def line_with(lines: list[str], pattern: str) -> str:
    (line,) = [line for line in lines if re.search(pattern, line)]
    return " ".join(line.strip(" │").split())


@pytest.fixture
def lines(written_run) -> list[str]:
    written_run.append_everything()
    alive = {"pid": 1, "is_alive": True, "num_restarts": 0}
    nodes = dict.fromkeys(("replay", "learner", "evaluator", "actor_0"), alive)
    dead = {"pid": None, "is_alive": False, "num_restarts": 2}
    written_run.write_json("nodes.json", {**nodes, "actor_1": dead})
    return draw(written_run.folder, note="Stopping.")


@pytest.mark.parametrize(
    ("begins_with", "rest"),
    [
        ("actor steps", "25% 2,500 of 10,000 0:00:30 left"),  # 7 500 more at 250 steps/s.
        ("replay +━", "25% 1,000 of 4,000"),
        ("replay +1/1", "0 250 added/s 4,000 sampled/s 15.50 per insert"),
        ("learner", "1/1 0 20.5 steps/s 300 steps 12% waiting"),
        ("actor +1", "/2 2 250 steps/s 2,500 steps 8 environments"),
        ("evaluator 1/1", "0 3 evaluations"),
        ("0.25", "0.5 42 3 77 steps 50 steps"),
        ("evaluator +50", "± 1.5 90.0 ± 1.5 ▁█▅"),
        ("environment 7", "27 lowest epsilon 0.00066"),
        ("environment 0", "20 highest epsilon 0.4"),
        ("target", "475"),
        ("Stopping.", ""),
    ],
)
def test_every_number_is_in_its_place(begins_with, rest, lines):
    found = line_with(lines, f"^│ {begins_with}")
    assert found.endswith(rest)


@pytest.fixture
def waiting_run(written_run):
    written_run.append_everything()
    status = {"pid": 1, "is_alive": True, "num_restarts": 0, "waits_for": "", "waiting_seconds": 0}
    waits = {
        "actor_0": ("environment 3 to return from step", 60),
        "actor_1": ("environment 0 to return from reset", 120),
        "learner": ("a batch", 30),
        "evaluator": ("an answer", 10),
        "replay": ("", 0),
    }
    names = ("waits_for", "waiting_seconds")
    nodes = {n: {**status, **dict(zip(names, wait, strict=True))} for n, wait in waits.items()}
    dead = {**nodes["actor_1"], "is_alive": False}
    written_run.write_json("nodes.json", {**nodes, "actor_2": dead})
    return written_run


def test_the_longest_waits_have_a_line_each_and_a_column(waiting_run):
    lines = draw(waiting_run.folder, width=120)
    column = [line_with(lines, rf"^│ {group} +\d/\d ").split()[3:5] for group in GROUPS]
    assert column == [["-", "250"], ["30", "s"], ["120", "s"], ["10", "s"]]
    named = [line.strip(" │") for line in lines if re.search(r" waits? \d+ s |more wait", line)]
    assert named == [
        "actor_1 waits 120 s for environment 0 to return from reset",
        "actor_0 waits 60 s for environment 3 to return from step",
        "evaluator waits 10 s for an answer",
        "and 1 more wait",  # The learner, which may wait for what the others give.
    ]


def test_the_longest_waits_are_in_the_plain_line_of_a_run_that_is_not_over(waiting_run):
    parts = format_line(read_state(waiting_run.folder)).split(" | ")
    assert parts[-2:] == [
        "actor_1 waits 120 s for environment 0 to return from reset",
        "and 3 more wait",
    ]
    waiting_run.end()
    assert "waits 120 s" not in format_line(read_state(waiting_run.folder))


def test_hosts_of_a_cluster_are_named(written_run, lines):
    assert "hosts" not in " ".join(lines)
    nodes = {"replay": "big", "learner": "gpu"} | {f"actor_{i}": f"host{i % 5}" for i in range(9)}
    status = {"pid": 1, "is_alive": True, "num_restarts": 0}
    written_run.write_json("nodes.json", {n: {**status, "host": h} for n, h in nodes.items()})
    lines = draw(written_run.folder, width=120)
    assert line_with(lines, "^│ learner").endswith("12% waiting gpu")
    assert line_with(lines, "^│ actor +9/9").endswith(
        "8 environments host0, host1, host2 and 2 more"
    )
    assert line_with(lines, "^│ evaluator -").endswith("evaluations")


def test_every_role_of_the_nodes_has_a_row(written_run):
    status = {"pid": 1, "is_alive": True, "num_restarts": 0}
    names = ["replay", "parameter_server", "learner_0", "learner_1"]
    dead = {"learner_1": {**status, "is_alive": False}}
    written_run.write_json("nodes.json", {**dict.fromkeys(names, status), **dead})
    written_run.configure("run", num_learners=2)
    written_run.append("learner_0", wall_time_seconds=20.0, learner_steps=3)  # Without a speed.
    lines = draw(written_run.folder)
    assert " - gradients/s" in line_with(lines, "^│ learner +1/2")
    assert line_with(lines, "^│ parameter_server +1/1")


@pytest.mark.parametrize("dropped", [0, 1234])
def test_gradients_that_were_dropped_have_a_line(dropped, written_run):
    written_run.append("learner", wall_time_seconds=20.0, gradients_dropped=dropped)
    text = "\n".join(draw(written_run.folder))
    assert text.count("gradients dropped, too late or too stale: 1,234") == bool(dropped)
    assert text.count("dropped") == bool(dropped)


def test_frame_says_which_run_and_how_it_stands(written_run):
    written_run.append_everything()
    assert "some_run · CartPole-v1" in draw(written_run.folder)[0]
    assert "running for 0:00:20" in draw(written_run.folder)[-1]
    written_run.configure("run", max_actor_steps=2500)
    assert "evaluating the last parameters" in draw(written_run.folder)[-1]
    written_run.end()
    assert "target return 475 reached after 0:00:20" in draw(written_run.folder)[-1]
    (written_run.folder / "summary.json").unlink()
    assert "not running, after 0:00:20" in draw(written_run.folder)[-1]


def test_no_line_is_as_wide_as_the_terminal(written_run):
    written_run.append_everything()
    assert {len(line.rstrip()) for line in draw(written_run.folder, width=80)} == {77}


@pytest.mark.parametrize("config", [{}, {"run": None, "agent": 3}, {"run": {"num_actors": "many"}}])
def test_a_run_of_which_nothing_is_known_can_be_shown(config, written_run):
    written_run.write_json("config.json", config)
    assert "no finished episode yet" in "".join(draw(written_run.folder))


def test_without_a_replay_the_line_has_no_numbers_of_it(written_run):
    written_run.configure("agent", replay={})
    written_run.append_everything()
    line = format_line(read_state(written_run.folder))
    assert "| learner 20.5 steps/s (300) | evaluation 50.0" in line


@pytest.mark.parametrize(
    ("limits", "pattern", "line"),
    [
        ({"max_actor_steps": 2000}, "^│ actor steps", "100% 2,500 of 2,000 0:00:00 left"),
        ({"max_seconds": 10_000}, "^│ seconds", "seconds 0% 20 of 10,000 2:46:20 left"),
        ({"max_seconds": 10**18}, "^│ seconds", "999999999 days, 0:00:00 left"),
        ({"max_actor_steps": 10**18}, "^│ actor steps", "999999999 days, 0:00:00 left"),
    ],
)
def test_the_time_that_is_left(limits, pattern, line, written_run):
    written_run.configure("run", **limits)
    written_run.append_everything()
    assert line_with(draw(written_run.folder, width=120), pattern).endswith(line)


def test_names_and_reasons_are_no_markup(written_run):
    written_run.append_everything()
    reason = "Node learner failed: KeyError: [/data/x] of [nan, nan]"
    written_run.end(reason)
    assert reason in draw(written_run.folder)[-1]
    folder = written_run.folder.rename(written_run.folder.with_name("run[old]"))
    assert "run[old] · CartPole-v1" in draw(folder)[0]


@pytest.mark.parametrize(
    ("column", "values", "texts"),
    [
        ("noise_scale", [1.0, 0.5, 0.25], ["0 highest noise scale 1", "2 lowest noise scale 0.25"]),
        ("epsilon", [0.01, 0.01], ["0 epsilon 0.01", "1 epsilon 0.01"]),  # All explore alike.
    ],
)
def test_environments_at_the_ends_of_the_ladder(column, values, texts, written_run):
    for index, value in enumerate(values):
        row = {"env_index": index, column: value, "episode_return": index}
        written_run.append("actor_0_envs", **row)
    lines = draw(written_run.folder)
    for index, text in ((0, texts[0]), (len(values) - 1, texts[1])):
        assert line_with(lines, f"environment {index}") == f"environment {index} {text}"


def test_a_transition_that_is_several_items_fills_the_replay_sooner(written_run):
    written_run.configure("agent", replay={"max_size": 4000, "replicas": 8})
    written_run.append("replay", wall_time_seconds=1.0, replay_size=500)
    assert "100% 500 of 500" in line_with(draw(written_run.folder), "replay +━")


def test_line(written_run):
    assert format_line(read_state(written_run.folder)).endswith(
        "actors 0 steps/s (-) | learner - steps/s (-) | - samples/insert | replay - | "
        "evaluation none yet"
    )
    written_run.append_everything()
    assert format_line(read_state(written_run.folder)) == (
        "[   20 s] actors 250 steps/s (2,500) | learner 20.5 steps/s (300) | "
        "15.50 samples/insert | replay 1,000 | evaluation 50.0 ± 1.5 at learner step 300"
    )


def test_returns_of_few_episodes_have_no_error(written_run):
    row = {"mean_return": 50.0, "standard_error": float("nan"), "num_episodes": 2}
    written_run.append("evaluator", learner_steps=300, **row)
    line = format_line(read_state(written_run.folder))
    assert line.endswith("evaluation 50.0 (episodes: 2) at learner step 300")
    assert line_with(draw(written_run.folder, width=120), r"50\.0 \(episodes: 2\)")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], ""),
        ([3.0], "▁"),
        ([0.0, 7.0, 3.0, float("nan")], "▁█▄"),
        ([9.0, *[0.0] * 23, 1.0], "▁" * 23 + "█"),  # The newest 24.
    ],
)
def test_sparkline(values, expected):
    assert sparkline(values) == expected


def test_a_warning_is_drawn_as_long_as_it_holds(written_run):
    written_run.append("learner", learner_steps=1, priorities_at_bound_fraction=0.9)
    assert line_with(draw(written_run.folder, width=120), "90% of the new priorities")
    written_run.append("learner", learner_steps=2, priorities_at_bound_fraction=0.1)
    assert "new priorities" not in "".join(draw(written_run.folder, width=120))
