"""Opens the folder of an experiment's run, new or to be resumed."""

import contextlib
import dataclasses
import itertools
import json
import pathlib

from apex_agents.experiment import Experiment
from apex_agents.runs.checkpoints import find_progress
from apex_agents.runs.files import write_json
from apex_agents.runs.workdir import actor_steps_file, find_open, open_workdir, read_run_id


def open_run(experiment: Experiment) -> Experiment:
    """Take over the folder of an experiment, which this process keeps locked.

    Args:
      experiment: experiment with a `workdir`. One without a `config`, or one that this function has
        returned, is returned as it is.

    Returns:
      The experiment with the absolute path of its folder, and the id and progress of its run.

    Raises:
      ValueError: there is no `workdir`, it cannot be written, another command runs in it, or it
        holds another run.
    """
    if not experiment.workdir:
        raise ValueError(
            "The experiment has no folder for its logs and checkpoints: give it one, as in "
            "make_experiment(config, workdir='runs/first')."
        )
    if experiment.config is None or experiment.run_id:
        return experiment
    workdir = find_open(experiment.workdir) or open_workdir(experiment.workdir, experiment.config)
    move_actor_steps(pathlib.Path(workdir), experiment.run.num_replays)
    return dataclasses.replace(
        experiment,
        workdir=workdir,
        run_id=read_run_id(workdir),
        resumed_at=find_progress(workdir),
    )


def move_actor_steps(workdir: pathlib.Path, num_replays: int) -> None:
    """Let the first replay server count the steps of servers that the run had, and has no more."""
    for index in itertools.count(num_replays):
        path = workdir / actor_steps_file(index)
        if not path.exists():
            return
        with contextlib.suppress(ValueError, OSError):
            first = workdir / actor_steps_file(0)
            write_json(first, json.loads(first.read_text()) + json.loads(path.read_text()))
        path.unlink()
