"""Tests of checkpoints: restored bit by bit, skipped if corrupted, removed if old."""

import contextlib
import dataclasses
import logging
import os
import pathlib
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from apex_agents.config import RunConfig
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig, make_vector_environment
from apex_agents.experiment import Experiment, Progress
from apex_agents.learning.learner import ApexLearner
from apex_agents.replay.config import ReplayConfig
from apex_agents.replay.messages import ParameterSource
from apex_agents.runs import checkpoints as checkpoints_module
from apex_agents.runs.checkpoints import (
    Checkpoint,
    LearnerCheckpoints,
    find_checkpoint,
    find_parameters,
    remove_old_checkpoints,
    restore_checkpoint,
    save_checkpoint,
)
from apex_agents.runs.parameter_file import by_variable_name, read_parameters, save_parameters
from apex_agents.waits import LACKS, NodeMemory, write_waits


def make_state(value: float) -> dict[str, tf.Variable]:
    return {"weights": tf.Variable(tf.fill([100], value)), "count": tf.Variable(7)}


def save(folder: pathlib.Path, steps: int, keep: int = 3) -> bool:
    parameters = {"torso/w": np.full(3, steps)}
    return save_checkpoint(folder, make_state(float(steps)), parameters, Progress(steps, 1.5), keep)


def test_a_checkpoint_is_found_and_restored(tmp_path):
    partial = tmp_path / "learner-000000000010.partial"
    partial.mkdir()  # Left by a process that was killed.
    (partial / "state.index").write_text("half")
    assert find_checkpoint(tmp_path) is None
    assert save(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["learner-000000000020"]
    checkpoint = find_checkpoint(tmp_path)
    assert checkpoint == Checkpoint(tmp_path / "learner-000000000020", Progress(20, 1.5))
    state = make_state(-1.0)
    state["count"].assign(0)
    restore_checkpoint(checkpoint, state)
    np.testing.assert_array_equal(state["weights"], np.full(100, 20.0))
    assert int(state["count"]) == 7
    parameters = read_parameters(checkpoint.path)
    assert (parameters.arrays["torso/w"].tolist(), parameters.learner_steps) == ([20] * 3, 20)


def test_a_checkpoint_is_due_a_period_after_the_last_one(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(checkpoints_module.time, "monotonic", lambda: now[0])
    saved: list[float] = []

    class Checkpoints(LearnerCheckpoints):
        def save(self) -> bool:
            saved.append(now[0])
            return super().save()

    (tmp_path / "checkpoints").mkdir()
    learner = types.SimpleNamespace(
        state=make_state(1.0), num_steps=3, variables={}, get_all_variables=dict
    )
    experiment = Experiment(None, None, RunConfig(checkpoint_period_seconds=60), str(tmp_path))
    checkpoints = Checkpoints(experiment, learner)
    for now[0] in (100.0, 159.0, 161.0, 220.0, 222.0):
        checkpoints.save_if_due()
    assert saved == [161.0, 222.0]


def test_of_copies_those_that_came_last_stay(tmp_path):
    # The learner resumed from step 40, whose successor is corrupted, on a host whose clock is
    # behind; 300 is not complete yet.
    newest = 0
    for seconds, steps in ((50, 5), (60, 40), (70, 2000), (1, 60), (2, 80)):
        progress = tmp_path / f"learner-{steps:012d}" / "progress.json"
        progress.parent.mkdir()
        progress.touch()
        os.utime(progress, (seconds, seconds))
        while progress.stat().st_ctime_ns <= newest:  # The clock of a file system has ticks.
            os.utime(progress, (seconds, seconds))
        newest = progress.stat().st_ctime_ns
    (tmp_path / "learner-000000000300").mkdir()
    remove_old_checkpoints(tmp_path, 2)
    names = sorted(path.name for path in tmp_path.glob("learner-*"))
    assert names == [f"learner-{steps:012d}" for steps in (60, 80, 300)]


@pytest.mark.parametrize("keep", [1, 2, 4, 6])
def test_the_newest_ones_are_kept(keep, tmp_path):
    for steps in (5, 40, 300, 2000):
        save(tmp_path, steps, keep)
    names = sorted(path.name for path in tmp_path.iterdir())
    all_names = [f"learner-{steps:012d}" for steps in (5, 40, 300, 2000)]
    assert names == all_names[max(4 - keep, 0) :]


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip_a_byte(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


DATA, MORE_DATA = "state.data-00000-of-00002", "state.data-00001-of-00002"
INDEX, PROGRESS = "state.index", "progress.json"


@pytest.mark.fault(
    breaks="a newest checkpoint that is truncated, altered or incomplete",
    holds="skipped with a warning for the one before it",
)
@pytest.mark.parametrize("file", [DATA, MORE_DATA, INDEX, PROGRESS])
@pytest.mark.parametrize("damage", [truncate, flip_a_byte, pathlib.Path.unlink])
def test_a_corrupted_checkpoint_is_skipped_for_the_one_before(file, damage, tmp_path, caplog):
    save(tmp_path, 10)
    save(tmp_path, 20)
    damage(tmp_path / "learner-000000000020" / file)
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(tmp_path).progress.learner_steps == 10
    # TensorFlow warns of functions of other tests.
    (record,) = [record for record in caplog.records if record.name != "tensorflow"]
    assert record.args[0] == tmp_path / "learner-000000000020"


def test_corrupted_checkpoints_make_room_for_those_of_the_resumed_run(tmp_path):
    for steps in (10, 20, 30):
        save(tmp_path, steps)
    for steps in (20, 30):
        truncate(tmp_path / f"learner-{steps:012d}" / DATA)
    assert find_checkpoint(tmp_path).progress.learner_steps == 10
    for _ in range(2):  # A step that is saved again leaves one checkpoint, too.
        assert save(tmp_path, 20, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["learner-000000000020"]
    assert find_checkpoint(tmp_path).progress.learner_steps == 20


@pytest.mark.parametrize("content", ["[]", '{"learner_steps": 1, "command": "rm"}', "1", "null"])
def test_other_content_counts_as_corrupted(content, tmp_path):
    save(tmp_path, 10)
    (tmp_path / "learner-000000000010" / PROGRESS).write_text(content)
    assert find_checkpoint(tmp_path) is None


SAVE_FOR_EVER = """
import pathlib, sys
import numpy as np
import tensorflow as tf
from apex_agents.experiment import Progress
from apex_agents.runs.checkpoints import save_checkpoint

folder = pathlib.Path(sys.argv[1])
step = int(sys.argv[2])
while True:
    step += 1
    state = {"weights": tf.Variable(tf.fill([100_000], float(step)))}
    parameters = {"torso/w": np.full(100_000, step)}
    assert save_checkpoint(folder, state, parameters, Progress(step), keep=2)
    print(step, flush=True)
"""


@pytest.mark.fault(
    breaks="`kill -9` while a checkpoint is written",
    holds="the newest complete one is found, with the values of its step",
)
def test_killed_while_saving(tmp_path):
    last = 0
    for delay in (0.01, 0.02, 0.03, 0.04):  # Some milliseconds into one of them.
        command = [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(3):
                last = int(process.stdout.readline())
            time.sleep(delay)
            process.kill()
            last = max([last, *map(int, process.stdout.read().split())])
        checkpoint = find_checkpoint(tmp_path)
        # Its name may have been given just before the process could print its step.
        assert checkpoint.progress.learner_steps in (last, last + 1)
        last = checkpoint.progress.learner_steps
        weights = tf.Variable(tf.zeros([100_000]))
        restore_checkpoint(checkpoint, {"weights": weights})
        assert set(weights.numpy()) == {float(last)}
        _, arrays, learner_steps = read_parameters(checkpoint.path)
        assert set(arrays["torso/w"]) == {last} and learner_steps == last


def test_networks_of_another_size_are_an_error(tmp_path):
    save(tmp_path, 10)
    with pytest.raises(ValueError, match="shape"):
        restore_checkpoint(find_checkpoint(tmp_path), {"weights": tf.Variable(tf.zeros([99]))})
    with pytest.raises(AssertionError):
        restore_checkpoint(find_checkpoint(tmp_path), {"other": snt.Linear(1), "x": tf.Variable(1)})


REPLAY = ReplayConfig(max_size=100, min_size=1)
NUM_UPDATES = 1000


# `make_fixed_batches` makes batches of 8.
FIELDS = {"batch_size": 8, "target_update_period": 130, "publish_period": 200, "replay": REPLAY}
DQN = ApexDQNConfig(
    torso="mlp",
    mlp_hidden_sizes=(8,),
    stream_hidden_size=8,
    frame_stack=0,
    learning_rate=0.001,
    **FIELDS,
)
DPG = ApexDPGConfig(policy_hidden_sizes=(8, 8), critic_hidden_sizes=(8, 8), **FIELDS)


class Agent:
    """A learner of an agent that learns from the same batches every time."""

    def __init__(self, name: str, make_fixed_batches: Callable, serve: Callable):
        is_dqn = name == "dqn"
        self.builder = ApexDQNBuilder(DQN) if is_dqn else ApexDPGBuilder(DPG)
        task = "catch" if is_dqn else "point_mass"
        self._spec = make_vector_environment(EnvironmentConfig("toy", task), 1, seed=0).spec
        self._client = serve(*self.builder.make_replay_tables(self._spec))
        self._batches = make_fixed_batches(self._spec, NUM_UPDATES)
        self._learners: list[ApexLearner] = []

    def make_learner(self, first_batch: int, seed: int) -> ApexLearner:
        self.builder.make_dataset = lambda *_: self._batches.skip(first_batch)
        learner = self.builder.make_learner(self._spec, self._client, seed)
        self._learners.append(learner)
        return learner

    def close(self) -> None:
        for learner in self._learners:
            learner.close()


@pytest.fixture(params=["dqn", "dpg"])
def agent(request, make_fixed_batches, serve) -> Iterator[Agent]:
    agent = Agent(request.param, make_fixed_batches, serve)
    yield agent
    agent.close()


def everything(learner: ApexLearner, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Return all that a checkpoint of the learner holds: parameters, targets, slots, counts."""
    assert save_checkpoint(folder, learner.state, {}, Progress(learner.num_steps), keep=1)
    reader = tf.train.load_checkpoint(str(find_checkpoint(folder).path / "state"))
    names = set(reader.get_variable_to_shape_map()) - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    return {name: reader.get_tensor(name) for name in names}


@pytest.mark.fault(
    breaks="1000 updates, interrupted after 500 by a checkpoint and a new learner",
    holds="parameters, optimizer slots and counters equal those of 1000 in a row, bit for bit",
)
def test_a_learner_that_stopped_halfway_ends_where_one_that_did_not_ends(agent, tmp_path):
    straight, halfway = agent.make_learner(0, seed=1), agent.make_learner(0, seed=1)
    for _ in range(NUM_UPDATES):
        straight.step()
    for _ in range(NUM_UPDATES // 2):
        halfway.step()
    assert save_checkpoint(tmp_path, halfway.state, {}, Progress(halfway.num_steps), keep=1)

    resumed = agent.make_learner(NUM_UPDATES // 2, seed=2)  # Other initial parameters.
    checkpoint = find_checkpoint(tmp_path)
    restore_checkpoint(checkpoint, resumed.state)
    resumed.resume()
    for _ in range(NUM_UPDATES // 2):
        resumed.step()

    assert resumed.num_steps == straight.num_steps == NUM_UPDATES
    folders = [tmp_path / "straight", tmp_path / "resumed", tmp_path / "halfway"]
    for folder in folders:
        folder.mkdir()
    expected, actual, before = map(everything, (straight, resumed, halfway), folders)
    assert len(expected) > 10 and any("optimizer" in name for name in expected)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    assert any(not np.array_equal(before[name], expected[name]) for name in expected)


def test_the_checkpoint_that_a_run_resumes_from_is_not_written_anew(agent, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    experiment = Experiment(agent.builder, lambda *_: None, RunConfig(), str(tmp_path))
    learner = agent.make_learner(0, seed=1)
    learner.step()
    assert LearnerCheckpoints(experiment, learner).save_last()
    (folder,) = (tmp_path / "checkpoints").glob("learner-*")
    before = {path.name: path.stat().st_ino for path in (folder, *folder.iterdir())}
    experiment = dataclasses.replace(experiment, resumed_at=Progress(1, 1000.0))
    resumed = LearnerCheckpoints(experiment, agent.make_learner(1, seed=2))
    assert resumed.save_last()
    after = {path.name: path.stat().st_ino for path in (folder, *folder.iterdir())}
    # But for the time that has passed.
    assert before.pop("progress.json") != after.pop("progress.json")
    assert after == before
    progress = find_checkpoint(tmp_path / "checkpoints").progress
    assert (progress.learner_steps, progress.wall_time_seconds > 1000) == (1, True)


def test_a_count_that_is_published_is_no_parameter(tmp_path, serve):
    (tmp_path / "checkpoints").mkdir()
    config = ApexDQNConfig(torso="mlp", frame_stack=0, replay=REPLAY)
    config.exploration.annealing_steps = 10
    builder = ApexDQNBuilder(config)
    spec = make_vector_environment(EnvironmentConfig("toy", "catch"), 1, seed=0).spec
    client = serve(*builder.make_replay_tables(spec))
    learner = builder.make_learner(spec, client)
    experiment = Experiment(builder, lambda *_: None, RunConfig(), str(tmp_path))
    LearnerCheckpoints(experiment, learner).save_last()
    parameters = read_parameters(tmp_path / "checkpoints" / "last.npz").arrays
    policy = builder.make_evaluation_policy(spec, 1, seed=0)
    assert parameters.keys() == by_variable_name(policy.variables, policy.variables).keys()
    # An actor gets the count with the parameters.
    learner.publish()
    actor_policy = builder.make_policy(spec, [0], 1, seed=0)
    builder.make_actor(actor_policy, (), ParameterSource(client)).update(wait=True)
    assert int(actor_policy.variables["num_updates"][0]) == learner.num_steps
    learner.close()


@pytest.mark.parametrize("full", ["save_checkpoint", "save_parameters"])
def test_what_is_not_saved_at_the_end_is_known(full, agent, tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    experiment = Experiment(agent.builder, lambda *_: None, RunConfig(), str(tmp_path))
    checkpoints = LearnerCheckpoints(experiment, agent.make_learner(0, seed=1))
    memory = NodeMemory()
    write_waits(memory)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints_module, full, lambda *_: False)
        assert not checkpoints.save_last()
    assert memory.messages() == (LACKS if full == "save_checkpoint" else b"")
    assert checkpoints.save_last()


def test_a_learners_checkpoints_hold_the_parameters_of_its_policy(agent, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    run = RunConfig(num_checkpoints=2)
    experiment = Experiment(agent.builder, lambda *_: None, run, str(tmp_path))
    learner = agent.make_learner(0, seed=1)
    checkpoints = LearnerCheckpoints(experiment, learner)
    for _ in range(3):
        learner.step()
    assert checkpoints.save()
    assert checkpoints.save_last()
    (path,) = tmp_path.glob("checkpoints/learner-*")
    for file in (path, tmp_path / "checkpoints" / "last.npz"):
        _, parameters, learner_steps = read_parameters(file)
        assert learner_steps == 3
        expected = by_variable_name(learner.variables, learner.variables)
        assert parameters.keys() == expected.keys()
        for name, variable in expected.items():
            np.testing.assert_array_equal(parameters[name], variable.numpy())
    resumed = agent.make_learner(0, seed=2)
    LearnerCheckpoints(experiment, resumed)
    assert resumed.num_steps == 3
    for name, variable in by_variable_name(resumed.variables, resumed.variables).items():
        np.testing.assert_array_equal(parameters[name], variable.numpy())


def test_what_cannot_be_read_is_put_aside_when_the_resumed_run_is_saved(
    make_fixed_batches, serve, tmp_path
):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with contextlib.closing(Agent("dqn", make_fixed_batches, serve)) as agent:
        run = RunConfig(num_checkpoints=2)
        experiment = Experiment(agent.builder, lambda *_: None, run, str(tmp_path))
        learner = agent.make_learner(0, seed=1)
        checkpoints = LearnerCheckpoints(experiment, learner)
        for _ in range(3):  # The steps 1, 2 and 3.
            learner.step()
            checkpoints.save()
        truncate(folder / "learner-000000000003" / DATA)
        resumed = agent.make_learner(0, seed=2)
        checkpoints = LearnerCheckpoints(experiment, resumed)
        assert resumed.num_steps == 2
        for _ in range(3):
            resumed.step()
        checkpoints.save()
    assert sorted(path.name for path in folder.iterdir()) == [
        *("learner-000000000002", "learner-000000000005", "unreadable-learner-000000000003")
    ]


@pytest.mark.fault(
    breaks="a checkpoint replaced by a pickle that would run code",
    holds="nothing is executed; it counts as corrupted",
)
def test_a_hostile_file_counts_as_corrupted_and_is_not_executed(tmp_path):
    path = tmp_path / "learner-000000000010"
    hostile = b"cos\nsystem\n(S'touch " + str(tmp_path / "executed").encode() + b"'\ntR."
    for file in (DATA, INDEX, PROGRESS):
        save(tmp_path, 10)
        (path / file).write_bytes(hostile)
        assert find_checkpoint(tmp_path) is None
        assert not (tmp_path / "executed").exists()


NAME = "learner-000000001234"


@pytest.fixture
def workdir(tmp_path) -> pathlib.Path:
    """A folder with parameters of all kinds, which are empty."""
    folder = tmp_path / "run" / "checkpoints"
    for name in ("learner-000000001300", NAME, "learner-000000001400.partial", "replay"):
        (folder / name).mkdir(parents=True)
    save_parameters(folder / "best.npz", {}, 4000)
    save_parameters(folder / "last.npz", {}, 2000)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("checkpoint", "found"),
    [("best", "best.npz"), ("last", "last.npz"), (NAME, NAME), ("learner-1234", NAME)],
)
def test_parameters_are_found_by_name(workdir, checkpoint, found):
    assert find_parameters(workdir, checkpoint) == workdir / "checkpoints" / found


def test_the_last_parameters_are_those_of_most_steps_whenever_they_were_copied(workdir):
    folder = workdir / "checkpoints"
    os.utime(folder / NAME, (2**31, 2**31))
    save_parameters(folder / "last.npz", {}, 1300)
    os.utime(folder / "last.npz", (0, 0))
    assert find_parameters(workdir, "last") == folder / "learner-000000001300"
    os.utime(folder / "last.npz", (2**31, 2**31))
    assert find_parameters(workdir, "last") == folder / "last.npz"
    (folder / "last.npz").write_text("damaged")
    assert find_parameters(workdir, "last") == folder / "learner-000000001300"


def test_parameters_are_found_by_path(workdir, monkeypatch):
    monkeypatch.chdir(workdir / "checkpoints")
    for path in ("./best.npz", f"../checkpoints/{NAME}"):
        assert find_parameters(workdir, path) == pathlib.Path(path)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("learner-7", f"best, last, {NAME}, learner-000000001300"),
        ("learner-000000001400", f"best, last, {NAME}, learner-000000001300"),
        ("replay", f"best, last, {NAME}, learner-000000001300"),
        ("", f"best, last, {NAME}, learner-000000001300"),
        ("gone.npz", "checkpoint=gone.npz"),
        ("./best", "checkpoint=./best"),
    ],
)
def test_unknown_names_and_paths_are_errors(workdir, tmp_path, checkpoint, message):
    with pytest.raises(ValueError, match=message):
        find_parameters(workdir, checkpoint)
    if message.startswith("best"):
        with pytest.raises(ValueError, match="has no parameters yet"):
            find_parameters(tmp_path, checkpoint)
