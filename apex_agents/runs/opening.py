"""Opens the folder of an experiment's run, new or to be resumed."""

import dataclasses
import json
import logging
import pathlib
import shutil

from apex_agents.environments import record_spec
from apex_agents.experiment import Experiment
from apex_agents.runs.checkpoints import find_progress
from apex_agents.runs.config_file import check_same_run
from apex_agents.runs.csv_file import end_rows
from apex_agents.runs.files import write_json
from apex_agents.runs.workdir import (
    CHECKPOINTS,
    LOGS,
    actor_steps_file,
    close_workdir,
    find_open,
    open_workdir,
    read_run_id,
    replay_folder,
)


def open_run(experiment: Experiment) -> Experiment:
    """Take over the folder of an experiment, which this process keeps locked.

    Args:
      experiment: experiment with a `workdir`. One without a `config`, or one that this function has
        returned, is returned as it is.

    Returns:
      The experiment with the absolute path of its folder, and the id and progress of its run.

    Raises:
      ValueError: there is no `workdir`, it cannot be written, another command runs in it, or it
        holds another run, or one of an environment whose spec was another.
    """
    if not experiment.workdir:
        raise ValueError(
            "The experiment has no folder for its logs and checkpoints: give it one, as in "
            "make_experiment(config, workdir='runs/first')."
        )
    if experiment.config is None or experiment.run_id:
        return experiment
    workdir = find_open(experiment.workdir)
    if workdir is not None:
        check_same_run(pathlib.Path(workdir), experiment.config)
        return _open(experiment, workdir)
    spec = record_spec(experiment.spec) if experiment.spec else None
    workdir = open_workdir(experiment.workdir, experiment.config, spec=spec)
    try:
        return _open(experiment, workdir)
    except BaseException:  # A notebook that is interrupted keeps no lock.
        close_workdir(workdir)
        raise


def _open(experiment: Experiment, workdir: str) -> Experiment:
    share_actor_steps(pathlib.Path(workdir), experiment.run.num_replays)
    remove_other_replays(pathlib.Path(workdir), experiment.run.num_replays)
    for path in pathlib.Path(workdir, LOGS).glob("*.csv"):
        end_rows(path)  # Readers take no row from before for one of the nodes that start now.
    return dataclasses.replace(
        experiment,
        workdir=workdir,
        run_id=read_run_id(workdir),
        resumed_at=find_progress(workdir),
    )


def share_actor_steps(workdir: pathlib.Path, num_replays: int) -> None:
    """Share out the steps that a run's replay servers have counted, if their number has changed.

    Meanwhile a file has all of them, so that none is lost or doubled if this is interrupted.
    """
    paths, total = sorted(workdir.glob("actor_steps*.json")), workdir / "all_actor_steps.json"
    wanted = [workdir / actor_steps_file(index) for index in range(num_replays)]
    if not total.exists() and (not paths or set(paths) == set(wanted)):
        return
    count = sum(map(_read_count, [total] if total.exists() else paths))
    each, rest = divmod(count, num_replays)
    shares = {total: count, **{path: each + (i < rest) for i, path in enumerate(wanted)}}
    if not all(write_json(path, share) for path, share in shares.items()):
        raise ValueError(f"{workdir}: the actor steps of its replays cannot be written.")
    for path in [*set(paths).difference(wanted), total]:
        path.unlink(missing_ok=True)


def _read_count(path: pathlib.Path) -> int:
    try:
        return int(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        logging.warning("%s cannot be read, its actor steps are lost: %s", path, error)
        return 0


def warning_of_resumption(experiment: Experiment) -> str | None:
    """Return a warning if a run begins with an empty replay that its limit does not let fill."""
    run, flow = experiment.run, experiment.data_flow()
    if run.max_actor_steps is None or run.replay_checkpoint_period_seconds is not None:
        return None
    counted = sum(map(_read_count, pathlib.Path(experiment.workdir).glob("actor_steps*.json")))
    left = run.max_actor_steps - counted
    if counted == 0 or left <= 0 or left >= flow.min_size:
        return None
    return (
        f"{left:,} of {run.max_actor_steps:,} actor steps are left, but the replay begins empty, "
        f"and the learner starts at {flow.min_size:,} transitions, by {flow.min_size_field}: "
        "nothing more will be learned. Raise run.max_actor_steps."
    )


def remove_other_replays(workdir: pathlib.Path, num_replays: int) -> None:
    """Remove saved replays of another number of servers: they have other sizes."""
    kept = {replay_folder(index, num_replays) for index in range(num_replays)}
    for path in (workdir / CHECKPOINTS).glob("replay*"):
        if path.name not in kept and "-damaged-" not in path.name:
            logging.warning("%s is removed: it is of another number of replays.", path)
            shutil.rmtree(path, ignore_errors=True)
