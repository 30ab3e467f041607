"""Opens the folder of an experiment's run, new or to be resumed, and keeps other commands out."""

import dataclasses
import logging
import os
import pathlib
import uuid
from typing import IO, Any

from apex_agents.environments import SpecRecord, record_spec
from apex_agents.experiment import Experiment, Progress
from apex_agents.runs.checkpoints import find_progress
from apex_agents.runs.config_file import (
    CONFIG_FILE,
    check_same_run,
    check_same_spec,
    read_spec,
    read_values,
    to_file,
)
from apex_agents.runs.csv_file import end_rows
from apex_agents.runs.files import (
    encode_json,
    hold_lock,
    read_json,
    remove,
    replace_file,
    write_json,
)
from apex_agents.runs.workdir import (
    AGENT_FILE,
    BEST_CHECKPOINT,
    CHECKPOINTS,
    LOCK_FILE,
    LOGS,
    NODES_FILE,
    SUMMARY_FILE,
    actor_steps_file,
    check_path,
    make_folders,
    replay_folder,
)

_RUN_ID_FILE = ".run_id"

# Locks that this process holds, by the absolute paths of their folders.
_locks: dict[str, IO[str]] = {}


def open_run(experiment: Experiment) -> Experiment:
    """Take over the folder of an experiment, which this process keeps locked.

    Args:
      experiment: experiment with a `workdir`. One without a `config`, or one that this function has
        returned, is returned as it is.

    Returns:
      The experiment with the absolute path of its folder, and the id and progress of its run.

    Raises:
      ValueError: there is no `workdir`, it cannot be written, another command runs in it, or it
        holds a different run, or one of an environment with a different spec.
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
        end_rows(path)  # Marks earlier rows as those of ended processes.
    return dataclasses.replace(
        experiment,
        workdir=workdir,
        run_id=read_run_id(workdir),
        resumed_at=find_progress(workdir),
    )


def open_workdir(
    path: str, config: Any, wait_seconds: float = 5.0, spec: SpecRecord | None = None
) -> str:
    """Make the folder of a new run, or take over that of a run to resume, and write the config.

    It is locked until `close_workdir`, or until all processes with its lock descriptor have ended.

    Args:
      path: path of the folder, see `new_workdir`.
      config: dataclass to write to `config.json`.
      wait_seconds: seconds to wait for a lock; nodes of a killed launcher take a moment to exit.
      spec: record of the environment's spec, for `config.json`, too.

    Returns:
      The folder's absolute path.

    Raises:
      ValueError: the folder cannot be written, another command runs in it, or it holds a run of a
        different agent or environment, or one whose spec was different.
    """
    workdir = pathlib.Path(path)
    try:
        workdir = workdir.expanduser().absolute()
        check_path(workdir)
        if (workdir / AGENT_FILE).exists():
            raise ValueError(f"The folder {workdir} holds an agent, not a run; name a new folder.")
        if (workdir / CONFIG_FILE).exists():
            check_same_run(workdir, config)
            check_same_spec(workdir, spec or {})
            spec = spec or read_spec(workdir)
        elif others := [name for name in (SUMMARY_FILE, NODES_FILE) if (workdir / name).exists()]:
            raise ValueError(
                f"The folder {workdir} holds {others[0]}, but no run; name a new folder."
            )
        make_folders(workdir)
        lock = hold_lock(workdir / LOCK_FILE, wait_seconds)
        try:
            _begin_best_anew(workdir, config)
            replace_file(workdir / CONFIG_FILE, encode_json(to_file(config, spec)))
            for file in (SUMMARY_FILE, NODES_FILE):  # Both describe the previous end of the run.
                (workdir / file).unlink(missing_ok=True)
        except BaseException:
            lock.close()
            raise
    except BlockingIOError as error:
        raise ValueError(f"The folder {workdir} is in use: another command runs in it.") from error
    except OSError as error:
        raise ValueError(f"The folder {workdir} cannot be written: {error.strerror}.") from error
    except RuntimeError as error:  # `~name` of an unknown user.
        raise ValueError(f"The folder {workdir} cannot be found: {error}") from error
    _locks[str(workdir)] = lock
    return str(workdir)


def _begin_best_anew(workdir: pathlib.Path, config: Any) -> None:
    """Rename the best parameters if episodes have another limit now: returns do not compare."""
    best = workdir / BEST_CHECKPOINT
    if not (best.exists() and (workdir / CONFIG_FILE).exists()):
        return
    before = read_values(workdir)["environment"].get("max_episode_steps")
    if before != config.environment.max_episode_steps:
        aside = best.rename(best.with_name(f"best_with_max_episode_steps_{before}.npz"))
        logging.warning("The best parameters are those of new evaluations; before: %s", aside)


def find_open(path: str) -> str | None:
    """Return the absolute path of a folder that this process holds, None if it does not."""
    workdir = str(pathlib.Path(os.path.expanduser(path)).absolute())
    return workdir if workdir in _locks else None


def close_workdir(workdir: str) -> None:
    """Release the lock that `open_workdir` took in this process."""
    _locks.pop(workdir).close()


def lock_descriptors() -> list[int]:
    """Return the descriptors that keep the open folders locked in a process that inherits them."""
    return [file.fileno() for file in _locks.values()]


def read_run_id(workdir: str) -> str:
    """Return the id that a run keeps when it is resumed; a ValueError if it cannot be written."""
    path = pathlib.Path(workdir, _RUN_ID_FILE)
    try:
        if not path.exists():
            replace_file(path, uuid.uuid4().hex[:12].encode())
        return path.read_text()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}.") from error


def share_actor_steps(workdir: pathlib.Path, num_replays: int) -> None:
    """Share out the steps that a run's replay servers have counted, if their number has changed.

    Meanwhile a file has all of them, so that none is lost or doubled if this is interrupted.
    """
    paths, total = sorted(workdir.glob("actor_steps*.json")), workdir / "all_actor_steps.json"
    wanted = [workdir / actor_steps_file(index) for index in range(num_replays)]
    if not total.exists() and (not paths or set(paths) == set(wanted)):
        return
    count = sum(sum(read_counts(path)) for path in ([total] if total.exists() else paths))
    each, rest = divmod(count, num_replays)
    shares = {total: count, **{path: each + (i < rest) for i, path in enumerate(wanted)}}
    if not all(write_json(path, share) for path, share in shares.items()):
        raise ValueError(f"{workdir}: the actor steps of its replays cannot be written.")
    for path in [*set(paths).difference(wanted), total]:
        path.unlink(missing_ok=True)


def read_counts(path: pathlib.Path) -> list[int]:
    """Read the steps of a replay server's actors, by their index, or all of them as one number."""
    found = read_json(path)
    counts = found if isinstance(found, list) else [found]
    if not all(isinstance(count, int) for count in counts):
        logging.warning("%s cannot be read, its actor steps are lost.", path)
        return []
    return counts


def warning_of_resumption(experiment: Experiment) -> str | None:
    """Return a warning if a run has no checkpoint of its learner, or cannot fill its replay.

    The latter is that of a run whose limit leaves less than an empty replay needs.
    """
    run, flow = experiment.run, experiment.data_flow()
    paths = pathlib.Path(experiment.workdir).glob("actor_steps*.json")
    counted = sum(sum(read_counts(path)) for path in paths)
    if counted and experiment.resumed_at == Progress():
        return (
            f"{experiment.workdir} has no checkpoint of a learner step: learning begins anew, with "
            f"{counted:,} actor steps that are counted already. For a new run name another folder."
        )
    if run.max_actor_steps is None or run.replay_checkpoint_period_seconds is not None:
        return None
    left = run.max_actor_steps - counted
    if counted == 0 or left <= 0 or left >= flow.usual_min_steps:
        return None
    return (
        f"{left:,} of {run.max_actor_steps:,} actor steps are left, but the replay begins empty, "
        f"and the learner starts at {flow.usual_min_steps:,} steps, by {flow.min_size_field}: "
        "nothing more will be learned. Raise run.max_actor_steps."
    )


def remove_other_replays(workdir: pathlib.Path, num_replays: int) -> None:
    """Remove saved replays of a different number of servers: their tables differ in size."""
    kept = {replay_folder(index, num_replays) for index in range(num_replays)}
    for path in (workdir / CHECKPOINTS).glob("replay*"):
        if path.name not in kept and "-damaged-" not in path.name:
            logging.warning("%s is removed: it was saved with a different number of replays.", path)
            remove(path)
