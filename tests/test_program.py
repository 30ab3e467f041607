"""Whole runs: started as a user starts them.

What breaks a run, and what it survives, is in tests/faults/.
"""

import json
import re
import subprocess
import sys

import documented_logs
import imageio
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from whole_runs import ROOT, TIMEOUT_SECONDS, Command, apex_dqn

# So that a run lasts long enough for every node to write a row.
STEPS_PER_CALL = 8
LEARNER_STEPS = 38 * STEPS_PER_CALL

PRINTED = (
    "finished",
    "reason",
    "learner_steps",
    "actor_steps",
    "wall_time_seconds",
    "num_episodes",
    "last_return",
    "best_return",
)
NODES = {"replay", "learner", "evaluator", "actor_0", "actor_1"}

# A run in processes of their own, to the end.


@pytest.fixture(scope="module")
def processes_run(start) -> Command:
    return start(
        *apex_dqn(
            "local_mp",
            "--config.run.num_actors=2",
            f"--config.run.max_learner_steps={LEARNER_STEPS}",
            # 8 / 0.1 transitions per learner step.
            "--config.agent.replay.samples_per_insert=0.1",
            "--config.run.evaluation.video_period_seconds=0.1",
        )
    ).finish()


def test_processes_end_with_success_and_leave_nothing(processes_run):
    assert processes_run.exit_code == 0, processes_run.output()
    assert processes_run.left_behind() == []


def test_all_processes_exit_by_themselves_at_the_end(processes_run):
    assert not any(node["is_alive"] for node in processes_run.states().values())
    assert processes_run.exit_codes() == dict.fromkeys(NODES, 0)


def test_summary_is_written_and_printed(processes_run):
    summary = processes_run.summary()
    not_printed = {"date", "versions", "git_commit", "command", "exit_code"}
    assert set(summary) == {*PRINTED, *not_printed}
    assert summary["command"].startswith("apex_dqn.py ")
    assert f"--workdir={processes_run.workdir}" in summary["command"]
    assert (summary["finished"], summary["exit_code"]) == (True, 0)
    assert summary["learner_steps"] == LEARNER_STEPS
    assert summary["actor_steps"] >= 20
    rows = [row for actor in (0, 1) for row in processes_run.rows(f"actor_{actor}")]
    assert summary["num_episodes"] == sum(int(row["episodes"]) for row in rows) > 0
    printed = processes_run.stdout()
    assert str(processes_run.workdir) in printed
    lines = dict(line.strip().split(": ", 1) for line in printed.splitlines() if ": " in line)
    for name in PRINTED:
        shown, value = lines[name.replace("_", " ")], summary[name]
        if isinstance(value, float):
            assert float(shown) == pytest.approx(value, rel=1e-3)
        else:
            assert shown == str(value)


def test_the_last_parameters_are_evaluated(processes_run):
    rows = processes_run.rows("evaluator")
    assert float(rows[-1]["learner_steps"]) == LEARNER_STEPS
    returns = [float(row["mean_return"]) for row in rows]
    summary = processes_run.summary()
    assert (summary["last_return"], summary["best_return"]) == (returns[-1], max(returns))


def test_resolved_config_is_written(processes_run):
    config = json.loads((processes_run.workdir / "config.json").read_text())
    assert config["environment"]["task"] == "catch"  # From the command line.
    assert config["agent"]["replay"]["min_size"] == 20
    assert config["agent"]["replay"]["max_size"] == 50_000  # From the config file.
    assert config["agent"]["max_gradient_norm"] == 40.0  # A default.


def test_every_node_has_a_log_without_errors(processes_run):
    logs = {path.stem: path.read_text() for path in processes_run.workdir.glob("logs/*.log")}
    assert set(logs) == NODES
    assert [name for name, text in logs.items() if "Traceback" in text or "Error" in text] == []


FILES = {  # Files by the names under which `docs/reference/logs.md` documents them.
    "learner": "learner",
    "learner_histograms": "learner_histograms",
    "replay": "replay",
    "evaluator": "evaluator",
    "actor_<i>": "actor_0",
    "actor_<i>_envs": "actor_0_envs",
}


def assert_columns_are_documented(run: Command, agent: str) -> None:
    of_learners = {"learner_<i>": "learner_0"}
    assert {*FILES, *of_learners} == {*documented_logs.FILES}
    files = FILES | (of_learners if agent == "several_dqn" else {})
    if agent == "several_dqn":  # The first one writes what they sample.
        files["learner_histograms"] = "learner_0_histograms"
    found = {name: set(run.rows(file)[0]) for name, file in files.items()}
    assert found == {name: documented_logs.columns(name, agent) for name in files}


def test_columns_are_the_documented_ones(processes_run):
    assert_columns_are_documented(processes_run, "dqn")


def test_rows_of_the_nodes(processes_run):
    learner, evaluator = (processes_run.rows(node)[0] for node in ("learner", "evaluator"))
    assert float(learner["learner_steps"]) == STEPS_PER_CALL
    assert float(learner["priorities_not_finite"]) == float(learner["steps_skipped"]) == 0
    assert float(evaluator["num_episodes"]) == 3
    assert -1 <= float(evaluator["mean_return"]) <= 1
    assert 0 < float(evaluator["learner_steps"]) <= LEARNER_STEPS
    assert float(evaluator["actor_steps"]) >= 20
    assert (processes_run.workdir / "checkpoints" / "best.npz").exists()
    sizes = [float(row["replay_size"]) for row in processes_run.rows("replay")]
    assert sizes == sorted(sizes) and sizes[-1] >= 20
    epsilons = {}
    for actor in (0, 1):
        # The last row of all may hold no end of an episode.
        rows = [r for r in processes_run.rows(f"actor_{actor}") if float(r["episodes"]) > 0]
        assert float(rows[-1]["episode_length"]) == 9  # Catch: 10 rows.
        assert float(rows[-1]["parameters_learner_steps"]) > 0
        environments = processes_run.rows(f"actor_{actor}_envs")
        assert {row["env_index"] for row in environments} == {str(actor), str(actor + 2)}
        epsilons |= {int(row["env_index"]): float(row["epsilon"]) for row in environments}
    # All actors share one ladder. CartPole's settings: 0.5 ** (1 + i / 3 * 3).
    assert epsilons == pytest.approx({0: 0.5, 1: 0.25, 2: 0.125, 3: 0.0625})


def test_videos_of_evaluations(processes_run):
    videos = sorted(processes_run.workdir.glob("videos/*"))
    evaluated = {int(float(row["learner_steps"])) for row in processes_run.rows("evaluator")}
    steps = {int(re.fullmatch(r"learner-(\d{12})\.mp4", path.name)[1]) for path in videos}
    assert steps and steps <= evaluated
    reader = imageio.get_reader(videos[0])
    assert (reader.count_frames(), reader.get_meta_data()["size"]) == (10, (320, 696))


def test_a_run_can_be_evaluated(processes_run, tmp_path):
    command = [sys.executable, str(ROOT / "launch" / "evaluate.py"), "--checkpoint=last"]
    flags = [f"--workdir={processes_run.workdir}", f"--output={tmp_path}", "--episodes=5"]
    result = subprocess.run(
        [*command, *flags], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert (result.returncode, result.stderr) == (0, "")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["task"], summary["episodes"]) == ("catch", 5)
    assert (summary["checkpoint"], summary["learner_steps"]) == ("last", LEARNER_STEPS)


def test_tensorboard_has_the_rows(processes_run):
    everything = {"tensors": 0}  # Not ten of them, which is the default.
    events = EventAccumulator(str(processes_run.workdir / "tensorboard"), everything).Reload()
    steps = [int(row["learner_steps"]) for row in processes_run.rows("learner")]
    assert [event.step for event in events.Tensors("learner/loss")] == steps
    assert {"evaluator/mean_return", "env_3/epsilon", "replay/replay_size"} <= set(
        events.Tags()["tensors"]
    )
    assert "learner/log10_age_steps" in events.Tags()["tensors"]


# A run in threads, to the end.


POINT_MASS = (
    "--config.environment.suite=toy",
    "--config.environment.task=point_mass",
    "--config.agent.batch_size=8",
    "--config.agent.replay.min_size=20",
    "--config.agent.replay.samples_per_insert=2",
    "--config.run.evaluation.num_episodes=3",
)


CATCH = (
    "--config.environment.suite=toy",
    "--config.environment.task=catch",
    "--config.agent.batch_size=8",
    "--config.agent.replay.min_size=20",
    "--config.agent.replay.samples_per_insert=8",
    "--config.run.evaluation.num_episodes=3",
)
# Without --config: the defaults are the pendulum's, and CartPole's without velocities.
SCRIPTS = {"dpg": ("launch/apex_dpg.py", *POINT_MASS), "r2d2": ("launch/r2d2.py", *CATCH)}
# A lock-step of eight environments, and three transitions of an episode that ends, or a sequence of
# a whole episode.
MOST_BEHIND = {"dqn": 8 * 3, "several_dqn": 8 * 3, "dpg": 8 * 3, "r2d2": 8 * 9}
SEVERAL = ("--config.run.num_learners=2", "--config.agent.num_sgd_steps_per_step=1")


@pytest.mark.parametrize("agent", MOST_BEHIND)
def test_threads_end_with_success(start, agent):
    flags = ("--config.run.max_actor_steps=2000", "--config.run.target_return=2")
    if agent in ("dqn", "several_dqn"):
        command = apex_dqn("local_mt", *flags, *(SEVERAL if agent == "several_dqn" else ()))
    else:
        script, *settings = SCRIPTS[agent]
        options = ("--lp_launch_type=local_mt", "--workdir={workdir}")
        command = (script, *options, *settings, *flags)
    run = start(*command).finish()
    assert run.exit_code == 0, run.output()
    assert run.summary()["finished"] is True
    assert 2000 <= run.summary()["actor_steps"] < 2000 + MOST_BEHIND[agent]
    assert run.summary()["learner_steps"] > 0
    last = run.rows("evaluator")[-1]
    assert float(last["learner_steps"]) == run.summary()["learner_steps"]
    assert run.summary()["reason"] in run.stdout()
    assert run.left_behind() == []
    assert_columns_are_documented(run, agent)


# Launchpad's own test launcher, and a builder that writes down what nodes ask for.


@pytest.fixture(scope="module", params=["dqn", "dpg"])
def test_mt_run(start, request) -> Command:
    run = start("tests/programs/run_under_test_mt.py", request.param, "{workdir}").finish()
    run.agent = request.param
    return run


def seen_by(test_mt_run: Command) -> dict:
    return json.loads((test_mt_run.workdir / "seen.json").read_text())


def calls(test_mt_run: Command, name: str) -> list[dict]:
    """Return the arguments of all calls of a name."""
    lines = (test_mt_run.workdir / "calls.jsonl").read_text().splitlines()
    return [call for call in map(json.loads, lines) if call["call"] == name]


def test_program_stops_itself_under_test_mt(test_mt_run):
    assert test_mt_run.exit_code == 0, test_mt_run.output()
    assert test_mt_run.summary()["finished"] is True
    assert test_mt_run.summary()["learner_steps"] > 0
    assert len(test_mt_run.rows("evaluator")) >= 1


def test_program_has_the_groups_of_figure_1(test_mt_run):
    groups = seen_by(test_mt_run)["groups"]
    assert groups == {"replay": 2, "learner": 1, "evaluator": 1, "actor": 2}


def test_actors_divide_environments_and_replays_among_themselves(test_mt_run):
    policies, adders = calls(test_mt_run, "make_policy"), calls(test_mt_run, "make_adders")
    assert [call["num_envs"] for call in policies] == [4, 4]
    for made in (policies, adders):
        assert sorted(call["env_indices"] for call in made) == [[0, 2], [1, 3]]
    assert len({call["address"] for call in adders}) == 2


def test_the_evaluator_has_its_own_policy_rules_and_seed(test_mt_run):
    (policy,) = calls(test_mt_run, "make_evaluation_policy")
    policies = [policy, *calls(test_mt_run, "make_policy")]
    assert policy["num_envs"] == 2
    assert len({call["seed"] for call in policies}) == len(policies) == 3
    # The others are made for their spec only.
    stepped = [call for call in calls(test_mt_run, "make_environment") if call["num_envs"] == 2]
    assert len({call["seed"] for call in stepped}) == len(stepped) == 3
    assert [call["evaluation"] for call in stepped].count(True) == 1


# Weights and biases. Catch: torso 50 -> 16, then 16 -> 16 and 16 -> 3 (advantage) or 1 (value).
# Point mass: policy 1 -> 8 -> 4 -> 1; critic 1 -> 16, with the action 17 -> 2 -> 1.
PARAMETER_SHAPES = {
    "dqn": {
        "network": [
            *([50, 16], [16]),
            *([16, 2 * 16], [2 * 16]),
            *([16, 3], [3]),
            *([16, 1], [1]),
        ]
    },
    "dpg": {
        "policy": [[1, 8], [8], [8, 4], [4], [4, 1], [1]],
        "critic": [[1, 16], [16], [17, 2], [2], [2, 1], [1]],
    },
}


def test_parameters_are_published(test_mt_run):
    published = seen_by(test_mt_run)["parameter_shapes"]
    expected = PARAMETER_SHAPES[test_mt_run.agent]
    assert {name: sorted(shapes) for name, shapes in published.items()} == {
        name: sorted(shapes) for name, shapes in expected.items()
    }


def test_replay_holds_transitions_of_the_environment(test_mt_run):
    rows = [item["transition"] for item in seen_by(test_mt_run)["items"]]
    assert len(rows) == 20
    for row in rows:
        CHECKS[test_mt_run.agent](row)


def check_transition_of_point_mass(row: list[float]) -> None:
    position, action, n_step_return, n_step_discount, learner_steps, steps, next_position = row
    assert n_step_discount == pytest.approx(0.99**steps)
    assert steps in (1, 2, 3)
    assert abs(action) <= 1
    assert learner_steps >= 0
    assert abs(next_position - position) <= 0.25 * steps + 1e-6
    # The last reward is minus the distance at the end, the others are in [-1, 0].
    last = -(0.99 ** (steps - 1)) * abs(next_position)
    assert last - sum(0.99**k for k in range(int(steps) - 1)) - 1e-6 <= n_step_return <= last + 1e-6


def check_transition_of_catch(row: list[float]) -> None:
    action, n_step_return, n_step_discount, learner_steps, num_steps = row[50:55]
    ball, next_ball = _ball_row(row[:50]), _ball_row(row[55:])
    assert learner_steps >= 0
    assert action in (0, 1, 2)
    if next_ball == 9:  # The ball has reached the bottom: the episode is over.
        steps = 9 - ball
        assert 1 <= steps <= 3
        assert num_steps == steps
        # gamma ** (steps - 1) * reward of the last step, 0.99 each.
        assert abs(n_step_return) == pytest.approx({1: 1.0, 2: 0.99, 3: 0.9801}[steps])
        assert n_step_discount == 0
    else:
        assert next_ball - ball == num_steps == 3
        assert n_step_return == 0
        assert n_step_discount == pytest.approx(0.99 * 0.99 * 0.99)


CHECKS = {"dqn": check_transition_of_catch, "dpg": check_transition_of_point_mass}


def _ball_row(observation: list[float]) -> int:
    """Finds the row, of 10, of Catch's ball."""
    assert set(observation) == {0.0, 1.0} and sum(observation) in (1, 2)
    return min(index // 5 for index, value in enumerate(observation) if value)
