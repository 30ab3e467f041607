"""Writes a trained agent into a folder to hand on: its parameters, its settings, a model card.

Evaluation, playing, export and `load` take the folder as they take that of a run; nothing else of
the run is in it.
"""

import json
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from apex_agents.checks import acts_as_standard
from apex_agents.export import check_difference, record_observations
from apex_agents.loading import TrainedPolicy, load
from apex_agents.metrics import columns
from apex_agents.metrics.run_state import format_return
from apex_agents.registry import CONFIG_CLASSES, STANDARD
from apex_agents.runs.checkpoints import is_of_run
from apex_agents.runs.config_file import (
    CONFIG_FILE,
    ENVIRONMENT_SPEC,
    agent_name,
    read_config,
    read_spec,
    read_values,
)
from apex_agents.runs.files import encode_json, read_json, replace_file
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.parameter_file import (
    SavedParameters,
    assign,
    by_variable_name,
    encode_parameters,
    read_parameters,
)
from apex_agents.runs.workdir import AGENT_FILE, BEST_CHECKPOINT, EVALUATIONS, SUMMARY_FILE
from apex_agents.user_code import CONFIG_MODULE

_CARD = "README.md"
# Greatest difference of outputs, relative to the greatest of them. Rounding to 11 bits changes
# those of trained policies by 0.0005 to 0.012.
_HALF_TOLERANCE = 2**-5
_TRAINING = "training"  # In `AGENT_FILE`: rows of the card that are handed on again.
# Folders in a word of a command: at its beginning, or behind a character that ends a name.
_FOLDERS = re.compile(r"(?<![\w.~/-])(~|\.{1,2})?(/[^/\"']*)*/(?=[^/])")


class WrittenAgent(NamedTuple):
    """Parameters as they were written, and how much rounding them changes the outputs."""

    parameters: SavedParameters
    difference: float | None  # None for parameters that were not rounded.


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
      license_name: license of the agent, such as 'Apache-2.0'; None for that of the agent that is
        handed on again, if any.

    Raises:
      ValueError: there is no such run or checkpoint, its environment or network cannot be made,
        `output` holds something else, or a parameter is too large for float16.
      ExportError: with `half_precision` the network computes something else.
      OSError: the folder cannot be written.
    """
    is_agent = (output / AGENT_FILE).exists()
    if not is_agent and output.is_dir() and any(output.iterdir()):
        raise ValueError(f"{output} holds something else than an agent; name a new folder.")
    settings = _read_settings(workdir)
    policy = load(workdir, checkpoint)
    if acts_as_standard(policy.config.agent, policy.spec):
        settings["agent"]["builder"] = STANDARD
    _require_modules(workdir, settings)
    parameters, difference = read_parameters(policy.path), None
    config, size = policy.config, sum(array.size for array in parameters.arrays.values())
    training = dict(_training_rows(workdir, parameters) if is_of_run(policy.path, workdir) else ())
    if license_name:
        training["license"] = license_name
    if half_precision:
        parameters = parameters._replace(arrays=_round_trained(policy, parameters.arrays))
        observations, outputs = record_observations(policy), policy.greedy.output_name
        expected = policy.output(outputs, observations, reward=0.0)
        assign(policy.variables, parameters)
        pairs = [(policy.output(outputs, observations, reward=0.0), expected)]
        name = f"rounded to float16, as --float16 asks, {outputs}"
        difference = check_difference(name, pairs, 0.0, _HALF_TOLERANCE)
    rows = {
        "task": f"{config.environment.task}, suite {config.environment.suite}",
        "parameters": f"{size:,}{', rounded to float16' * half_precision}",
        "learner steps": f"{parameters.learner_steps:,}",
        "seed": config.run.seed,
    }
    title = f"{config.environment.task} by {agent_name(type(config.agent).__name__)}"
    files: dict[str, bytes | memoryview] = {
        AGENT_FILE: encode_json({"agent": rows, _TRAINING: training}),
        BEST_CHECKPOINT: encode_parameters(parameters.arrays, parameters.learner_steps),
        CONFIG_FILE: encode_json({**settings, ENVIRONMENT_SPEC: read_spec(workdir)}),
        _CARD: _make_card(title, {**rows, **training}).encode(),
    }
    for name, content in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(output / name, content)
    return WrittenAgent(parameters, difference)


def _read_settings(workdir: pathlib.Path) -> dict[str, Any]:
    """Return the settings of a run, whose builder its policy may not need.

    Raises:
      ValueError: they name code that others do not have.
    """
    values = read_values(workdir)
    _require_modules(workdir, {**values, "agent": {**values.get("agent", {}), "builder": STANDARD}})
    try:
        read_config(workdir, CONFIG_CLASSES.values(), with_file=False)
    except ValueError as error:
        read_config(workdir, CONFIG_CLASSES.values())  # It says so itself if the run is broken.
        raise ValueError(
            f"{error}. The run's config file or script registers it, which others lack; an agent "
            "to hand on needs it in a module, such as 'my_envs:Name-v0'."
        ) from error
    return values


def _require_modules(workdir: pathlib.Path, values: Mapping[str, object]) -> None:
    text = json.dumps(values)
    if "__main__:" in text or CONFIG_MODULE in text:
        raise ValueError(
            f"{workdir} was trained with a function of a script or notebook or of its config file, "
            "which others do not have; an agent to hand on needs it in a module."
        )


def _round_trained(
    policy: TrainedPolicy, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays of which those of trained variables are float16.

    Others, such as the statistics of observations, are what inputs are compared with: a mean of
    1000.37 would be off by many of their standard deviations.
    """
    variables = by_variable_name(policy.variables, policy.variables)
    rounded = dict(arrays)
    for name, array in arrays.items():
        if variables[name].trainable and np.issubdtype(array.dtype, np.floating):
            with np.errstate(over="ignore"):
                rounded[name] = array.astype(np.float16)
            if not np.isfinite(rounded[name]).all():
                greatest = np.abs(array).max()
                raise ValueError(f"{name} has values of up to {greatest:g}, beyond float16.")
    return rounded


def _training_rows(
    workdir: pathlib.Path, parameters: SavedParameters
) -> Iterator[tuple[str, object]]:
    """Yield how the parameters were trained and what they returned, before any rounding."""
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
    names = {"learner_steps", "mean_return", "standard_error", "episodes", "seed"}
    for path in sorted((workdir / EVALUATIONS).glob(f"*/{SUMMARY_FILE}")):
        found = read_json(path) or {}  # It may be being written.
        is_own = "/" not in str(found.get("checkpoint"))  # No parameters of another run.
        is_same = is_own and found.get("learner_steps") == parameters.learner_steps
        if is_same and names <= found.keys():
            returns = format_return(found["mean_return"], found["standard_error"])
            epsilon = "" if found.get("epsilon") is None else f", epsilon {found['epsilon']:g}"
            what = f"{found['episodes']:,} episodes, seed {found['seed']}{epsilon}"
            yield f"return of `{path.parent.name}`", f"{returns}, {what}"
    if command := summary.get("command"):
        words = shlex.split(command.replace("--workdir ", "--workdir="))
        kept = [word for word in words if not word.startswith("--workdir=")]
        yield "command", f"`{shlex.join(_FOLDERS.sub('', word) for word in kept)}`"
    for name in ("git_commit", "date"):
        if summary.get(name):
            yield name.replace("_", " "), f"`{summary[name]}`"
    if versions := summary.get("versions"):
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())


def _make_card(title: str, rows: Mapping[str, object]) -> str:
    """Return the model card of an agent, in Markdown."""
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""# {title}

| | |
|---|---|
{table}

```
apex-evaluate FOLDER --output=evaluation    # Its returns.
apex-play FOLDER                            # An episode in a window.
```

`FOLDER` is this one. In Python, `apex_agents.load(FOLDER)` returns the policy. All settings are in
`{CONFIG_FILE}`; the config that the command names may have changed since. They may name modules of
Python, which these commands import: use only agents that you trust.
"""
