"""Writes a trained agent into a folder to hand on: its parameters, its settings, a model card.

Evaluation, playing, export and `load` take the folder as they take that of a run; nothing else of
the run is in it.
"""

import json
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from apex_agents.config import ExperimentConfig
from apex_agents.evaluation.parameters import (
    SavedParameters,
    assign,
    is_of_run,
    read_parameters,
)
from apex_agents.export import ExportError, record_observations
from apex_agents.loading import TrainedPolicy, load
from apex_agents.metrics import columns
from apex_agents.metrics.run_state import format_return
from apex_agents.registry import CONFIG_CLASSES, has_standard_policy
from apex_agents.runs.config_file import (
    CONFIG_FILE,
    ENVIRONMENT_SPEC,
    agent_name,
    read_config,
    read_spec,
    read_values,
)
from apex_agents.runs.files import encode_json, replace_file
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.parameter_file import by_variable_name, encode_parameters
from apex_agents.runs.workdir import AGENT_FILE, BEST_CHECKPOINT, EVALUATIONS, SUMMARY_FILE
from apex_agents.user_code import CONFIG_MODULE

CARD = "README.md"
# Greatest difference of outputs, relative to the greatest of them. Rounding to 11 bits changes
# those of trained policies by 0.0005 to 0.012.
_HALF_TOLERANCE = 2**-5
_TRAINING = "training"  # In `AGENT_FILE`: what is known of it.
_LICENSE = "license"
# Folders in a word of a command: at its beginning, or behind a character that ends a name.
_FOLDERS = re.compile(r"(?<![\w.~/-])(~|\.{1,2})?(/[^/\"']*)*/(?=[^/])")


class WrittenAgent(NamedTuple):
    """What was written.

    Attributes:
      parameters: as they are in the file.
      difference: greatest difference of the outputs of a network that was rounded, None of others.
    """

    parameters: SavedParameters
    difference: float | None


def write_agent_folder(
    workdir: pathlib.Path,
    output: pathlib.Path,
    checkpoint: str,
    half_precision: bool,
    license_name: str | None = None,
) -> WrittenAgent:
    """Write an agent of a run.

    Args:
      workdir: folder of the run, or another agent's.
      output: a new or empty folder, or one that this function has written before.
      checkpoint: see `find_parameters`.
      half_precision: whether to round what is trained to float16, for files of half the size.
      license_name: what others may do with it, as 'Apache-2.0'; None for that of the agent that is
        handed on again, if any.

    Raises:
      ValueError: there is no such run or checkpoint, its environment or network cannot be made,
        `output` holds something else, or a parameter is too large for float16.
      ExportError: with `half_precision` the network computes something else.
      OSError: the folder cannot be written.
    """
    is_ours = (output / AGENT_FILE).exists()
    if not is_ours and output.is_dir() and any(output.iterdir()):
        raise ValueError(f"{output} holds something else than an agent; name a new folder.")
    values = read_values(workdir)
    with_standard_builder = {**values, "agent": {**values.get("agent", {}), "builder": "standard"}}
    _require_modules(workdir, with_standard_builder)
    policy = _load_from_settings_alone(workdir, checkpoint)
    if has_standard_policy(policy.config.agent):
        values = with_standard_builder  # What else its own one makes is not handed on.
    _require_modules(workdir, values)
    parameters = read_parameters(policy.path)
    is_own = is_of_run(policy.path, workdir)
    described = dict(_describe(policy.config, parameters, half_precision))
    training = dict(_describe_training(workdir, parameters) if is_own else ())
    if license_name:
        training[_LICENSE] = license_name
    difference = None
    if half_precision:
        parameters = parameters._replace(arrays=_round_trained(policy, parameters.arrays))
        difference = _compare(policy, parameters)
    files: dict[str, bytes | memoryview] = {
        AGENT_FILE: encode_json({"agent": described, _TRAINING: training}),
        BEST_CHECKPOINT: encode_parameters(parameters.arrays, parameters.learner_steps),
        CONFIG_FILE: encode_json({**values, ENVIRONMENT_SPEC: read_spec(workdir)}),
        CARD: make_card(policy.config, {**described, **training}).encode(),
    }
    for name, content in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(output / name, content)
    return WrittenAgent(parameters, difference)


def _require_modules(workdir: pathlib.Path, values: Mapping[str, object]) -> None:
    text = json.dumps(values)
    if "__main__:" in text or CONFIG_MODULE in text:
        raise ValueError(
            f"{workdir} was trained with a function of a script or notebook or of its config file, "
            "which others do not have; an agent to hand on needs it in a module."
        )


def _load_from_settings_alone(workdir: pathlib.Path, checkpoint: str) -> TrainedPolicy:
    """Load a policy; raise a ValueError if others, who have only its settings, could not."""
    try:
        read_config(workdir, CONFIG_CLASSES.values(), with_file=False)
    except ValueError as error:
        load(workdir, checkpoint)  # It says so itself if something else is wrong.
        raise ValueError(
            f"{error}. The run's config file or script registers it, which others lack; an agent "
            "to hand on needs it in a module, such as 'my_envs:Name-v0'."
        ) from error
    return load(workdir, checkpoint)


def make_card(config: ExperimentConfig, rows: Mapping[str, object]) -> str:
    """Return the model card of an agent, in Markdown."""
    return f"""# {config.environment.task} by {agent_name(type(config.agent).__name__)}

| | |
|---|---|
{"".join(f"| {name} | {value} |{chr(10)}" for name, value in rows.items())}
```
apex-evaluate FOLDER --output=evaluation    # Its returns.
apex-play FOLDER                            # An episode in a window.
```

`FOLDER` is this one. In Python, `apex_agents.load(FOLDER)` returns the policy. All settings are in
`{CONFIG_FILE}`; the config that the command names may have changed since. They may name modules of
Python, which these commands import: use only agents that you trust.
"""


def _describe(
    config: ExperimentConfig, parameters: SavedParameters, half_precision: bool
) -> Iterator[tuple[str, object]]:
    size = sum(array.size for array in parameters.arrays.values())
    yield "task", f"{config.environment.task}, suite {config.environment.suite}"
    yield "parameters", f"{size:,}{', rounded to float16' if half_precision else ''}"
    yield "learner steps", f"{parameters.learner_steps:,}"
    yield "seed", config.run.seed


def _describe_training(
    workdir: pathlib.Path, parameters: SavedParameters
) -> Iterator[tuple[str, object]]:
    """Say how long it was trained and what it returned, as far as the folder's files tell.

    Returns are those before any rounding.
    """
    if (workdir / AGENT_FILE).exists():  # An agent is handed on again.
        yield from json.loads((workdir / AGENT_FILE).read_text())[_TRAINING].items()
        return
    run = RunFolder(workdir)
    summary, table = run.summary() or {}, run.read_columns(columns.EVALUATOR)
    steps = table.get(columns.LEARNER_STEPS, np.empty(0))
    for row in np.flatnonzero(steps == parameters.learner_steps)[-1:]:
        values = {name: column[row] for name, column in table.items()}
        yield "agent steps", f"{values[columns.ACTOR_STEPS]:,.0f}"
        yield "wall time", f"{values[columns.WALL_TIME_SECONDS] / 60:,.1f} min"
        returns = format_return(values[columns.MEAN_RETURN], values[columns.STANDARD_ERROR])
        yield "return when it was saved", f"{returns}, {values['num_episodes']:.0f} episodes"
    for path in sorted((workdir / EVALUATIONS).glob(f"*/{SUMMARY_FILE}")):
        found = _read_evaluation(path)
        is_own = "/" not in str(found.get("checkpoint"))  # No parameters of another run.
        if is_own and found.get("learner_steps") == parameters.learner_steps:
            returns = format_return(found["mean_return"], found["standard_error"])
            epsilon = "" if found.get("epsilon") is None else f", epsilon {found['epsilon']:g}"
            what = f"{found['episodes']:,} episodes, seed {found['seed']}{epsilon}"
            yield f"return of `{path.parent.name}`", f"{returns}, {what}"
    if summary.get("command"):
        yield "command", f"`{_without_folders(summary['command'])}`"
    for name in ("git_commit", "date"):
        if summary.get(name):
            yield name.replace("_", " "), f"`{summary[name]}`"
    versions = summary.get("versions") or {}
    if versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())


def _without_folders(command: str) -> str:
    """Leave out of a command what it says of the machine it was given on."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word == "--workdir":
            next(words, None)
        elif not word.startswith("--workdir="):
            kept.append(_FOLDERS.sub("", word))
    return shlex.join(kept)


def _read_evaluation(path: pathlib.Path) -> dict:
    """Return the summary of an evaluation, {} if it is being written, or is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    names = {"learner_steps", "mean_return", "standard_error", "episodes", "seed"}
    return found if isinstance(found, dict) and names <= found.keys() else {}


def _round_trained(
    policy: TrainedPolicy, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays of which those of trained variables are float16.

    Others, such as the statistics of observations, are what inputs are compared with: a mean of
    1000.37 would be off by many of their standard deviations.
    """
    variables = by_variable_name(policy.variables, policy.variables)
    return {
        name: _to_half(name, array) if variables[name].trainable else array
        for name, array in arrays.items()
    }


def _to_half(name: str, array: np.ndarray) -> np.ndarray:
    if not np.issubdtype(array.dtype, np.floating):
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if not np.isfinite(half).all():
        raise ValueError(f"{name} has values of up to {np.abs(array).max():g}, beyond float16.")
    return half


def _compare(policy: TrainedPolicy, parameters: SavedParameters) -> float:
    """Return by how much a policy's outputs change with parameters, which are assigned to it."""
    observations = tf.convert_to_tensor(record_observations(policy))
    before = policy.network(observations).numpy()
    assign(policy.variables, parameters)
    difference = float(np.abs(policy.network(observations).numpy() - before).max())
    tolerance = _HALF_TOLERANCE * float(np.abs(before).max())
    if not difference <= tolerance:
        raise ExportError(
            f"rounded to float16, {policy.output_name} differ from those of the network by up to "
            f"{difference:.1e}, more than {tolerance:.1e}: leave --float16 out."
        )
    return difference
