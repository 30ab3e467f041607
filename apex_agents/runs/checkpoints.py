"""Checkpoints of the learner, from which a run goes on where it stopped.

Horgan et al. 2018, appendix F ("Failure Tolerance"). A checkpoint is a folder `learner-<step>` with
the learner's state as TensorFlow writes it (tensors with checksums, nothing that could execute) and
`progress.json`. It gets its name when it is complete.
"""

import dataclasses
import json
import logging
import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from apex_agents.experiment import Experiment, Progress
from apex_agents.learning.learner import ApexLearner
from apex_agents.runs.io_failures import report_failure, report_success
from apex_agents.runs.workdir import (
    CHECKPOINTS,
    LAST_CHECKPOINT,
    SUMMARY_FILE,
    save_parameters,
    write_json,
)

_STATE = "state"
_PROGRESS = "progress.json"


class Checkpoint(NamedTuple):
    """A checkpoint that can be read.

    Attributes:
      path: its folder.
      progress: how far the run was.
    """

    path: pathlib.Path
    progress: Progress


class LearnerCheckpoints:
    """The checkpoints of one run's learner."""

    def __init__(self, experiment: Experiment, learner: ApexLearner):
        """Take the learner up where the newest checkpoint, if there is one, left it."""
        self._folder = pathlib.Path(experiment.workdir, CHECKPOINTS)
        self._experiment = experiment
        self._learner = learner
        checkpoint = find_checkpoint(self._folder)
        if checkpoint is not None:
            restore_checkpoint(checkpoint, learner.state)
            learner.resume(checkpoint.progress.learner_steps)
            logging.info("Going on from %s", checkpoint.path.name)
        self._last_save = time.monotonic()
        self._last_step = -1

    def save_if_due(self) -> None:
        """Save one if the last one is older than the config's period."""
        if time.monotonic() >= self._last_save + self._experiment.run.checkpoint_period_seconds:
            self.save()

    def save(self) -> None:
        """Save one.

        Raises:
          FloatingPointError: the learner's variables are not finite.
        """
        self._last_save = time.monotonic()
        if self._learner.num_steps == self._last_step:
            return
        self._learner.get_all_variables()  # Raises.
        keep = self._experiment.run.num_checkpoints
        progress = Progress(self._learner.num_steps, self._experiment.elapsed_seconds())
        if save_checkpoint(self._folder, self._learner.state, progress, keep):
            self._last_step = progress.learner_steps

    def conclude(self, reason: str | None, actor_steps: int) -> None:
        """Save what stays of the run: a checkpoint, the parameters, and how it ended.

        Args:
          reason: why the run is over; None if it was stopped before.
          actor_steps: transitions that all actors have added.

        Raises:
          FloatingPointError: the learner's variables are not finite.
        """
        self.save()
        workdir = pathlib.Path(self._experiment.workdir)
        variables, step = self._learner.get_all_variables(), self._learner.num_steps
        save_parameters(workdir / LAST_CHECKPOINT, variables, step)
        summary = {
            "finished": reason is not None,
            "reason": reason or "stopped from outside",
            "learner_steps": self._learner.num_steps,
            "actor_steps": actor_steps,
            "wall_time_seconds": self._experiment.elapsed_seconds(),
        }
        write_json(workdir / SUMMARY_FILE, summary)


def save_checkpoint(
    folder: pathlib.Path, state: Mapping[str, Any], progress: Progress, keep: int
) -> bool:
    """Save a checkpoint and remove old ones.

    Args:
      folder: where checkpoints are.
      state: what `tf.train.Checkpoint` can hold: modules, optimisers, variables, by name.
      progress: how far the run is.
      keep: the newest so many stay.

    Returns:
      Whether it was saved; if not, because of a full disk for example, a warning says why (once,
      until one is saved again) and the older ones stay.
    """
    path = folder / f"learner-{progress.learner_steps:012d}"
    partial = folder / f"{path.name}.partial"
    try:
        for left in folder.glob("learner-*.partial"):  # By a process that was killed.
            shutil.rmtree(left, ignore_errors=True)
        partial.mkdir()
        tf.train.Checkpoint(**state).write(str(partial / _STATE))
        (partial / _PROGRESS).write_text(json.dumps(dataclasses.asdict(progress)))
        shutil.rmtree(path, ignore_errors=True)  # A damaged one, if the run goes on from before it.
        partial.rename(path)
    except (OSError, tf.errors.OpError) as error:
        report_failure(folder / "learner-*", error)
        return False
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    report_success(folder / "learner-*")
    # Later ones than this are damaged: the run went on from before them.
    checkpoints = list_checkpoints(folder)
    kept = [other for other in checkpoints if other <= path][-keep:]
    for other in checkpoints:
        if other not in kept:
            shutil.rmtree(other, ignore_errors=True)
    return True


def find_checkpoint(folder: pathlib.Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None; a warning tells of each that is not."""
    for path in reversed(list_checkpoints(folder)):
        try:
            return open_checkpoint(path)
        except ValueError as error:
            logging.warning("Checkpoint %s is damaged and left out: %s", path, error)
    return None


def find_progress(workdir: str) -> Progress:
    """Return the progress of a run's newest valid checkpoint; none if it has no checkpoint."""
    checkpoint = find_checkpoint(pathlib.Path(workdir, CHECKPOINTS))
    return Progress() if checkpoint is None else checkpoint.progress


def open_checkpoint(path: pathlib.Path) -> Checkpoint:
    """Read all of a checkpoint.

    Raises:
      ValueError: it is not whole.
    """
    try:
        progress = Progress(**json.loads((path / _PROGRESS).read_text()))
        reader = tf.train.load_checkpoint(str(path / _STATE))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)  # Raises if its checksum is wrong.
    except (OSError, ValueError, TypeError, IndexError, RuntimeError, tf.errors.OpError) as error:
        raise ValueError(str(error)) from error
    return Checkpoint(path, progress)


def restore_checkpoint(checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
    """Give a state, or a part of it, the values of a checkpoint.

    Variables that do not exist yet, as those of a module before its first call, get theirs when
    they are made.

    Raises:
      AssertionError: a variable of the state is not in the checkpoint.
      ValueError: a variable has another shape there.
    """
    status = tf.train.Checkpoint(**state).read(str(checkpoint.path / _STATE))
    status.expect_partial().assert_existing_objects_matched()


def remove_old_checkpoints(folder: pathlib.Path, keep: int) -> None:
    """Remove copies of a learner's checkpoints, but for so many that it saved last."""
    complete = [path for path in list_checkpoints(folder) if (path / _PROGRESS).exists()]
    for path in sorted(complete, key=lambda path: (path / _PROGRESS).stat().st_mtime)[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def list_checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """List checkpoints, damaged ones too, oldest first."""
    return sorted(folder.glob("learner-" + "[0-9]" * 12))
