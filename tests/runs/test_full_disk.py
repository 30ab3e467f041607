"""Tests of a full disk: nothing in a run's folder is corrupted or lost, and what waits is written.

`test_files.py` tests what is said of it, and the fault tests a whole run.

Every test runs here with a limit on the size of files, at which the kernel writes a part and then
refuses, and again on a filesystem that is full, which needs a namespace of its own to be mounted.
"""

import contextlib
import csv
import dataclasses
import logging
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import reverb
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from apex_agents.environments import EnvironmentConfig
from apex_agents.evaluation.evaluator import BestParameters
from apex_agents.evaluation.videos import VideoWriter
from apex_agents.experiment import Progress
from apex_agents.metrics.exports import Scalars, TensorBoardExport
from apex_agents.nodes.replay import save_replay
from apex_agents.replay.messages import Evaluation
from apex_agents.runs.checkpoints import find_checkpoint, save_checkpoint
from apex_agents.runs.csv_file import CSVLogger
from apex_agents.runs.opening import close_workdir, open_workdir, read_run_id
from apex_agents.runs.parameter_file import read_parameters, save_parameters

# Tells the tests where their small filesystem is.
SMALL_DISK = "APEX_AGENTS_TEST_SMALL_DISK"
PAGE = 4096


class LimitedFiles:
    """Stands for a disk; while it is full, files grow up to a limit only."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    @contextlib.contextmanager
    def full(self, largest_file: int = 100) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class SmallFilesystem:
    """A filesystem of 512 KB; while it is full, files grow up to the end of their page only."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    @contextlib.contextmanager
    def full(self, largest_file: int = 100) -> Iterator[None]:
        filler = self.folder.parent / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(PAGE))
        try:
            yield
        finally:
            filler.unlink()


@pytest.fixture
def disk(tmp_path) -> LimitedFiles | SmallFilesystem:
    if SMALL_DISK not in os.environ:
        return LimitedFiles(tmp_path)
    folder = pathlib.Path(os.environ[SMALL_DISK], tmp_path.name)
    folder.mkdir()
    return SmallFilesystem(folder)


def warnings(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def row(step: int) -> dict[str, float]:
    return {"step": step, "value": 1 / (step + 3)}


def read_rows(path: pathlib.Path) -> list[dict[str, float]]:
    """Read the rows, all of them whole; the file has one header and ends with a whole row."""
    content = path.read_text()
    assert content.startswith("step,value\n") and content.endswith("\n")  # Newlines translated.
    rows = list(csv.DictReader(content.splitlines()))
    return [{name: float(value) for name, value in row.items()} for row in rows]


@pytest.mark.fault(
    breaks="a full disk while a row of a CSV file is written",
    holds="nothing raises; the row waits for room, none is truncated, lost or doubled; one warning",
)
def test_rows_wait_for_room(disk, caplog):
    path = disk.folder / "learner.csv"
    logger = CSVLogger(path)
    for step in range(20):
        logger.write(row(step))
    limit = path.stat().st_size + 1000
    with disk.full(limit):
        for step in range(20, 400):
            logger.write(row(step))
        written = read_rows(path)
        # The row at the limit was begun, since its end is not that of a row.
        assert path.stat().st_size not in (limit, PAGE)
    assert 20 < len(written) < 400
    assert written == [row(step) for step in range(len(written))]
    logger.write(row(400))
    assert read_rows(path) == [row(step) for step in range(401)]
    assert len(warnings(caplog)) == 1
    assert f"{path} cannot be written" in warnings(caplog)[0]


def test_only_the_newest_rows_are_kept_by_a_logger_that_begins_on_a_full_disk(disk, caplog):
    path = disk.folder / "learner.csv"
    with disk.full(0):
        logger = CSVLogger(path, max_waiting_rows=5)
        for step in range(1, 13):
            logger.write(row(step))
    logger.close()
    logger.close()  # Tells it once.
    assert read_rows(path) == [row(step) for step in (8, 9, 10, 11, 12)]
    assert warnings(caplog)[1:] == [f"{path} lacks 7 rows: too many waited."]


def make_parameters(value: float, size: int = 10_000) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.float32), "b": np.zeros(3)}


def saved_value(path: pathlib.Path) -> float:
    (value,) = set(read_parameters(path).arrays["w"].tolist())
    return value


def test_parameters_that_find_no_room_are_told_once(disk, caplog):
    path = disk.folder / "last.npz"
    assert save_parameters(path, make_parameters(1.0), 1)
    with disk.full():
        assert not save_parameters(path, make_parameters(2.0), 2)
        assert not save_parameters(path, make_parameters(3.0), 3)
        assert saved_value(path) == 1.0
    assert len(warnings(caplog)) == 1
    assert save_parameters(path, make_parameters(4.0), 4)


def test_the_best_parameters_wait_for_room(disk):
    path = disk.folder / "best.npz"
    variable = tf.Variable(tf.zeros([10_000]), name="w")

    def offer(best: BestParameters, mean_return: float, value: float, learner_steps: int) -> None:
        variable.assign(tf.fill([10_000], value))
        best.offer(mean_return, {"network": [variable]}, learner_steps)

    best = BestParameters(path, past=[])
    offer(best, 5.0, value=1.0, learner_steps=1)
    saved = path.stat().st_ino  # It is replaced whenever it is written.
    offer(best, 4.0, value=2.0, learner_steps=2)
    assert (saved_value(path), path.stat().st_ino) == (1.0, saved)
    with disk.full():
        offer(best, 6.0, value=3.0, learner_steps=3)
        offer(best, 9.0, value=4.0, learner_steps=4)
        offer(best, 7.0, value=5.0, learner_steps=5)
        assert saved_value(path) == 1.0
        assert [file.name for file in disk.folder.iterdir()] == ["best.npz"]
    offer(best, 8.0, value=6.0, learner_steps=6)  # Not the best, but there is room now.
    assert saved_value(path) == 4.0
    with disk.full():
        offer(best, 10.0, value=7.0, learner_steps=7)
    # After a restart the evaluation counts whose parameters are there.
    rows = [[9.0, 0.0, 1.0, 4.0, 5.0], [10.0, 0.0, 1.0, 7.0, 7.0]]
    restarted = BestParameters(path, [Evaluation(*np.array(row)) for row in rows])
    offer(restarted, 8.0, value=8.0, learner_steps=9)
    assert saved_value(path) == 4.0
    offer(restarted, 9.5, value=9.0, learner_steps=10)
    assert saved_value(path) == 9.0
    best.save()
    assert saved_value(path) == 7.0


def test_past_evaluations_without_a_file_do_not_count(disk):
    path = disk.folder / "best.npz"
    past = [Evaluation(*np.array([9.0, 0.0, 1.0, 5.0, 5.0]))]
    variable = tf.Variable(tf.fill([10], 2.0), name="w")
    BestParameters(path, past).offer(3.0, {"network": [variable]}, learner_steps=1)
    assert saved_value(path) == 2.0


def film(path: pathlib.Path, num_frames: int) -> None:
    """Make a video of noise, which takes some KB per frame."""
    random = np.random.default_rng(0)
    writer = VideoWriter(path, 15.0)
    for _ in range(num_frames):
        writer.write(random.integers(256, size=[64, 64, 3], dtype=np.uint8))
    writer.close()


@pytest.mark.parametrize("num_frames", [2, 300])
def test_a_video_is_whole_or_not_there(disk, num_frames):
    film(disk.folder / "old.mp4", 2)
    content = (disk.folder / "old.mp4").read_bytes()
    with disk.full(), pytest.raises(OSError, match="ffmpeg ended with exit code"):
        film(disk.folder / "new.mp4", num_frames)
    assert [path.name for path in disk.folder.iterdir()] == ["old.mp4"]
    assert (disk.folder / "old.mp4").read_bytes() == content
    film(disk.folder / "new.mp4", 2)
    assert (disk.folder / "new.mp4").read_bytes() == content


def save(folder: pathlib.Path, steps: int) -> bool:
    state = {"weights": tf.Variable(tf.fill([10_000], float(steps)))}
    return save_checkpoint(folder, state, make_parameters(steps), Progress(steps, 1.5), keep=1)


@pytest.mark.fault(
    breaks="a full disk while the learner is saved",
    holds="a warning; the one before stays and is found; another is saved when there is room",
)
def test_the_checkpoint_before_stays(disk, caplog):
    assert save(disk.folder, 10)
    with disk.full():
        assert not save(disk.folder, 20)
        assert not save(disk.folder, 30)
        assert [path.name for path in disk.folder.iterdir()] == ["learner-000000000010"]
        assert find_checkpoint(disk.folder).progress.learner_steps == 10
    assert len(warnings(caplog)) == 1
    assert save(disk.folder, 40)
    assert [path.name for path in disk.folder.iterdir()] == ["learner-000000000040"]
    assert find_checkpoint(disk.folder).progress.learner_steps == 40


def make_replay(folder: pathlib.Path) -> reverb.Server:
    table = reverb.Table(
        "table",
        reverb.selectors.Fifo(),
        reverb.selectors.Fifo(),
        max_size=1000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=tf.TensorSpec([1000], tf.float32),
    )
    checkpointer = reverb.checkpointers.DefaultCheckpointer(str(folder))
    return reverb.Server([table], checkpointer=checkpointer)


@pytest.mark.fault(
    breaks="a full disk while the replay is saved",
    holds="a warning; what was saved before stays and is restored",
)
def test_the_saved_replay_stays(disk, caplog):
    folder = disk.folder / "replay"
    server = make_replay(folder)
    client = reverb.Client(f"localhost:{server.port}")
    random = np.random.default_rng(0)

    def insert(num_items: int) -> None:
        for _ in range(num_items):
            client.insert(random.normal(size=1000).astype(np.float32), {"table": 1.0})

    insert(3)
    save_replay(client, folder)
    insert(4)
    with disk.full():
        save_replay(client, folder)
        save_replay(client, folder)
        assert len(list(folder.iterdir())) == 1
    assert client.server_info()["table"].current_size == 7
    assert len(warnings(caplog)) == 1
    restored = make_replay(folder)
    assert reverb.Client(f"localhost:{restored.port}").server_info()["table"].current_size == 3
    restored.stop()
    save_replay(client, folder)
    server.stop()
    restored = make_replay(folder)
    assert reverb.Client(f"localhost:{restored.port}").server_info()["table"].current_size == 7
    restored.stop()


@pytest.mark.fault(
    breaks="a full disk while events for TensorBoard are written",
    holds="one warning; later events are there and can be read",
)
def test_later_events_for_tensorboard_are_there(disk, caplog):
    folder = disk.folder / "tensorboard"
    export = TensorBoardExport(folder)
    export.write([Scalars(1, "learner_steps", {"loss": 1.0})])
    (file,) = folder.iterdir()
    more_than_a_page = [Scalars(2, "learner_steps", {"loss": 2.0})] * 200
    with disk.full(file.stat().st_size + 30):
        export.write(more_than_a_page)
        export.write(more_than_a_page)
    export.write([Scalars(3, "learner_steps", {"loss": 3.0})])
    export.close()
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})  # All of them.
    steps = [event.step for event in events.Reload().Tensors("loss")]
    assert (steps[0], steps[-1]) == (1, 3)
    assert len(steps) < 2 * len(more_than_a_page)
    assert list(folder.iterdir()) == [file]  # Not another one with each attempt.
    assert len(warnings(caplog)) == 1


@dataclasses.dataclass
class AgentConfig:
    torso: str = "x" * 1000


@dataclasses.dataclass
class Config:
    agent: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    environment: EnvironmentConfig = dataclasses.field(default_factory=EnvironmentConfig)


def test_a_run_does_not_begin_on_a_full_disk(disk):
    config = Config()
    folder = disk.folder / "run"
    close_workdir(open_workdir(str(folder), config))
    before = (folder / "config.json").read_text()
    with disk.full(), pytest.raises(ValueError, match="cannot be written: "):
        open_workdir(str(folder), config)
    assert (folder / "config.json").read_text() == before
    close_workdir(open_workdir(str(folder), config, wait_seconds=0))  # It is not locked.
    with disk.full(0), pytest.raises(ValueError, match="cannot be written: "):
        read_run_id(str(folder))
    assert len(read_run_id(str(folder))) == 12


@pytest.mark.fault(
    breaks="all this on a filesystem of 512 KB that is really full",
    holds="the same",
)
def test_all_this_on_a_filesystem_that_is_full(mount_namespaces, tmp_path):
    if SMALL_DISK in os.environ:
        return  # This is it.
    mount = 'mount -t tmpfs -o size=512k none "$0"'
    in_namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]
    result = subprocess.run(
        [*in_namespace, f'{mount} && exec "$@"', str(tmp_path), *command],
        capture_output=True,
        text=True,
        timeout=1000,
        env={**os.environ, SMALL_DISK: str(tmp_path)},
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
