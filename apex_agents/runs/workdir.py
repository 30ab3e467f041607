"""The folder of a run: the names of its files, and the lock that keeps other commands out."""

import contextlib
import itertools
import os
import pathlib
import re
import sys
import time
import uuid
from collections.abc import Iterator
from typing import IO, Any

from apex_agents.environments import SpecRecord
from apex_agents.runs.config_file import (
    CONFIG_FILE,
    check_same_run,
    check_same_spec,
    read_spec,
    to_file,
)
from apex_agents.runs.files import encode_json, hold_lock, replace_file

SUMMARY_FILE = "summary.json"
NODES_FILE = "nodes.json"
AGENT_FILE = "agent.json"  # In the folder of an agent that was handed on; no run has one.
LOGS = "logs"
CHECKPOINTS = "checkpoints"
BEST_CHECKPOINT = "checkpoints/best.npz"
LAST_CHECKPOINT = "checkpoints/last.npz"
CHECKPOINT_PROGRESS = "progress.json"  # The last file of a checkpoint that is written.
TENSORBOARD = "tensorboard"
VIDEOS = "videos"
EVALUATIONS = "evaluations"
LOCK_FILE = ".lock"

_RUN_ID_FILE = ".run_id"
_PATTERN = "[]*?\\"  # Characters.


def replay_name(index: int) -> str:
    """Return the name of a replay server and its node."""
    return f"replay_{index}" if index else "replay"


def replay_folder(index: int, num_replays: int) -> str:
    """Return the name of the folder, within `CHECKPOINTS`, of a replay that is saved."""
    return f"replay_{index}_of_{num_replays}" if num_replays > 1 else "replay"


def parse_replay_name(name: str) -> int | None:
    """Return the index of the replay server with a name; None if it names something else."""
    match = re.fullmatch(r"replay(?:_(\d+))?", name)
    return int(match[1] or 0) if match else None


def actor_steps_file(index: int) -> str:
    """Return the name of the file with the steps of a replay server's actors."""
    return f"actor_steps_{index}.json" if index else "actor_steps.json"


# Locks that this process holds, by the absolute paths of their folders.
_locks: dict[str, IO[str]] = {}


def open_workdir(
    path: str, config: Any, wait_seconds: float = 5.0, spec: SpecRecord | None = None
) -> str:
    """Make the folder of a new run, or take over that of a run to resume, and write the config.

    It is locked until `close_workdir`, or until all processes with its lock descriptor have ended.

    Args:
      path: path of the folder, see `new_workdir`.
      config: dataclass to write to `config.json`.
      wait_seconds: seconds to wait for a lock; nodes of a killed launcher take a moment to exit.
      spec: what is known of the environment, for `config.json`, too.

    Returns:
      The folder's absolute path.

    Raises:
      ValueError: the folder cannot be written, another command runs in it, or it holds a run of
        another agent or environment, or one whose spec was another.
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
        make_folders(workdir)
        lock = hold_lock(workdir / LOCK_FILE, wait_seconds)
        try:
            replace_file(workdir / CONFIG_FILE, encode_json(to_file(config, spec)))
            for file in (SUMMARY_FILE, NODES_FILE):  # How the run ended the last time.
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


def check_path(workdir: pathlib.Path) -> None:
    """Raise a ValueError if other libraries cannot open a path that Python can.

    TensorFlow and Reverb take it as UTF-8, and read patterns in it.
    """
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8" and not str(workdir).isascii():
        raise ValueError(
            f"The folder {str(workdir)!a} needs a path of ASCII text in this process, whose "
            f"locale has the encoding {encoding}; or set PYTHONUTF8=1."
        )
    if not str(workdir).isprintable() or set(_PATTERN).intersection(str(workdir)):
        raise ValueError(
            f"The folder {workdir} needs a path of printable text without any of {_PATTERN}, in "
            "UTF-8"
        )


@contextlib.contextmanager
def new_workdir(name: str) -> Iterator[str]:
    """Make a folder in `runs/` that no other command has; it goes if nothing is written into it.

    Args:
      name: beginning of its name, or of its absolute path if it is to be elsewhere; the time
        follows, and a number if there is one of that second.

    Raises:
      ValueError: it cannot be made.
    """
    name = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    first = folder = pathlib.Path("runs", name)
    is_first = not folder.parent.exists()
    for number in itertools.count(2):
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            folder = first.with_name(f"{first.name}-{number}")
        except OSError as error:
            raise ValueError(f"The folder {folder} cannot be written: {error.strerror}.") from error
    folder = folder.absolute()
    try:
        yield str(folder)
    finally:
        with contextlib.suppress(OSError):  # It is not empty.
            folder.rmdir()
            if is_first:
                folder.parent.rmdir()


def find_open(path: str) -> str | None:
    """Return the absolute path of a folder that this process holds, None if it does not."""
    workdir = str(pathlib.Path(os.path.expanduser(path)).absolute())
    return workdir if workdir in _locks else None


def close_workdir(workdir: str) -> None:
    """Release the lock that `open_workdir` took in this process."""
    _locks.pop(workdir).close()


def make_folders(workdir: pathlib.Path) -> None:
    """Make the folders into which nodes write, or raise an OSError."""
    for folder in (LOGS, CHECKPOINTS):
        (workdir / folder).mkdir(parents=True, exist_ok=True)


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
