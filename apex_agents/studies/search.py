"""A search for good settings: an Optuna study, kept in a file, whose trials are runs."""

import math
import pathlib
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.exceptions import StorageInternalError
from optuna.trial import Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from apex_agents.config import ExperimentConfig
from apex_agents.plotting.curves import make_curve
from apex_agents.plotting.run_groups import flatten
from apex_agents.runs.config_file import find_difference, to_values
from apex_agents.runs.folder import RunFolder
from apex_agents.studies.plan import RUN_FIELDS, Run
from apex_agents.studies.results import PROGRESS, read_progress
from apex_agents.studies.runner import FAILED, FINISHED, NOT_STARTED, PRUNED, STOPPED, Runner
from apex_agents.studies.study import read_evaluations, score

# The values that are tried, by the dotted path of their field.
Space = dict[str, BaseDistribution]

_STORAGE = "study.db"
# A run is compared with the others at each twentieth of its actor steps, after the first quarter
# and once a few runs have finished.
_NUM_COMPARISONS = 20
_WARM_UP = 0.25
_FINISHED_BEFORE_PRUNING = 4
# How a run ended, by the state of its trial.
_ENDINGS = {"COMPLETE": FINISHED, "PRUNED": PRUNED, "FAIL": FAILED}


def open_study(folder: pathlib.Path, space: Space, config: ExperimentConfig) -> optuna.Study:
    """Open the study in the folder of a search, or make it.

    Raises:
      ValueError: the study cannot be opened, has another space, or has runs whose scores would have
        another meaning.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warm_up = int(_WARM_UP * (config.run.max_actor_steps or 0))
    pruner = optuna.pruners.MedianPruner(_FINISHED_BEFORE_PRUNING, warm_up)
    path = str(folder / _STORAGE)
    try:
        study = optuna.create_study(
            storage="sqlite:///" + path.replace("{", "{{").replace("}", "}}"),  # It is formatted.
            study_name="tune",
            direction="maximize",
            load_if_exists=True,
            pruner=pruner,
        )
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be opened: {error.__cause__ or error}") from error
    # A command that continues the search would draw the same numbers again from the same seed.
    study.sampler = optuna.samplers.TPESampler(seed=config.run.seed + len(study.trials))
    ranges = {path: distribution_to_json(values) for path, values in space.items()}
    values = to_values(config)
    before = study.user_attrs.get("ranges", ranges), study.user_attrs.get("config", values)
    difference = _find_difference(before, (ranges, values), config)
    if difference is not None:
        field, old, new = difference
        raise ValueError(
            f"{folder} holds a search with {field} {old!r}, not {new!r}; name another folder."
        )
    study.set_user_attr("ranges", ranges)
    study.set_user_attr("config", values)
    return study


def _find_difference(before: Any, now: Any, config: ExperimentConfig) -> Any:
    """Return the name of what makes scores of two searches differ, and its values, or None."""
    (old_ranges, old), (ranges, new) = before, now
    if old_ranges != ranges:
        return "the ranges", old_ranges, ranges
    old_fields, fields = flatten(old), flatten(new)
    for field in ("run.max_actor_steps", "run.seed", *RUN_FIELDS):
        if field in old_fields and old_fields[field] != fields[field]:
            return field, old_fields[field], fields[field]
    return find_difference(old, config)


class Search:
    """The runs of a search; `step` starts, watches and ends them."""

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        runner: Runner,
        plan_run: Callable[[int, Mapping[str, Any]], Run],
        max_actor_steps: int,
        period_seconds: float = 2.0,
    ):
        """Begin with the runs that earlier commands have not finished.

        Args:
          study: the trials of this and of earlier commands.
          space: values that are tried.
          runner: runner without runs.
          plan_run: returns the run with a number and with these values of the fields in `space`.
          max_actor_steps: actor steps of a run that is not stopped.
          period_seconds: seconds between two looks at the evaluations of active runs.
        """
        self._study, self._space, self._runner, self._plan_run = study, space, runner, plan_run
        parts = range(1, _NUM_COMPARISONS + 1)
        self._comparisons = [max_actor_steps * part // _NUM_COMPARISONS for part in parts]
        # A trial keeps the values that it got, and its number names the folder of the run.
        stopped = [trial for trial in study.trials if not trial.state.is_finished()]
        self._unfinished = [Trial(study, trial._trial_id) for trial in stopped]
        self._active: dict[Run, Trial] = {}
        self._period_seconds = period_seconds
        self._looks_at = 0.0

    def step(self, num_runs: int, is_over: bool) -> None:
        """Record what has ended, stop what is worse than the median, and add runs.

        Args:
          num_runs: number of runs with those of earlier commands.
          is_over: whether active runs are to be stopped.
        """
        ended = [run for run in self._active if self._runner.endings[run] != NOT_STARTED]
        if is_over:
            for run in self._active:
                if run not in ended:
                    self._runner.interrupt(run, STOPPED)
        for run in ended:
            self._end(self._active[run], run, self._runner.endings[run])
            del self._active[run]
        if not is_over and time.monotonic() >= self._looks_at:
            self._looks_at = time.monotonic() + self._period_seconds
            for run, trial in self._active.items():
                steps, returns = _read_evaluations(run)
                self._report(trial, steps, returns)
                # A run that has all of its steps is about to end, and gets a score.
                if len(steps) and steps[-1] < self._comparisons[-1] and trial.should_prune():
                    self._runner.interrupt(run, PRUNED)
        while self._runner.has_room() and not self._runner.signals and not is_over:
            if not self._unfinished:
                if len(self._study.trials) >= num_runs:
                    return
                self._unfinished.append(self._study.ask())
            trial = self._unfinished[0]
            for name, values in self._space.items():
                trial._suggest(name, values)  # As `ask(space)` does; the storage may fail halfway.
            self._unfinished.pop(0)
            run = self._plan_run(trial.number, trial.params)
            self._active[run] = trial
            self._runner.add(run)

    def _report(self, trial: Trial, steps: np.ndarray, returns: np.ndarray) -> None:
        """Report the newest return at each comparison that a run has reached."""
        reported = self._study.trials[trial.number].intermediate_values
        for comparison in self._comparisons:
            so_far = returns[steps <= comparison]
            if len(so_far) and steps[-1] >= comparison and comparison not in reported:
                trial.report(float(so_far[-1]), comparison)

    def _end(self, trial: Trial, run: Run, ending: str) -> None:
        """Record how a run has ended; one that was stopped can be resumed."""
        steps, returns = _read_evaluations(run)
        curve = make_curve(steps, returns)
        if ending == FINISHED and len(curve.x):
            self._report(trial, steps, returns)  # Later runs are compared with them.
            self._study.tell(trial, score(curve))
        elif ending == PRUNED:
            self._study.tell(trial, state=TrialState.PRUNED)
        elif ending in (FINISHED, FAILED):
            self._study.tell(trial, state=TrialState.FAIL)


def read_rows(
    study: optuna.Study, names: Mapping[str, str], folder: pathlib.Path
) -> list[dict[str, Any]]:
    """Return the rows of `results.csv`, the best run first.

    Args:
      study: the trials.
      names: names of the columns of fields, by their paths.
      folder: folder of the runs.
    """
    rows = [
        {
            "run": run_name(trial.number),
            **{name: trial.params.get(path) for path, name in names.items()},
            "ending": _ENDINGS.get(trial.state.name, STOPPED),
            # Optuna gives a run that was pruned the value that was reported last.
            "score": trial.value if trial.state.name == "COMPLETE" else math.nan,
            **_read_progress(folder / run_name(trial.number)),
        }
        for trial in study.trials
    ]
    return sorted(rows, key=lambda row: (math.isnan(row["score"]), -row["score"]))


def run_name(number: int) -> str:
    """Return the name of the folder of a run."""
    return f"run_{number:03d}"


def _read_progress(folder: pathlib.Path) -> dict[str, float]:
    try:
        progress = read_progress(RunFolder(folder))
    except ValueError:  # The run had not written its config.
        progress = {}
    return {name: float(progress.get(name, math.nan)) for name in PROGRESS}


def find_importances(study: optuna.Study) -> dict[str, float]:
    """Return each field's share of the differences in score; none while that is unknown."""
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError, UserWarning):  # Of too few scores.
            return {}


def _read_evaluations(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return actor steps and mean returns of the evaluations of a run."""
    folder = run.open_folder()
    points = [*read_evaluations(folder, run.task, "", run.seed)] if folder else []
    return np.array([p.actor_steps for p in points]), np.array([p.mean_return for p in points])
