"""A search for good settings: an Optuna study, kept in a file, whose trials are runs."""

import math
import pathlib
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from apex_agents.config import ExperimentConfig
from apex_agents.fields import RANGE, change_fields, get_field
from apex_agents.metrics import columns
from apex_agents.plotting.run_groups import FREE_FIELDS
from apex_agents.runs.config_file import find_difference, to_values
from apex_agents.studies.plan import check_same_setting
from apex_agents.studies.results import read_points, score
from apex_agents.studies.runner import FAILED, FINISHED, NOT_STARTED, PRUNED, STOPPED, Runner
from apex_agents.studies.study import Run
from apex_agents.validation import require

# The values that are tried, by the dotted path of their field.
Space = dict[str, BaseDistribution]

_STORAGE = "study.db"
# A run is compared with the others at each twentieth of its actor steps, after the first quarter
# and once a few runs have finished.
_NUM_COMPARISONS = 20
_WARM_UP = 0.25
# Fields that may change when a run is resumed, but on which scores depend.
_FIELDS_OF_SCORES = ("run.max_actor_steps", "run.target_return", "run.seed")
# Others that may change until a run has a score.
_LIMITS = ("run.max_learner_steps", "run.max_seconds")
_FINISHED_BEFORE_PRUNING = 4
# How a run ended, by the state of its trial.
_ENDINGS = {
    TrialState.COMPLETE: FINISHED,
    TrialState.PRUNED: PRUNED,
    TrialState.FAIL: FAILED,
}


class Budget(NamedTuple):
    """How much a search trains.

    Attributes:
      max_runs: number of runs, runs of earlier commands included.
      max_actor_steps: actor steps of a run that is not stopped.
      target_return: the mean return at which a run ends, None without one.
      period_seconds: seconds between two looks at the evaluations of active runs.
    """

    max_runs: int
    max_actor_steps: int
    target_return: float | None = None
    period_seconds: float = 2.0


def make_space(config: ExperimentConfig, variants: Mapping[str, Sequence[str]]) -> Space:
    """Return the values that are tried of each field.

    Args:
      config: config of all runs but for these fields.
      variants: texts of the values, or of one range, of each field.

    Raises:
      ValueError: a run cannot have such values, or there are none.
    """
    space: Space = {}
    for path, texts in variants.items():
        name = f"--config.{path}"
        require(path not in FREE_FIELDS, name, ",".join(texts), "a single value in a search")
        match = RANGE.fullmatch(texts[0]) if len(texts) == 1 else None
        tried = match.groups()[1:] if match else texts
        configs = [change_fields(config, [(path, text)]) for text in tried]
        values = [get_field(one, path) for one in configs]
        try:
            space[path] = _make_distribution(values, bool(match), bool(match and match[1]))
        except ValueError as error:
            raise ValueError(f"{name} is {texts[0]!r}; {error}.") from error
        for one in configs:
            one.validate()
    if not space:
        raise ValueError(
            "nothing to search for: give a field a range or several values, such as "
            "--config.agent.learning_rate=log:1e-5:1e-2."
        )
    return space


def _make_distribution(values: Sequence[Any], is_range: bool, is_log: bool) -> BaseDistribution:
    """Return a distribution over some values, or between two numbers."""
    if not is_range:
        return CategoricalDistribution(list(dict.fromkeys(map(str, values))))
    low, high = values
    if not (isinstance(low, int | float) and low < high and (low > 0 or not is_log)):
        raise ValueError("it has to be LOW:HIGH for a number, or log:LOW:HIGH with LOW above 0")
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=is_log)
    return FloatDistribution(low, high, log=is_log)


def open_storage(folder: pathlib.Path, space: Space, config: ExperimentConfig) -> optuna.Study:
    """Open the Optuna study in the folder of a search, or make it.

    Raises:
      ValueError: the study cannot be opened, has a different space, or has runs whose scores would
        have a different meaning.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warm_up = int(_WARM_UP * (config.run.max_actor_steps or 0))
    path = str(folder / _STORAGE)
    try:
        study = optuna.create_study(
            storage="sqlite:///" + path.replace("{", "{{").replace("}", "}}"),  # It is formatted.
            study_name="tune",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(_FINISHED_BEFORE_PRUNING, warm_up),
        )
    except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be opened: {error.__cause__ or error}") from error
    # A command that continues the search would draw the same numbers again from the same seed.
    study.sampler = optuna.samplers.TPESampler(seed=config.run.seed + len(study.trials))
    values = to_values(config)
    ranges = {path: distribution_to_json(values) for path, values in space.items()}
    before = study.user_attrs.get("config", values)
    has_scores = any(trial.state == TrialState.COMPLETE for trial in study.trials)
    check_same_setting(folder, before, config, *_FIELDS_OF_SCORES, *(_LIMITS if has_scores else ()))
    difference = find_difference(before, config)
    if (old := study.user_attrs.get("ranges", ranges)) != ranges:
        difference = "the ranges", old, ranges
    if difference is not None:
        field, old, new = difference
        raise ValueError(
            f"The folder {folder} holds a search with {field} {old!r}, not {new!r}; name another "
            "--workdir."
        )
    study.set_user_attr("ranges", ranges)
    study.set_user_attr("config", values)
    return study


class Search:
    """The runs of a search; `step` starts, watches and ends them.

    A trial keeps the values that it got, and its number names the folder of its run: those that an
    earlier command has not finished are resumed.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        runner: Runner,
        plan_run: Callable[[int, Mapping[str, Any]], Run],
        budget: Budget,
        report: Callable[[str], None],
    ):
        """Begin with the runs that earlier commands have not finished.

        Args:
          study: the trials of this and of earlier commands.
          space: values that are tried.
          runner: runner without runs.
          plan_run: returns the run with a number and with these values of the fields in `space`.
          budget: how much is trained.
          report: told once that the storage cannot be used.
        """
        self._study, self._space, self._runner, self._plan_run = study, space, runner, plan_run
        self._budget, self._report_failure, self._has_failed = budget, report, False
        self._started: dict[int, tuple[Trial, Run]] = {}
        self._looks_at = 0.0

    def step(self) -> bool:
        """Record the runs that have ended, stop those that are worse than the median, and add runs.

        Returns:
          Whether the storage cannot be used, and another step has to try again: the disk may have
          room again in a moment.
        """
        try:
            self._step()
        except StorageInternalError as error:
            if not self._has_failed:
                reason = str(error.__cause__ or error).partition("\n")[0]
                self._report_failure(f"The search waits: {_STORAGE} cannot be used: {reason}")
            self._has_failed = True
            return True
        return False

    def _step(self) -> None:
        is_time = time.monotonic() >= self._looks_at
        if is_time:
            self._looks_at = time.monotonic() + self._budget.period_seconds
        for trial, run in self._find_unfinished():
            if run is not None and (is_time or self._runner.endings[run] != NOT_STARTED):
                self._watch(trial, run)
        while self._runner.has_room():
            waiting = [trial for trial, run in self._find_unfinished() if run is None]
            if waiting:
                for name, values in self._space.items():
                    # An earlier command may have stopped before suggesting all values.
                    waiting[0]._suggest(name, values)
                run = self._plan_run(waiting[0].number, waiting[0].params)
                self._started[waiting[0].number] = waiting[0], run
                self._runner.add(run)
            elif len(self._study.trials) < self._budget.max_runs:
                self._study.ask()
            else:
                return

    def _find_unfinished(self) -> list[tuple[Trial, Run | None]]:
        """Return the trials without an end, each with its run if it was started."""
        states = (TrialState.WAITING, TrialState.RUNNING)
        found = self._study.get_trials(deepcopy=False, states=states)
        known = self._started
        return [known.get(t.number) or (Trial(self._study, t._trial_id), None) for t in found]

    def _watch(self, trial: Trial, run: Run) -> None:
        """Compare a run with the others, and record how it has ended, unless it can be resumed."""
        ending, points = self._runner.endings[run], read_points(run)
        if ending == STOPPED:
            return
        last = points[-1].actor_steps if points else 0.0
        reported = self._study.trials[trial.number].intermediate_values
        for part in range(1, _NUM_COMPARISONS + 1):
            step = self._budget.max_actor_steps * part // _NUM_COMPARISONS
            so_far = [point.mean_return for point in points if point.actor_steps <= step]
            if so_far and last >= step and step not in reported:
                trial.report(so_far[-1], step)
        if ending == NOT_STARTED:
            # A run that has all of its steps is about to end, and gets a score.
            if points and last < self._budget.max_actor_steps and trial.should_prune():
                self._runner.interrupt(run, PRUNED)
        elif ending == FINISHED and points:
            self._study.tell(trial, score(points, columns.ACTOR_STEPS, self._budget.target_return))
        else:
            is_pruned = ending == PRUNED
            self._study.tell(trial, state=TrialState.PRUNED if is_pruned else TrialState.FAIL)


def rank_trials(study: optuna.Study) -> list[tuple[FrozenTrial, str, float]]:
    """Return each trial, how its run has ended and its score, NaN without one, the best first."""
    found: list[tuple[FrozenTrial, str, float]] = []
    for trial in study.trials:
        # Optuna gives a run that was pruned the value that was reported last.
        score = trial.value if trial.state == TrialState.COMPLETE else None
        ending = _ENDINGS.get(trial.state, STOPPED)
        found.append((trial, ending, math.nan if score is None else score))
    return sorted(found, key=lambda one: (math.isnan(one[2]), -one[2]))


def find_importances(study: optuna.Study) -> dict[str, float]:
    """Return each field's share of the differences in score; none while that is unknown."""
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError, UserWarning):  # Raised for too few scores.
            return {}
