"""The folder of one run: what is in it, and under which names."""

import collections
import contextlib
import dataclasses
import io
import json
import pathlib
import time
import uuid
from typing import Any

import numpy as np

from apex_agents.runs.io_failures import report_failure, report_success
from apex_agents.runs.locks import hold_lock, is_held

CONFIG_FILE = "config.json"
SUMMARY_FILE = "summary.json"
ACTOR_STEPS_FILE = "actor_steps.json"
NODES_FILE = "nodes.json"
CHECKPOINTS = "checkpoints"
REPLAY_CHECKPOINTS = "checkpoints/replay"
BEST_CHECKPOINT = "checkpoints/best.npz"
LAST_CHECKPOINT = "checkpoints/last.npz"
TENSORBOARD = "tensorboard"
EVALUATOR_CSV = "logs/evaluator.csv"
VIDEOS = "videos"
EVALUATIONS = "evaluations"

# In the config's file, beside its fields: the class of its agent's config.
AGENT_TYPE = "agent_type"

# What has to stay as it is when a run goes on.
_FIXED_SECTIONS = (AGENT_TYPE, "agent", "environment")

_LOCK_FILE = ".lock"
_RUN_ID_FILE = ".run_id"
_LEARNER_STEPS = "learner_steps"  # In an .npz, beside the variables.
_locks: list[Any] = []  # Open for as long as the process lives.
# The nodes of a launcher that was killed take a moment to leave.
_LOCK_WAIT_SECONDS = 5.0


def open_workdir(path: str | None, config_name: str, config: Any) -> str:
    """Make the folder of a new run, or take up that of a run that goes on; write the config.

    Args:
      path: the folder; None makes a new one in `runs/`.
      config_name: goes into the name of that new folder.
      config: the dataclass to write to `config.json`.

    Returns:
      The folder's absolute path.

    Raises:
      ValueError: the folder cannot be written, another command runs in it, or it holds a run of
        another agent or environment.
    """
    name = f"{config_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    workdir = pathlib.Path(path or pathlib.Path("runs", name))
    values = _to_json_values(config)
    if not _is_text(str(workdir)):
        raise ValueError(f"--workdir={workdir} has to be UTF-8 without NUL bytes.")
    try:
        workdir = workdir.expanduser().absolute()
        if (workdir / CONFIG_FILE).exists():
            check_same_run(workdir, config)
        make_folders(workdir)
        _lock(workdir)
        replace_file(workdir / CONFIG_FILE, _encode_json(values))
        (workdir / SUMMARY_FILE).unlink(missing_ok=True)  # Of the end before.
    except OSError as error:
        raise ValueError(f"--workdir={workdir} cannot be written: {error.strerror}.") from error
    except RuntimeError as error:  # A ~ that stands for nobody's home.
        raise ValueError(f"--workdir={workdir} cannot be found: {error}") from error
    return str(workdir)


def make_folders(workdir: pathlib.Path) -> None:
    """Make what nodes write into, or raise an OSError."""
    for folder in ("logs", CHECKPOINTS):
        (workdir / folder).mkdir(parents=True, exist_ok=True)


def _to_json_values(config: Any) -> dict[str, Any]:
    """Return the fields as JSON gives them back, and which class the agent's are of."""
    agent = getattr(config, "agent", None)
    agent_type = {AGENT_TYPE: type(agent).__name__} if dataclasses.is_dataclass(agent) else {}
    return json.loads(json.dumps({**agent_type, **dataclasses.asdict(config)}))


def _is_text(path: str) -> bool:
    """Return whether TensorFlow can open a path; Python opens some more."""
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


def _lock(workdir: pathlib.Path) -> None:
    """Keep others out of the folder while this process or one that inherits the lock lives."""
    try:
        _locks.append(hold_lock(workdir / _LOCK_FILE, _LOCK_WAIT_SECONDS))
    except BlockingIOError as error:
        raise ValueError(f"--workdir={workdir} is in use: a run goes on in it.") from error


def is_locked(workdir: pathlib.Path) -> bool:
    """Return whether a process of a run that goes on in a folder lives on this machine."""
    return is_held(workdir / _LOCK_FILE)


def lock_descriptors() -> list[int]:
    """Return what a process has to inherit so that a folder stays locked while it lives."""
    return [file.fileno() for file in _locks]


def check_same_run(workdir: pathlib.Path, config: Any) -> None:
    """Raise a ValueError if the folder's run is not one that this config can go on with."""
    values = _to_json_values(config)
    try:
        before = json.loads((workdir / CONFIG_FILE).read_text())
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise ValueError(f"--workdir={workdir}: {CONFIG_FILE} cannot be read; name another folder.")
    for section in _FIXED_SECTIONS:
        if section == AGENT_TYPE and section not in before:  # Written by an earlier version.
            continue
        difference = _first_difference(before.get(section), values.get(section), section)
        if difference is not None:
            field, old, new = difference
            raise ValueError(
                f"--workdir={workdir} holds a run with {field} {old!r}, not {new!r}; only "
                "fields of run can change when it goes on."
            )


def _first_difference(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the path of the first field that differs and its two values, None if none does."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return (path, old, new) if old != new else None
    for name in {**old, **new}:
        difference = _first_difference(old.get(name), new.get(name), f"{path}.{name}")
        if difference is not None:
            return difference
    return None


def read_run_id(workdir: str) -> str:
    """Return the id of the folder's run, which stays the same when the run goes on.

    Raises:
      ValueError: it cannot be written.
    """
    path = pathlib.Path(workdir, _RUN_ID_FILE)
    try:
        if not path.exists():
            replace_file(path, uuid.uuid4().hex[:12].encode())
        return path.read_text()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}.") from error


def write_json(path: pathlib.Path, value: Any) -> bool:
    """Write a file that is complete or not there at all.

    Returns:
      Whether it was written; if not, because of a full disk for example, a warning says why, and
      what was there before stays.
    """
    return _try_to_replace(path, _encode_json(value))


def save_variables(path: pathlib.Path, variables: dict[str, list[np.ndarray]]) -> bool:
    """Write arrays to an .npz file that is complete or not there at all.

    Args:
      path: the file.
      variables: arrays by name; array i of name n is stored as `n/i`.

    Returns:
      Whether it was written, as for `write_json`.
    """
    arrays = {f"{name}/{i}": a for name, group in variables.items() for i, a in enumerate(group)}
    content = io.BytesIO()  # Closing a zip file on a full disk would raise other errors, too.
    np.savez(content, **arrays)
    return _try_to_replace(path, content.getbuffer())


def load_variables(path: pathlib.Path) -> dict[str, list[np.ndarray]]:
    """Read what `save_variables` wrote; nothing in the file is executed."""
    with np.load(path, allow_pickle=False) as arrays:
        counts = collections.Counter(key.rpartition("/")[0] for key in arrays)
        return {
            name: [arrays[f"{name}/{i}"] for i in range(count)] for name, count in counts.items()
        }


def save_parameters(
    path: pathlib.Path, variables: dict[str, list[np.ndarray]], learner_steps: int
) -> bool:
    """Write what a policy needs and the updates that led to it, as `save_variables` does."""
    return save_variables(path, {**variables, _LEARNER_STEPS: [np.asarray(learner_steps)]})


def load_parameters(path: pathlib.Path) -> tuple[dict[str, list[np.ndarray]], int | None]:
    """Read what `save_parameters` wrote; older files do not tell the updates."""
    variables = load_variables(path)
    (learner_steps,) = variables.pop(_LEARNER_STEPS, [None])
    return variables, None if learner_steps is None else int(learner_steps)


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def _try_to_replace(path: pathlib.Path, content: bytes | memoryview) -> bool:
    try:
        replace_file(path, content)
    except OSError as error:
        report_failure(path, error)
        return False
    report_success(path)
    return True


def replace_file(path: pathlib.Path, content: bytes | memoryview) -> None:
    """Write a file that takes its name when it is complete, or raise an OSError."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
