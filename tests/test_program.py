"""Whole runs: started as a user starts them, ended in every way a run can end.

Every command gets a session of its own, so that what it leaves behind can be found afterwards.
"""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Generous: start-up alone takes 10 s of two quiet cores.
TIMEOUT_SECONDS = 150
LEAVE_WITHIN_SECONDS = 10

CATCH = (
    "--config.environment.suite=toy",
    "--config.environment.task=catch",
    "--config.agent.batch_size=8",
    "--config.agent.mlp_hidden_sizes=(16,)",
    "--config.agent.stream_hidden_size=16",
    "--config.agent.replay.min_size=20",
    "--config.agent.replay.insert_batch=10",
    "--config.run.lanes_per_actor=2",
    "--config.run.evaluation.num_episodes=3",
    "--config.run.evaluation.min_period_seconds=0.5",
)
ENDLESS = ("--config.run.max_actor_steps=1000000000",)
# Of the learner's steps, so that a run lasts long enough for every node to write a row.
LEARNER_STEPS = 300

LEARNER_COLUMNS = {
    "learner_steps",
    "learner_steps_per_second",
    "loss",
    "td_error",
    "q_value",
    "gradient_norm",
    "steps_skipped",
    "waiting_for_data",
    "priorities_not_finite",
    "actor_steps",
    "replay_size",
    "samples_per_insert",
    "wall_time_seconds",
}
ACTOR_COLUMNS = {
    "actor_steps_per_second",
    "episodes",
    "episode_return",
    "clipped_return",
    "episode_length",
    "transitions",
    "transitions_not_finite",
    "environment_failures",
    "parameters_learner_steps",
    "wall_time_seconds",
}
EVALUATOR_COLUMNS = {
    "mean_return",
    "standard_error",
    "num_episodes",
    "learner_steps",
    "actor_steps",
    "wall_time_seconds",
}


class Command:
    """A command in a session of its own, and what it printed, in files."""

    def __init__(self, folder: pathlib.Path, *argv: str):
        self.workdir = folder / "run"
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        with self._stdout.open("w") as out, self._stderr.open("w") as err:
            self._process = subprocess.Popen(
                [sys.executable, *argv],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.exit_code: int | None = None
        self.ended_at = 0.0

    def finish(self, timeout: float = TIMEOUT_SECONDS) -> "Command":
        """Waits for the end."""
        try:
            self.exit_code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {timeout} s: {self.left_behind()}\n{self.output()}")
        self.ended_at = time.time()
        return self

    def wait_for(self, condition) -> None:
        """Waits until the run has got somewhere."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def signal(self, number: int) -> None:
        """Signals the launcher alone."""
        self._process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Does what a terminal does: every process of the group gets SIGINT."""
        os.killpg(self._process.pid, signal.SIGINT)

    def processes(self) -> list[psutil.Process]:
        """Lists what lives of the session."""
        alive = []
        for process in psutil.process_iter():
            try:
                ours = os.getsid(process.pid) == self._process.pid
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return alive

    def left_behind(self) -> list[list[str]]:
        """Lists what is still there a moment after the end."""
        deadline = time.monotonic() + 2
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return [process.cmdline() for process in self.processes()]

    def node_process(self, title: str) -> psutil.Process:
        """Finds the Python process of a node by the title that Launchpad gives its output."""
        for process in self.processes():
            argv = process.cmdline()
            if any(arg.endswith("decorate_output") for arg in argv) and title in argv:
                (node,) = [c for c in process.children() if "process_entry" in str(c.cmdline())]
                return node
        raise AssertionError(f"no node {title}")

    def close(self) -> None:
        """Ends what a failed test would leave behind."""
        for process in self.processes():
            process.kill()
        self._process.wait()

    def output(self) -> str:
        return self.stdout() + self._stderr.read_text()

    def stdout(self) -> str:
        return self._stdout.read_text()

    def log(self, node: str) -> pathlib.Path:
        return self.workdir / "logs" / f"{node}.log"

    def rows(self, node: str) -> list[dict[str, str]]:
        path = self.workdir / "logs" / f"{node}.csv"
        return list(csv.DictReader(path.open())) if path.exists() else []

    def summary(self) -> dict:
        return json.loads((self.workdir / "summary.json").read_text())

    def is_learning(self) -> bool:
        return bool(self.rows("learner"))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts commands and sees to it that none outlives the tests."""
    commands = []

    def start_command(*argv: str) -> Command:
        folder = tmp_path_factory.mktemp("command")
        arguments = [arg.replace("{workdir}", str(folder / "run")) for arg in argv]
        commands.append(Command(folder, *arguments))
        return commands[-1]

    yield start_command
    for command in commands:
        command.close()


def apex_dqn(launch_type: str, *flags: str) -> tuple[str, ...]:
    return (
        "launch/apex_dqn.py",
        f"--lp_launch_type={launch_type}",
        "--config=configs/apex_dqn_cartpole.py",
        "--workdir={workdir}",
        *CATCH,
        *flags,
    )


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
        )
    ).finish()


def test_processes_end_with_success_and_leave_nothing(processes_run):
    assert processes_run.exit_code == 0, processes_run.output()
    assert processes_run.left_behind() == []


def test_processes_end_soon_after_the_last_learner_step(processes_run):
    last_step = (processes_run.workdir / "summary.json").stat().st_mtime
    assert processes_run.ended_at - last_step < LEAVE_WITHIN_SECONDS


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
    assert set(logs) == {"replay", "learner", "evaluator", "actor_0", "actor_1"}
    assert [name for name, text in logs.items() if "Traceback" in text or "Error" in text] == []


def test_learner_has_rows_with_the_documented_columns(processes_run):
    rows = processes_run.rows("learner")
    assert set(rows[0]) >= LEARNER_COLUMNS
    assert float(rows[0]["learner_steps"]) == 1
    assert float(rows[0]["priorities_not_finite"]) == 0
    assert float(rows[0]["steps_skipped"]) == 0


@pytest.mark.parametrize("node", ["actor_0", "actor_1"])
def test_actors_have_rows_with_the_documented_columns(processes_run, node):
    rows = processes_run.rows(node)
    assert set(rows[0]) == ACTOR_COLUMNS
    assert float(rows[-1]["episodes"]) > 0
    assert float(rows[-1]["episode_length"]) == 9  # Catch: 10 rows.
    assert float(rows[-1]["parameters_learner_steps"]) > 0


def test_evaluator_has_rows_with_the_documented_columns(processes_run):
    rows = processes_run.rows("evaluator")
    assert set(rows[0]) == EVALUATOR_COLUMNS
    assert float(rows[0]["num_episodes"]) == 3
    assert -1 <= float(rows[0]["mean_return"]) <= 1
    assert 0 < float(rows[0]["learner_steps"]) <= LEARNER_STEPS
    assert float(rows[0]["actor_steps"]) >= 20
    assert (processes_run.workdir / "checkpoints" / "best.npz").exists()


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


# Launchpad's own test launcher, with a look into the replay while the program runs.

TEST_MT = """
import functools, json, pathlib, sys
from absl.testing import absltest
import launchpad as lp
import reverb
from apex_agents import ApexDPGBuilder, ApexDPGConfig, ApexDQNBuilder, ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_lanes
from apex_agents.experiment import EvaluationConfig, Experiment, RunConfig
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
            num_actors=2, lanes_per_actor=2, target_return=-10.0, evaluation=evaluation
        )
        make_task = functools.partial(make_lanes, EnvironmentConfig("toy", task))
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
            *([16, 16], [16], [16, 3], [3]),
            *([16, 16], [16], [16, 1], [1]),
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
    position, action, n_step_return, n_step_discount, next_position = row
    (steps,) = [k for k in (1, 2, 3) if n_step_discount == pytest.approx(0.99**k)]
    assert abs(action) <= 1
    assert abs(next_position - position) <= 0.25 * steps + 1e-6
    # The last reward is minus the distance at the end, the others are in [-1, 0].
    last = -(0.99 ** (steps - 1)) * abs(next_position)
    assert last - sum(0.99**k for k in range(steps - 1)) - 1e-6 <= n_step_return <= last + 1e-6


def check_transition_of_catch(row: list[float]) -> None:
    observation, (action, n_step_return, n_step_discount) = row[:50], row[50:53]
    ball, next_ball = _ball_row(observation), _ball_row(row[53:])
    assert action in (0, 1, 2)
    if next_ball == 9:  # The ball has reached the bottom: the episode is over.
        steps = 9 - ball
        assert 1 <= steps <= 3
        # gamma ** (steps - 1) * reward of the last step, 0.99 each.
        assert abs(n_step_return) == pytest.approx({1: 1.0, 2: 0.99, 3: 0.9801}[steps])
        assert n_step_discount == 0
    else:
        assert next_ball - ball == 3
        assert n_step_return == 0
        assert n_step_discount == pytest.approx(0.99 * 0.99 * 0.99)


CHECKS = {"dqn": check_transition_of_catch, "dpg": check_transition_of_point_mass}


def _ball_row(observation: list[float]) -> int:
    """Finds the row, of 10, of Catch's ball."""
    assert set(observation) == {0.0, 1.0} and sum(observation) in (1, 2)
    return min(index // 5 for index, value in enumerate(observation) if value)


# Stopped, and started again in the same folder.


def test_a_run_goes_on_where_it_was_stopped(start):
    flags = ("--config.run.checkpoint_period_seconds=1", *ENDLESS)
    first = start(*apex_dqn("local_mp", *flags))
    checkpoints = first.workdir / "checkpoints"
    first.wait_for(lambda: list(checkpoints.glob("learner-*[0-9]")) and first.rows("evaluator"))
    first.signal(signal.SIGTERM)
    assert first.finish().exit_code == 143
    stopped = first.summary()
    # The last checkpoint is that of the end.
    assert max(checkpoints.glob("learner-*")).name == f"learner-{stopped['learner_steps']:012d}"
    evaluations = first.rows("evaluator")

    limit = stopped["learner_steps"] + 50
    argv = [arg.replace("{workdir}", str(first.workdir)) for arg in apex_dqn("local_mp", *flags)]
    second = start(*argv, f"--config.run.max_learner_steps={limit}").finish()
    assert second.exit_code == 0, second.output()
    assert f"Going on from learner step {stopped['learner_steps']:,}" in second.stdout()
    summary = json.loads((first.workdir / "summary.json").read_text())
    assert summary["learner_steps"] == limit
    assert summary["actor_steps"] > stopped["actor_steps"]
    assert summary["wall_time_seconds"] > stopped["wall_time_seconds"]
    rows = first.rows("learner")
    steps = [float(row["learner_steps"]) for row in rows]
    assert steps == sorted(steps)
    assert first.rows("evaluator")[: len(evaluations)] == evaluations
    evaluated = [float(row["learner_steps"]) for row in first.rows("evaluator")]
    assert len(evaluated) == len(set(evaluated))
    assert evaluated == sorted(evaluated)


# Ends that are none of the run's own.


def test_ctrl_c_ends_everything(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.press_ctrl_c()
    run.finish(LEAVE_WITHIN_SECONDS)
    assert run.exit_code == 130, run.output()
    assert run.left_behind() == []
    assert run.summary()["finished"] is False
    assert run.summary()["reason"] == "stopped from outside"
    assert "            reason: stopped from outside\n" in run.stdout()
    assert "Traceback" not in run.output()


def test_sigterm_ends_everything_even_while_nodes_start(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(lambda: run.log("replay").exists() or run.log("learner").exists())
    run.signal(signal.SIGTERM)
    run.finish(LEAVE_WITHIN_SECONDS + 5)  # Some nodes may still be importing TensorFlow.
    assert run.exit_code == 143, run.output()
    assert run.left_behind() == []


FAILING_ACTOR = """
import sys
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import Catch
from apex_agents.environments.lanes import LockStepLanes
from apex_agents.experiment import Experiment, RunConfig
from apex_agents.program import make_program
from apex_agents.running.launcher import launch_program
from apex_agents.running.workdir import open_workdir


class Broken(Catch):
    def step(self, action):
        raise OSError("the emulator has gone")


def make_lanes(num_lanes, seed, evaluation):
    return LockStepLanes([Broken(seed=seed) for _ in range(num_lanes)])


agent = ApexDQNConfig(network="mlp", frame_stack=0)
run = RunConfig(num_actors=1)
workdir = open_workdir(sys.argv.pop(), "broken", run)
experiment = Experiment(ApexDQNBuilder(agent), make_lanes, run, workdir)
sys.exit(launch_program(make_program(experiment), experiment, "local_mp"))
"""


def test_failing_node_ends_everything_and_is_named(start):
    run = start("-c", FAILING_ACTOR, "{workdir}").finish()
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []
    log = run.log("actor_0")
    message = f"Node actor_0 failed: OSError: the emulator has gone\nIts output is in {log}\n"
    assert run.stdout().endswith("\n" + message)
    assert "Traceback" not in run.output()
    assert "Traceback" in log.read_text()
    assert "OSError: the emulator has gone" in log.read_text()


def test_killed_actor_ends_everything(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.node_process("actor/0").kill()
    run.finish(LEAVE_WITHIN_SECONDS + 5)  # 3 s of which the launcher waits for word of a stop.
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []
    message = f"A node died; the ends of the files in {run.workdir / 'logs'} may say why.\n"
    assert run.stdout().endswith(message)


def test_killed_replay_ends_everything(start):
    # The others are then inside calls that wait for the server, where no signal handler runs.
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.node_process("replay/0").kill()
    run.finish(LEAVE_WITHIN_SECONDS + 5)
    assert run.exit_code == 1, run.output()
    assert run.left_behind() == []


def test_nodes_leave_when_the_launcher_is_killed(start):
    run = start(*apex_dqn("local_mp", *ENDLESS))
    run.wait_for(run.is_learning)
    run.signal(signal.SIGKILL)
    run.finish()
    deadline = time.monotonic() + LEAVE_WITHIN_SECONDS
    while run.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run.left_behind() == []
