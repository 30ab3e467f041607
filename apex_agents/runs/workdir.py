"""The folder of a run: the names of its files, and paths that it can have."""

import contextlib
import itertools
import pathlib
import re
import sys
import time
from collections.abc import Iterator

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
# The node that applies the gradients of several learners, and writes the files of the learner.
PARAMETER_SERVER = "parameter_server"

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


def make_new_folder(path: pathlib.Path) -> pathlib.Path:
    """Make a folder and return it, with a number behind its name if there is one of that name.

    Raises:
      ValueError: it cannot be made.
    """
    folder = path
    for number in itertools.count(2):
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError as error:
            if not folder.exists():
                raise ValueError(
                    f"The folder {folder} cannot be written: {folder.parent} is a file, or a link "
                    "to a folder that is gone."
                ) from error
            folder = path.with_name(f"{path.name}-{number}")
        except OSError as error:
            raise ValueError(f"The folder {folder} cannot be written: {error.strerror}.") from error
    return folder


@contextlib.contextmanager
def new_workdir(name: str) -> Iterator[str]:
    """Make a folder in `runs/` that no other command has; it goes if nothing is written into it.

    Args:
      name: beginning of its name, or of its absolute path if it is to be elsewhere; the time
        follows, and a number if there is one of that second.

    Raises:
      ValueError: it cannot be made.
    """
    folder = pathlib.Path("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    is_first = not folder.parent.exists()
    folder = make_new_folder(folder).absolute()
    try:
        yield str(folder)
    finally:
        with contextlib.suppress(OSError):  # It is not empty.
            folder.rmdir()
            if is_first:
                folder.parent.rmdir()


def make_folders(workdir: pathlib.Path) -> None:
    """Make the folders into which nodes write, or raise an OSError."""
    for folder in (LOGS, CHECKPOINTS):
        (workdir / folder).mkdir(parents=True, exist_ok=True)
