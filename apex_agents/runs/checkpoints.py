"""Checkpoints of the learner, from which a run is resumed.

Horgan et al. 2018, appendix F ("Failure Tolerance"). A checkpoint is a folder `learner-<step>`,
which gets its name when it is complete. It holds the learner's state as TensorFlow writes it, with
checksums, `progress.json`, and the policy's parameters for evaluations in `parameters.npz`.
"""

import dataclasses
import functools
import itertools
import json
import logging
import os
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from apex_agents.experiment import Experiment, Progress
from apex_agents.learning.learner import ApexLearner
from apex_agents.runs.files import remove, try_to_write, write_json
from apex_agents.runs.parameter_file import (
    PARAMETERS,
    by_variable_name,
    encode_parameters,
    read_parameters,
    read_steps,
    save_parameters,
)
from apex_agents.runs.workdir import (
    BEST_CHECKPOINT,
    CHECKPOINT_PROGRESS,
    CHECKPOINTS,
    LAST_CHECKPOINT,
)
from apex_agents.waits import LACKS, say

BEST, LAST = "best", "last"

_STATE = "state"
_UNREADABLE = "unreadable"  # Beginning of the names of checkpoints that are put aside.
# Errors of reading a file that is missing, truncated or corrupted.
_READ_ERRORS = (OSError, ValueError, TypeError, IndexError, RuntimeError, tf.errors.OpError)


class Checkpoint(NamedTuple):
    """A checkpoint that can be read: its folder, and how far the run was when it was saved."""

    path: pathlib.Path
    progress: Progress


class LearnerCheckpoints:
    """The checkpoints of one run's learner."""

    def __init__(self, experiment: Experiment, learner: ApexLearner):
        """Restore the learner from the newest checkpoint, if there is one."""
        self._folder = pathlib.Path(experiment.workdir, CHECKPOINTS)
        self._experiment = experiment
        self._learner = learner
        checkpoint = find_checkpoint(self._folder)
        newer = itertools.takewhile(
            lambda path: checkpoint is None or path != checkpoint.path,
            reversed(list_checkpoints(self._folder)),
        )
        # Put aside at the next save only: the file system may have failed for a moment.
        self._unreadable = list(newer)
        self._last_step = -1
        if checkpoint is not None:
            restore_checkpoint(checkpoint, learner.state)
            if "num_updates" in learner.state:  # A run that starts from another one counts from 0.
                learner.state["num_updates"].assign(checkpoint.progress.learner_steps)
            learner.resume()
            self._last_step = learner.num_steps  # This checkpoint is not written anew.
            logging.info("Resuming from %s", checkpoint.path.name)
        self._last_save = time.monotonic()

    def save_if_due(self) -> None:
        """Save a checkpoint if the last one is older than the config's period."""
        if time.monotonic() >= self._last_save + self._experiment.run.checkpoint_period_seconds:
            self.save()

    def save(self) -> bool:
        """Save a checkpoint, unless there is one of this learner step; return whether there is.

        Raises:
          FloatingPointError: a variable of the learner is not finite.
        """
        self._last_save = time.monotonic()
        state, step = self._learner.state, self._learner.num_steps
        progress = Progress(step, self._experiment.elapsed_seconds())
        if step == self._last_step:
            path = _checkpoint_path(self._folder, step) / CHECKPOINT_PROGRESS
            return write_json(path, dataclasses.asdict(progress))  # Only the wall time has changed.
        keep = self._experiment.run.num_checkpoints
        for path in self._unreadable:
            try_to_write(self._folder / _UNREADABLE, functools.partial(_put_aside, path))
        self._unreadable = []
        if save_checkpoint(self._folder, state, self._parameters(), progress, keep):
            self._last_step = step
        else:
            say(LACKS)
        return step == self._last_step

    def save_last(self) -> bool:
        """Save the learner at its end: a checkpoint, and the parameters in `last.npz`.

        Returns:
          Whether both are saved; why not is logged.

        Raises:
          FloatingPointError: a variable of the learner is not finite.
        """
        is_saved = self.save()
        path = pathlib.Path(self._experiment.workdir, LAST_CHECKPOINT)
        return save_parameters(path, self._parameters(), self._learner.num_steps) and is_saved

    def _parameters(self) -> dict[str, np.ndarray]:
        return by_variable_name(self._learner.variables, self._learner.get_all_variables())


def save_checkpoint(
    folder: pathlib.Path,
    state: Mapping[str, Any],
    parameters: Mapping[str, np.ndarray],
    progress: Progress,
    keep: int,
) -> bool:
    """Save a checkpoint and remove old ones; failures, such as a full disk, are logged.

    Args:
      folder: folder of all checkpoints.
      state: objects that `tf.train.Checkpoint` can hold (modules, optimizers, variables), by name.
      parameters: parameters of the policy, arrays by the names of their variables.
      progress: progress of the run.
      keep: number of checkpoints to keep, the newest ones.

    Returns:
      Whether the checkpoint was saved; if not, the older ones stay.
    """
    path = _checkpoint_path(folder, progress.learner_steps)
    partial = folder / f"{path.name}.partial"

    def write() -> None:
        partial.mkdir()
        # Within a function `write` does not wait for the operations of other threads, such as one
        # that reads from a replay whose host is gone.
        tf.function(tf.train.Checkpoint(**state).write, autograph=False)(str(partial / _STATE))
        _complete(partial, path, parameters, progress)

    for left in folder.glob("learner-*.partial"):  # Left by a process that was killed.
        remove(left)
    if not try_to_write(folder / "learner-*", write, (OSError, tf.errors.OpError)):
        remove(partial)
        return False
    # Checkpoints of later steps are from before the run was resumed at an earlier step: remove
    # them, too.
    checkpoints = list_checkpoints(folder)
    for other in set(checkpoints).difference([c for c in checkpoints if c <= path][-keep:]):
        remove(other)
    return True


def _complete(
    partial: pathlib.Path,
    path: pathlib.Path,
    parameters: Mapping[str, np.ndarray],
    progress: Progress,
) -> None:
    """Add parameters and progress to a checkpoint that holds a state, and give it its name."""
    (partial / PARAMETERS).write_bytes(encode_parameters(parameters, progress.learner_steps))
    (partial / CHECKPOINT_PROGRESS).write_text(json.dumps(dataclasses.asdict(progress)))
    # A corrupted checkpoint of this step may be left if the run was resumed from an earlier one.
    remove(path)
    partial.rename(path)


def _checkpoint_path(folder: pathlib.Path, learner_steps: int) -> pathlib.Path:
    return folder / f"learner-{learner_steps:012d}"


def _put_aside(path: pathlib.Path) -> None:
    """Rename a checkpoint, in place of one of that name that is aside already."""
    aside = path.with_name(f"{_UNREADABLE}-{path.name}")
    remove(aside)
    path.rename(aside)


def find_checkpoint(folder: pathlib.Path) -> Checkpoint | None:
    """Return the newest checkpoint that can be read, or None; log each one that cannot."""
    for path in reversed(list_checkpoints(folder)):
        try:
            progress = Progress(**json.loads((path / CHECKPOINT_PROGRESS).read_text()))
            reader = tf.train.load_checkpoint(str(path / _STATE))
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)  # Raises if its checksum is wrong.
            return Checkpoint(path, progress)
        except _READ_ERRORS as error:
            logging.warning("Checkpoint %s is corrupted and skipped: %s", path, error)
    return None


def find_progress(workdir: str) -> Progress:
    """Return the progress of a run's newest valid checkpoint; none if it has no checkpoint."""
    checkpoint = find_checkpoint(pathlib.Path(workdir, CHECKPOINTS))
    return Progress() if checkpoint is None else checkpoint.progress


def restore_checkpoint(checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
    """Assign the values of a checkpoint to a state, or to a part of one.

    Variables that do not exist yet, as before a module's first call, get theirs when they are made.

    Raises:
      AssertionError: a variable of the state is not in the checkpoint.
      ValueError: a variable has a different shape in the checkpoint.
    """
    status = tf.train.Checkpoint(**state).read(str(checkpoint.path / _STATE))
    status.expect_partial().assert_existing_objects_matched()


def is_of(checkpoint: Checkpoint, state: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint has the variables of a state, of these shapes, and no others."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, _STATE)
        tf.train.Checkpoint(**state).write(str(path))
        return _read_shapes(path) == _read_shapes(checkpoint.path / _STATE)


def _read_shapes(path: pathlib.Path) -> dict[str, list[int]]:
    return tf.train.load_checkpoint(str(path)).get_variable_to_shape_map()


def copy_to_step_0(checkpoint: Checkpoint, folder: pathlib.Path) -> None:
    """Copy a checkpoint of another run into the folder of checkpoints of a run that starts.

    Raises:
      ValueError: it cannot be copied, or has been removed meanwhile.
    """
    path = _checkpoint_path(folder, 0)
    partial = folder / f"{path.name}.partial"
    try:
        remove(partial)  # Left by a process that was killed.
        shutil.copytree(checkpoint.path, partial)
        _complete(partial, path, read_parameters(checkpoint.path).arrays, Progress())
    except OSError as error:
        raise ValueError(f"{checkpoint.path} cannot be copied to {path}: {error}") from error


def remove_old_checkpoints(folder: pathlib.Path, keep: int) -> None:
    """Remove all copies of a learner's checkpoints except the `keep` ones that came last.

    Times of modification are those of hosts whose clocks may differ.
    """
    progress = [path / CHECKPOINT_PROGRESS for path in list_checkpoints(folder)]
    saved = sorted(filter(pathlib.Path.exists, progress), key=lambda path: path.stat().st_ctime)
    for path in saved[:-keep]:
        remove(path.parent)


def list_checkpoints(folder: pathlib.Path) -> list[pathlib.Path]:
    """List the paths of all checkpoints, corrupted ones too, oldest first."""
    return sorted(folder.glob("learner-" + "[0-9]" * 12))


def find_parameters(workdir: pathlib.Path, checkpoint: str) -> pathlib.Path:
    """Find saved parameters by the name that a user gives them.

    Args:
      workdir: folder of the run.
      checkpoint: 'best' for the parameters of the best evaluation, 'last' for those of most
        learner steps, the name of a learner checkpoint ('learner-1234' is enough), or the path of a
        learner checkpoint or an `.npz` file.

    Returns:
      Path of a learner checkpoint or an `.npz` file.

    Raises:
      ValueError: there are no such parameters; the message lists those that exist.
    """
    checkpoint = os.path.expanduser(checkpoint)
    files = [workdir / BEST_CHECKPOINT, workdir / LAST_CHECKPOINT]
    checkpoints = list_checkpoints(workdir / CHECKPOINTS)
    paths = {path.stem: path for path in [*files, *checkpoints] if path.exists()}
    others = [path for name, path in paths.items() if name != BEST]
    if checkpoint == LAST and others:
        return max(others, key=_age_of)
    number = re.fullmatch(r"learner-(\d{1,12})", checkpoint)
    name = f"learner-{int(number[1]):012d}" if number else checkpoint
    if name in paths:
        return paths[name]
    if "/" in checkpoint or checkpoint.endswith(".npz"):
        path = pathlib.Path(checkpoint)
        if path.exists():
            return path
        raise ValueError(f"checkpoint={checkpoint}: there is no such file or folder.")
    if not paths:
        raise ValueError(
            f"{workdir} has no parameters yet: {BEST_CHECKPOINT} comes with the first "
            f"evaluation, {CHECKPOINTS}/learner-* after run.checkpoint_period_seconds."
        )
    raise ValueError(f"checkpoint={checkpoint} does not exist; there are {', '.join(paths)}.")


def _age_of(path: pathlib.Path) -> tuple[int, float]:
    """Return learner steps and the time of writing, which a copy may not have kept."""
    try:
        learner_steps = int(path.name.rpartition("-")[2]) if path.is_dir() else read_steps(path)
        return learner_steps, path.stat().st_mtime
    except (OSError, ValueError):  # The learner has removed it meanwhile, or it is damaged.
        return 0, 0.0


def is_of_run(path: pathlib.Path, workdir: pathlib.Path) -> bool:
    """Return whether parameters are in the folder of a run, which may be loaded with others."""
    return workdir.resolve() in path.resolve().parents
