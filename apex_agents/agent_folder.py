"""Writes a trained agent into a folder to hand on: its parameters, its settings, a model card.

The folder can be evaluated, played and loaded as that of a run, of which it has nothing else.
"""

import json
import pathlib
from collections.abc import Iterator

import numpy as np

from apex_agents.config import ExperimentConfig
from apex_agents.evaluation.parameters import SavedParameters, find_parameters, read_parameters
from apex_agents.metrics import columns
from apex_agents.registry import CONFIG_CLASSES, find_agent
from apex_agents.runs.config_file import CONFIG_FILE, read_config, read_values
from apex_agents.runs.files import replace_file, write_json
from apex_agents.runs.folder import RunFolder
from apex_agents.runs.parameter_file import encode_parameters
from apex_agents.runs.workdir import BEST_CHECKPOINT, EVALUATIONS, SUMMARY_FILE

CARD = "README.md"
_NAMES = {"apex_dqn": "Ape-X DQN", "apex_dpg": "Ape-X DPG", "a2c": "A2C", "a3c": "A3C"}


def write_agent_folder(
    workdir: pathlib.Path, output: pathlib.Path, checkpoint: str, half_precision: bool
) -> SavedParameters:
    """Write an agent of a run, and return its parameters as they were written.

    Args:
      workdir: folder of the run.
      output: folder to make; it must not hold another agent or a run.
      checkpoint: see `find_parameters`.
      half_precision: whether to round parameters to float16, for files of half the size.

    Raises:
      ValueError: there is no such run or checkpoint, `output` holds something else, or a parameter
        is too large for float16.
      OSError: the folder cannot be written.
    """
    config = read_config(workdir, list(CONFIG_CLASSES.values()))
    parameters = read_parameters(find_parameters(workdir, checkpoint))
    if (output / CONFIG_FILE).exists() and not (output / CARD).exists():
        raise ValueError(f"{output} holds a run; name a new folder.")
    if half_precision:
        arrays = {name: _to_half(name, array) for name, array in parameters.arrays.items()}
        parameters = parameters._replace(arrays=arrays)
    best = output / BEST_CHECKPOINT
    best.parent.mkdir(parents=True, exist_ok=True)
    replace_file(best, encode_parameters(parameters.arrays, parameters.learner_steps))
    write_json(output / CONFIG_FILE, read_values(workdir))
    replace_file(output / CARD, make_card(workdir, config, parameters).encode())
    return parameters


def make_card(workdir: pathlib.Path, config: ExperimentConfig, parameters: SavedParameters) -> str:
    """Return the model card of an agent, in Markdown."""
    rows = [*_describe(config, parameters), *_describe_training(workdir, parameters)]
    return f"""# {config.environment.task} by {_NAMES[find_agent(config.agent)]}

| | |
|---|---|
{"".join(f"| {name} | {value} |{chr(10)}" for name, value in rows)}
```
apex-evaluate FOLDER --output=evaluation    # Its returns.
apex-play FOLDER                            # An episode in a window.
```

`FOLDER` is this one. In Python, `apex_agents.load(FOLDER)` returns the policy. All settings are in
`{CONFIG_FILE}`.
"""


def _describe(
    config: ExperimentConfig, parameters: SavedParameters
) -> Iterator[tuple[str, object]]:
    arrays = parameters.arrays.values()
    size, kinds = sum(a.size for a in arrays), sorted({str(a.dtype) for a in arrays})
    yield "task", f"{config.environment.task}, suite {config.environment.suite}"
    yield "parameters", f"{size:,} ({', '.join(kinds)})"
    yield "learner steps", f"{parameters.learner_steps:,}"
    yield "seed", config.run.seed


def _describe_training(
    workdir: pathlib.Path, parameters: SavedParameters
) -> Iterator[tuple[str, object]]:
    """Say how long it was trained and what it returned, as far as the run's files tell."""
    run = RunFolder(workdir)
    summary, table = run.summary() or {}, run.read_columns(columns.EVALUATOR)
    steps = table.get(columns.LEARNER_STEPS, np.empty(0))
    for row in np.flatnonzero(steps == parameters.learner_steps)[-1:]:
        values = {name: column[row] for name, column in table.items()}
        yield "agent steps", f"{values[columns.ACTOR_STEPS]:,.0f}"
        yield "wall time", f"{values[columns.WALL_TIME_SECONDS] / 60:,.1f} min"
        returns = f"{values[columns.MEAN_RETURN]:,.2f} ± {values['standard_error']:,.2f}"
        yield "return when it was saved", f"{returns}, {values['num_episodes']:.0f} episodes"
    for path in sorted((workdir / EVALUATIONS).glob(f"*/{SUMMARY_FILE}")):
        found = json.loads(path.read_text())
        if found["learner_steps"] == parameters.learner_steps:
            returns = f"{found['mean_return']:,.2f} ± {found['standard_error']:,.2f}"
            epsilon = "" if found["epsilon"] is None else f", epsilon {found['epsilon']:g}"
            what = f"{found['episodes']:,} episodes, seed {found['seed']}{epsilon}"
            yield f"return of `{path.parent.name}`", f"{returns}, {what}"
    for name in ("command", "git_commit", "date"):
        if summary.get(name):
            yield name.replace("_", " "), f"`{summary[name]}`"
    versions = summary.get("versions") or {}
    if versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())


def _to_half(name: str, array: np.ndarray) -> np.ndarray:
    if not np.issubdtype(array.dtype, np.floating):
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if not np.isfinite(half).all():
        raise ValueError(f"{name} has values of up to {np.abs(array).max():g}, beyond float16.")
    return half
