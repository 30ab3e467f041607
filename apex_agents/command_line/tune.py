r"""Searches for good settings, with Optuna.

Fields of the config get a range or several values. Each run tries one combination, chosen by what
earlier runs have shown; a run that is worse than the median of the others at the same actor steps
is stopped. The score of a run is the mean return of the evaluations in its last quarter.

  --config.agent.learning_rate=log:1e-5:1e-2   a range, drawn on a logarithmic scale
  --config.agent.n_step=1:10                   a range; whole numbers for a field of whole numbers
  --config.agent.batch_size=32,64,128          single values, separated by commas

The folder of the search holds run_<i>/, the work directories of the runs, study.db, which
optuna-dashboard shows, and in the end results.md, results.csv, importances.png and .svg. Given
again with the same --workdir, the command resumes stopped runs and continues the search, up to
--runs in total.

Examples:
  python launch/tune.py --config=apex_dqn_cartpole --runs=20 --minutes=60 --parallel=2 \
      --config.agent.learning_rate=log:1e-4:1e-1 --config.agent.n_step=1:10 \
      --config.run.max_actor_steps=50_000 --config.run.target_return=None
"""

import math
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from absl import flags
from rich.console import Console

from apex_agents.command_line import several_runs
from apex_agents.command_line.errors import fail
from apex_agents.command_line.settings import Settings, change_fields, run_with_settings
from apex_agents.command_line.variants import RANGE
from apex_agents.exit_codes import EXIT_FAILURE
from apex_agents.extras import missing_extra
from apex_agents.plotting import draw_search
from apex_agents.plotting.run_groups import FREE_FIELDS, shorten
from apex_agents.runs.setting_labels import record_labels
from apex_agents.studies.plan import Run
from apex_agents.studies.results import format_rows, show_field, to_csv
from apex_agents.studies.runner import Runner
from apex_agents.studies.screen import Screen
from apex_agents.validation import get_field, require

try:
    from optuna import Study, distributions
    from optuna.exceptions import StorageInternalError

    from apex_agents.studies.search import (
        Search,
        Space,
        find_importances,
        open_study,
        read_rows,
        run_name,
    )
except ImportError:
    fail(missing_extra("tune", "apex-tune"))

_DEFAULT_CONFIG = "apex_dqn_cartpole"
_MEANING = (
    "Score: mean return of the evaluations in the last quarter of a run's actor steps. Every run "
    "is one seed, so that there is luck in the first rows: repeat their settings with apex-sweep."
)

_RUNS = flags.DEFINE_integer("runs", 20, "Runs of the search, earlier ones included.", 1, 100_000)
_MINUTES = flags.DEFINE_float(
    "minutes", None, "Minutes after which the runs are stopped; they can be resumed.", 0.0
)
flags.adopt_module_key_flags(several_runs)


def main() -> None:
    """Run the command, and exit."""
    run_with_settings(_tune, _DEFAULT_CONFIG, has_variants=True)


def _tune(settings: Settings) -> None:
    config = settings.config
    minutes = math.inf if _MINUTES.value is None else _MINUTES.value
    ends_at = time.monotonic() + 60 * minutes
    with several_runs.preparing_folder(several_runs.new_name(settings)) as folder:
        space = _read_space(settings)
        max_steps = config.run.max_actor_steps or 0
        allowed = "a number: runs are compared at equal actor steps, up to this limit"
        require(max_steps > 0, "run.max_actor_steps", max_steps or None, allowed)
        several_runs.check_config(config)
        lock = several_runs.lock_folder(folder)
        study = open_study(folder, space, config)
    screen = Screen(Console())
    screen.print(f"Folder of the search: {folder}")
    names = dict(zip(space, shorten(list(space)), strict=True))

    def plan_run(number: int, fields: Mapping[str, Any]) -> Run:
        workdir = folder / run_name(number)
        setting = tuple((names[path], show_field(value)) for path, value in fields.items())
        argv = (*several_runs.make_command(settings, fields), f"--workdir={workdir}")
        run = Run(config.environment.task, setting, config.run.seed, workdir, argv)
        record_labels(folder, {workdir: run.label})
        return run

    num_ended = sum(trial.state.is_finished() for trial in study.trials)
    runner = Runner([], several_runs.PARALLEL.value, _RUNS.value - num_ended)
    search = Search(study, space, runner, plan_run, max_steps)
    failures: list[str] = []

    def step() -> bool:
        try:
            search.step(_RUNS.value, time.monotonic() >= ends_at)
            return False
        except StorageInternalError as error:  # The disk may have room again in a moment.
            failures.append(str(error.__cause__ or error))
            if len(failures) == 1:
                screen.print(f"The search waits, since its study.db cannot be used: {failures[0]}")
            return True

    several_runs.train(runner, screen, step)
    try:
        is_written = _write_results(study, folder, names, screen)
        has_score = any(trial.state.name == "COMPLETE" for trial in study.trials)
    except StorageInternalError as error:
        fail(f"{folder}/study.db cannot be used: {error.__cause__ or error}", EXIT_FAILURE)
    several_runs.leave_after(runner, lock, is_written and has_score)


def _read_space(settings: Settings) -> Space:
    """Return the values to be tried of each field; a ValueError if a run cannot have them."""
    space: dict[str, distributions.BaseDistribution] = {}
    for path, texts in settings.variants.items():
        name = f"--config.{path}"
        require(path not in FREE_FIELDS, name, ",".join(texts), "a single value in a search")
        match = RANGE.fullmatch(texts[0]) if len(texts) == 1 else None
        ends = match.groups()[1:] if match else texts
        configs = [change_fields(settings.config, {path: text}) for text in ends]
        values = [get_field(config, path) for config in configs]
        space[path] = distributions.CategoricalDistribution(list(dict.fromkeys(map(str, values))))
        if match:
            low, high, is_log = *values, bool(match[1])
            are_numbers = all(isinstance(value, int | float) for value in values)
            is_range = are_numbers and low < high and (low > 0 or not is_log)
            allowed = "LOW:HIGH for a number, or log:LOW:HIGH with LOW above 0"
            require(is_range, name, texts[0], allowed)
            are_whole = all(isinstance(value, int) for value in values)
            kinds = (distributions.FloatDistribution, distributions.IntDistribution)
            space[path] = kinds[are_whole](low, high, log=is_log)
        for config in configs:
            config.validate()
    if not space:
        raise ValueError(
            "nothing to search for: give a field a range or several values, such as "
            "--config.agent.learning_rate=log:1e-5:1e-2."
        )
    return space


def _run_number(row: Mapping[str, Any]) -> int:
    return int(row["run"].removeprefix("run_"))


def _write_results(
    study: Study, folder: pathlib.Path, names: Mapping[str, str], screen: Screen
) -> bool:
    """Print and write the table and the figure; return whether they could be written."""
    rows = read_rows(study, names, folder)
    if not rows:
        return True
    table = f"{format_rows(rows, list(rows[0]))}\n{_MEANING}\n"
    screen.print_table(table)
    found = find_importances(study)
    importances = {names[path]: share for path, share in found.items()}
    scores = [row["score"] for row in sorted(rows, key=_run_number)]
    texts = {"results.md": table, "results.csv": to_csv(rows)}
    return several_runs.write_results(
        folder, texts, lambda: draw_search(importances, scores, folder), screen
    )
