"""Whole runs: started as a user starts them.

What breaks a run, and what it survives, is in tests/faults/.
"""

import json
import os
import re
import socket
import subprocess
import sys

import documented_logs
import imageio
import psutil
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from whole_runs import ENDLESS, LEAVE_WITHIN_SECONDS, ROOT, Command, apex_dqn

# So that a run lasts long enough for every node to write a row.
STEPS_PER_CALL = 8
LEARNER_STEPS = 38 * STEPS_PER_CALL

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
    assert [node["is_alive"] for node in processes_run.states().values()] == [False] * 5
    assert processes_run.exit_codes() == dict.fromkeys(NODES, 0)


def test_summary_is_written_and_printed(processes_run):
    summary = processes_run.summary()
    assert set(summary) == {
        "finished",
        "reason",
        "learner_steps",
        "actor_steps",
        "wall_time_seconds",
    }
    assert summary["finished"] is True
    assert summary["reason"] == f"{LEARNER_STEPS} learner steps done"
    assert summary["learner_steps"] == LEARNER_STEPS
    assert summary["actor_steps"] >= 20
    printed = processes_run.stdout()
    assert f"Run folder: {processes_run.workdir}\n" in printed
    assert f"            reason: {LEARNER_STEPS} learner steps done\n" in printed
    assert f"     learner steps: {LEARNER_STEPS}\n" in printed


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


FILES = {  # By the name under which `docs/logs.md` documents them.
    "learner": "learner",
    "learner_histograms": "learner_histograms",
    "replay": "replay",
    "evaluator": "evaluator",
    "actor_<i>": "actor_0",
    "actor_<i>_envs": "actor_0_envs",
}


def assert_columns_are_documented(run: Command, agent: str) -> None:
    found = {name: set(run.rows(file)[0]) for name, file in FILES.items()}
    assert found == {name: documented_logs.columns(name, agent) for name in FILES}


def test_columns_are_the_documented_ones(processes_run):
    assert_columns_are_documented(processes_run, "dqn")


def test_rows_of_the_learner(processes_run):
    rows = processes_run.rows("learner")
    assert float(rows[0]["learner_steps"]) == STEPS_PER_CALL
    assert float(rows[0]["priorities_not_finite"]) == 0
    assert float(rows[0]["steps_skipped"]) == 0


@pytest.mark.parametrize("actor", [0, 1])
def test_rows_of_the_actors(processes_run, actor):
    row = processes_run.rows(f"actor_{actor}")[-1]
    assert float(row["episodes"]) > 0
    assert float(row["episode_length"]) == 9  # Catch: 10 rows.
    assert float(row["parameters_learner_steps"]) > 0
    environment = processes_run.rows(f"actor_{actor}_envs")
    assert {row["env_index"] for row in environment} == {str(2 * actor), str(2 * actor + 1)}


def test_rows_of_the_evaluator(processes_run):
    row = processes_run.rows("evaluator")[0]
    assert float(row["num_episodes"]) == 3
    assert -1 <= float(row["mean_return"]) <= 1
    assert 0 < float(row["learner_steps"]) <= LEARNER_STEPS
    assert float(row["actor_steps"]) >= 20
    assert (processes_run.workdir / "checkpoints" / "best.npz").exists()


def test_videos_of_evaluations(processes_run):
    videos = sorted(processes_run.workdir.glob("videos/*"))
    evaluated = {int(float(row["learner_steps"])) for row in processes_run.rows("evaluator")}
    # The last evaluation may have been filmed and then not counted.
    steps = [int(re.fullmatch(r"learner-(\d{12})\.mp4", path.name)[1]) for path in videos]
    assert steps and set(steps[:-1]) <= evaluated
    reader = imageio.get_reader(videos[0])
    assert (reader.count_frames(), reader.get_meta_data()["size"]) == (10, (320, 696))


def test_a_run_can_be_evaluated(processes_run, tmp_path):
    command = [sys.executable, str(ROOT / "launch" / "evaluate.py"), "--checkpoint=last"]
    flags = [f"--workdir={processes_run.workdir}", f"--output={tmp_path}", "--episodes=5"]
    result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["task"], summary["episodes"]) == ("catch", 5)
    assert (summary["checkpoint"], summary["learner_steps"]) == ("last", LEARNER_STEPS)


def test_rows_of_the_replay(processes_run):
    sizes = [float(row["replay_size"]) for row in processes_run.rows("replay")]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= 20


def test_tensorboard_has_the_rows(processes_run):
    events = EventAccumulator(str(processes_run.workdir / "tensorboard")).Reload()
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


@pytest.mark.parametrize("agent", ["dqn", "dpg"])
def test_threads_end_with_success(start, agent):
    flags = ("--config.run.max_actor_steps=2000", "--config.run.target_return=2")
    if agent == "dqn":
        command = apex_dqn("local_mt", *flags)
    else:
        # Without --config: the default is the pendulum's.
        options = ("--lp_launch_type=local_mt", "--workdir={workdir}")
        command = ("launch/apex_dpg.py", *options, *POINT_MASS, *flags)
    run = start(*command).finish()
    assert run.exit_code == 0, run.output()
    assert run.summary()["reason"] == "2000 actor steps done"
    assert run.summary()["actor_steps"] >= 2000
    assert run.summary()["learner_steps"] > 0
    assert "            reason: 2000 actor steps done\n" in run.stdout()
    assert run.left_behind() == []
    assert_columns_are_documented(run, agent)


# Launchpad's own test launcher, with a look into the replay while the program runs.

TEST_MT = """
import functools, json, pathlib, sys
from absl.testing import absltest
import launchpad as lp
import reverb
from apex_agents import ApexDPGBuilder, ApexDPGConfig, ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.config import EvaluationConfig, RunConfig
from apex_agents.experiment import Experiment
from apex_agents.program import make_program
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.parameters import ParameterSource

workdir = pathlib.Path(sys.argv.pop())
agent_name = sys.argv.pop()
for folder in ("logs", "checkpoints"):
    (workdir / folder).mkdir(parents=True)


class ProgramTest(absltest.TestCase):
    def test_run(self):
        replay = ReplayConfig(max_size=1000, min_size=20, insert_batch=10)
        if agent_name == "dqn":
            task = "catch"
            builder = ApexDQNBuilder(
                ApexDQNConfig(
                    network="mlp", mlp_hidden_sizes=(16,), stream_hidden_size=16, frame_stack=0,
                    batch_size=8, replay=replay,
                )
            )
        else:
            task = "point_mass"
            builder = ApexDPGBuilder(
                ApexDPGConfig(
                    policy_hidden_sizes=(8, 4), critic_hidden_sizes=(16, 2), batch_size=8,
                    replay=replay,
                )
            )
        # Any evaluation of Catch reaches -1 and any of the point mass -10, and evaluations need a
        # learner step.
        evaluation = EvaluationConfig(num_episodes=2, min_period_seconds=0.1)
        run = RunConfig(
            num_actors=2, num_envs_per_actor=2, target_return=-10.0, evaluation=evaluation
        )
        make_task = functools.partial(make_vector_environment, EnvironmentConfig("toy", task))
        experiment = Experiment(builder, make_task, run, str(workdir))
        program = make_program(experiment)
        groups = {name: len(nodes) for name, nodes in program.groups.items()}
        manager = lp.launch(program, launch_type="test_mt", test_case=self)

        (replay,) = program.groups["replay"]
        client = reverb.Client(replay.reverb_address.resolve())
        source = ParameterSource(client)
        names = ["network"] if agent_name == "dqn" else ["policy", "critic"]
        published = dict(zip(names, source.get_variables(names)))
        samples = client.sample(
            "transitions", num_samples=20, emit_timesteps=False, unpack_as_table_signature=True
        )
        items = [{k: v.ravel().tolist() for k, v in s.data.items()} for s in samples]
        manager.wait()
        seen = {
            "groups": groups,
            "parameter_shapes": {
                name: [list(array.shape) for array in arrays] for name, arrays in published.items()
            },
            "items": items,
        }
        (workdir / "seen.json").write_text(json.dumps(seen))


absltest.main()
"""


@pytest.fixture(scope="module", params=["dqn", "dpg"])
def test_mt_run(start, request) -> Command:
    run = start("-c", TEST_MT, request.param, "{workdir}").finish()
    run.agent = request.param
    return run


def seen_by(test_mt_run: Command) -> dict:
    return json.loads((test_mt_run.workdir / "seen.json").read_text())


def test_program_stops_itself_under_test_mt(test_mt_run):
    assert test_mt_run.exit_code == 0, test_mt_run.output()
    assert test_mt_run.summary()["finished"] is True
    assert test_mt_run.summary()["reason"] == "target return -10 reached"
    assert test_mt_run.summary()["learner_steps"] > 0
    assert len(test_mt_run.rows("evaluator")) >= 1


def test_program_has_the_groups_of_figure_1(test_mt_run):
    groups = seen_by(test_mt_run)["groups"]
    assert groups == {"replay": 1, "learner": 1, "evaluator": 1, "actor": 2}


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


# In a network namespace of its own.


def test_isolated_run_ends_with_success(start, network_namespaces):
    run = start(*apex_dqn("local_mp", "--isolate", "--config.run.max_learner_steps=50")).finish()
    assert run.exit_code == 0, run.output()
    assert run.summary()["reason"] == "50 learner steps done"
    assert run.left_behind() == []


# Prints the host it could connect to, of those in the arguments after the port.
CONNECT = """
import socket, sys
for host in sys.argv[2:]:
    try:
        socket.create_connection((host, int(sys.argv[1])), timeout=5).close()
        print(host)
    except OSError:
        pass
"""


@pytest.mark.fault(
    breaks="whoever connects to the replay of a run with `--isolate`",
    holds="the port is reached from inside of the run only",
)
def test_isolated_replay_is_reached_from_inside_only(start, network_namespaces):
    run = start(*apex_dqn("local_mp", "--isolate", *ENDLESS))
    run.wait_for(run.is_learning)
    port = re.search(r"replay server on port (\d+)", run.log("replay").read_text())[1]
    internet = (socket.AF_INET, socket.AF_INET6)
    addresses = [a for interface in psutil.net_if_addrs().values() for a in interface]
    hosts = sorted({"localhost"} | {a.address for a in addresses if a.family in internet})
    connect = [sys.executable, "-c", CONNECT, port]
    outside = subprocess.run([*connect, *hosts], capture_output=True, text=True, check=True)
    assert outside.stdout == ""
    # The same from inside, which shows that there was something to be reached.
    enter = ["nsenter", f"--target={run.pid}", "--user", "--preserve-credentials", "--net"]
    inside = subprocess.run(
        [*enter, *connect, "127.0.0.1"], capture_output=True, text=True, check=True
    )
    assert inside.stdout == "127.0.0.1\n"

    files = [run.workdir, *run.workdir.rglob("*")]
    assert {(file.stat().st_uid, file.stat().st_gid) for file in files} == {
        (os.getuid(), os.getgid())
    }
    run.press_ctrl_c()
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.summary()["reason"] == "stopped from outside"
    assert "Traceback" not in run.output()
