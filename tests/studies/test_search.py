"""Tests of a search: real studies, with runs whose rows are written by hand."""

import copy
import csv
import functools
import math
import re
import shutil
import sqlite3

import pytest
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import StorageInternalError
from optuna.trial import Trial, create_trial

from apex_agents.config import ExperimentConfig, RunConfig
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.studies.runner import FAILED, FINISHED, NOT_STARTED, STOPPED
from apex_agents.studies.search import (
    Budget,
    Search,
    find_importances,
    make_space,
    open_storage,
    rank_trials,
)
from apex_agents.studies.study import Run

MAX_STEPS = 2000
CONFIG = ExperimentConfig(ApexDQNConfig(), run=RunConfig(max_actor_steps=MAX_STEPS))
SPACE = {
    "agent.learning_rate": FloatDistribution(1e-5, 1e-2, log=True),
    "agent.n_step": IntDistribution(1, 10),
    "agent.batch_size": CategoricalDistribution(["8", "16"]),
}


class FakeRunner:
    """Starts nothing; a test says how runs end."""

    def __init__(self, num_parallel=1):
        self.endings = {}
        self.signals = []
        self.interrupted = []
        self._num_parallel = num_parallel

    def active(self):
        return [run for run, ending in self.endings.items() if ending == NOT_STARTED]

    def has_room(self):
        return not self.signals and len(self.active()) < self._num_parallel

    def add(self, run):
        self.endings[run] = NOT_STARTED

    def interrupt(self, run, ending):
        self.interrupted.append(run)
        self.endings[run] = ending


@pytest.fixture
def make_search(tmp_path):
    def make(runner, space=SPACE, max_runs=100, target=None):
        def plan_run(number, fields):
            return Run("catch", tuple(fields.items()), 0, tmp_path / f"run_{number}", ())

        study = open_storage(tmp_path, space, CONFIG)
        return study, Search(
            study, space, runner, plan_run, Budget(max_runs, MAX_STEPS, target, 0.0), print
        )

    return make


def write_evaluations(run, returns):
    """Write a row at each 100 actor steps."""
    (run.folder / "logs").mkdir(parents=True, exist_ok=True)
    (run.folder / "config.json").write_text("{}")
    with (run.folder / "logs" / "evaluator.csv").open("w") as file:
        writer = csv.writer(file)
        names = ["actor_steps", "learner_steps", "wall_time_seconds", "mean_return"]
        writer.writerow(names)
        writer.writerows([100 * i, i, i, value] for i, value in enumerate(returns, start=1))


def finish_one(search, runner, returns, ending=FINISHED):
    """Start a run, unless one is active, and end it."""
    search.step()
    (run,) = runner.active()
    write_evaluations(run, returns)
    runner.endings[run] = ending


def states(study):
    return [trial.state.name for trial in study.trials]


def test_values_are_those_of_the_space(make_search):
    runner = FakeRunner(num_parallel=12)
    _, search = make_search(runner, max_runs=12)
    search.step()
    values = [dict(run.setting) for run in runner.endings]
    assert len(values) == 12
    assert all(1e-5 <= value["agent.learning_rate"] <= 1e-2 for value in values)
    # With the logarithm, two thirds of the values are below 1e-3; without it, a tenth is.
    assert sum(value["agent.learning_rate"] < 1e-3 for value in values) >= 5
    assert {type(value["agent.n_step"]) for value in values} == {int}
    assert {value["agent.batch_size"] for value in values} == {"8", "16"}


def test_the_score_is_the_mean_of_the_newest_quarter(make_search):
    runner = FakeRunner()
    study, search = make_search(runner, max_runs=1)
    finish_one(search, runner, [100, 0, 0, 1, 3])  # Steps from 375 on of 500 count.
    search.step()
    assert [trial.value for trial in study.trials] == [2]
    assert runner.active() == []  # The budget is one run.


def test_a_score_that_cannot_be_stored_now_is_stored_later(make_search, tmp_path, capsys):
    runner = FakeRunner()
    study, search = make_search(runner, max_runs=1)
    finish_one(search, runner, [4.0])
    lock = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    assert search.step()  # It has to try again, which is said once.
    assert search.step()
    assert capsys.readouterr().out.count("\n") == 1
    lock.execute("ROLLBACK")
    assert not search.step()
    assert [trial.value for trial in study.trials] == [4.0]


def test_runs_without_a_score(make_search):
    runner = FakeRunner()
    study, search = make_search(runner, max_runs=3)
    finish_one(search, runner, [1.0], ending=FAILED)
    finish_one(search, runner, [])
    finish_one(search, runner, [math.nan])
    search.step()
    assert states(study) == ["FAIL", "FAIL", "FAIL"]
    assert find_importances(study) == {}


def begin_the_fifth(search: Search, runner: FakeRunner) -> Run:
    """Let four runs finish with returns of 2, 4, 6 and 8 all along; return the one that begins."""
    for value in (2, 4, 6, 8):
        finish_one(search, runner, 20 * [value])
    search.step()
    (run,) = runner.active()
    return run


def test_a_run_that_is_worse_than_the_median_is_pruned(make_search):
    runner = FakeRunner()
    study, search = make_search(runner)
    run = begin_the_fifth(search, runner)
    for returns in (4 * [0], 5 * [5.5]):  # Too early, then better than the median, 5.
        write_evaluations(run, returns)
        search.step()
        assert runner.interrupted == []
    finish_one(search, runner, 20 * [5.5])
    search.step()
    (run,) = runner.active()
    write_evaluations(run, 6 * [5.25])  # The median is 5.5 now.
    search.step()
    assert runner.interrupted == [run]
    search.step()
    assert states(study) == [*5 * ["COMPLETE"], "PRUNED", "RUNNING"]
    assert list(study.trials[5].intermediate_values) == [100, 200, 300, 400, 500, 600]
    found = [(trial.number, ending) for trial, ending, _ in rank_trials(study)]
    assert found[:2] == [(3, "finished"), (2, "finished")]  # Their scores are 8 and 6.
    assert found[-2:] == [(5, "pruned"), (6, "stopped")]


def test_a_run_that_has_all_of_its_steps_is_not_pruned(make_search):
    runner = FakeRunner()
    _, search = make_search(runner)
    run = begin_the_fifth(search, runner)
    write_evaluations(run, 20 * [1])
    search.step()
    assert runner.interrupted == []


def test_stopped_runs_are_resumed_by_another_command(make_search):
    runner = FakeRunner(num_parallel=2)
    study, search = make_search(runner, max_runs=3)
    search.step()
    first, second = runner.active()
    write_evaluations(first, [1.0])
    runner.endings.update({first: FINISHED, second: STOPPED})
    runner.signals.append(2)
    search.step()
    assert states(study) == ["COMPLETE", "RUNNING"]
    assert runner.active() == []

    runner = FakeRunner(num_parallel=2)
    study, search = make_search(runner, max_runs=3)
    search.step()
    assert [run.folder.name for run in runner.active()] == ["run_1", "run_2"]
    assert runner.active()[0].setting == second.setting
    assert runner.active()[1].setting != first.setting


def test_a_run_that_ended_at_its_target_scores_no_less_than_one_below_it(make_search):
    runner = FakeRunner()
    study, search = make_search(runner, target=8.0)
    finish_one(search, runner, [0, 1, 1, 8])
    finish_one(search, runner, 20 * [7])
    search.step()
    assert [trial.value for trial in study.trials[:2]] == [8.0, 7.0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("agent.batch_size", 8, "512, not 8"),
        ("environment.task", "breakout", "'pong', not 'breakout'"),
        ("run.max_actor_steps", 1, "2000, not 1"),
        ("run.target_return", 9.0, "None, not 9.0"),
        ("run.seed", 1, "0, not 1"),
        ("run.num_envs_per_actor", 64, "8, not 64"),
        ("run.evaluation.num_episodes", 1, "20, not 1"),
    ],
)
def test_a_search_of_something_else_is_refused(field, value, message, tmp_path):
    open_storage(tmp_path, SPACE, CONFIG)
    config = copy.deepcopy(CONFIG)
    *sections, name = field.split(".")
    setattr(functools.reduce(getattr, sections, config), name, value)
    with pytest.raises(
        ValueError, match=f"{re.escape(str(tmp_path))} holds a .* with {field} {message}; name"
    ):
        open_storage(tmp_path, SPACE, config)
    open_storage(tmp_path, SPACE, CONFIG)


@pytest.mark.parametrize("field", ["max_learner_steps", "max_seconds"])
def test_limits_stay_as_they_are_once_a_run_has_a_score(field, tmp_path):
    study = open_storage(tmp_path, SPACE, CONFIG)
    config = copy.deepcopy(CONFIG)
    setattr(config.run, field, 600)
    study = open_storage(tmp_path, SPACE, config)  # A stopped search may get another limit.
    study.add_trial(create_trial(value=1.0))
    open_storage(tmp_path, SPACE, config)
    with pytest.raises(ValueError, match=f"with run.{field} 600, not None"):
        open_storage(tmp_path, SPACE, CONFIG)


def test_a_folder_may_have_braces(tmp_path):
    folder = tmp_path / "{lr}"
    folder.mkdir()
    open_storage(folder, SPACE, CONFIG)
    assert [path.name for path in folder.iterdir()] == ["study.db"]


def test_a_study_that_cannot_be_read(tmp_path):
    (tmp_path / "study.db").write_text("no database, whatever its name")
    with pytest.raises(ValueError, match=r"study\.db cannot be opened: "):
        open_storage(tmp_path, SPACE, CONFIG)


def test_a_search_in_other_ranges_is_refused(tmp_path):
    open_storage(tmp_path, SPACE, CONFIG)
    with pytest.raises(
        ValueError, match=f"{re.escape(str(tmp_path))} holds a search with the ranges"
    ):
        open_storage(tmp_path, {"agent.n_step": IntDistribution(1, 5)}, CONFIG)


def test_a_stopped_run_whose_folder_is_gone_begins_anew(make_search):
    runner = FakeRunner()
    _, search = make_search(runner)
    for value in range(5):
        finish_one(search, runner, [float(value)] * 20)
    search.step()
    (run,) = runner.active()
    write_evaluations(run, [-9.0] * 10)
    _, search = make_search(runner := FakeRunner())
    search.step()  # It is compared, and found to be worse than the others.
    shutil.rmtree(run.folder)
    search.step()
    assert runner.interrupted == []


def test_a_trial_that_was_not_filled_gets_its_values_when_it_is_run(make_search, monkeypatch):
    runner = FakeRunner()
    study, search = make_search(runner)
    suggest = Trial._suggest

    def fail(trial, name, distribution):
        if name != "agent.learning_rate":
            raise StorageInternalError("locked")
        return suggest(trial, name, distribution)

    with monkeypatch.context() as patch:
        patch.setattr(Trial, "_suggest", fail)
        assert search.step()
    learning_rate = study.trials[0].params["agent.learning_rate"]
    search.step()
    (run,) = runner.active()
    assert dict(run.setting).keys() == SPACE.keys()
    assert dict(run.setting)["agent.learning_rate"] == learning_rate
    assert len(study.trials) == 1


def test_ranks_and_importances(make_search):
    runner = FakeRunner()
    space = {"agent.n_step": IntDistribution(1, 9), "run.lr": CategoricalDistribution(["1", "2"])}
    study, search = make_search(runner, space)
    for _ in range(12):  # The score is n_step, whatever lr is.
        search.step()
        (run,) = runner.active()
        finish_one(search, runner, [dict(run.setting)["agent.n_step"]])
    search.step()
    assert runner.active()
    *ranked, (last, ending, last_score) = rank_trials(study)
    scores = [score for _, _, score in ranked]
    assert scores == [trial.params["agent.n_step"] for trial, _, _ in ranked]
    assert scores == sorted(scores, reverse=True)
    assert (last.number, ending, math.isnan(last_score)) == (12, "stopped", True)
    importances = find_importances(study)
    assert importances["agent.n_step"] > importances["run.lr"]
    assert sum(importances.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("path", "texts", "expected"),
    [
        ("agent.n_step", ["1:10"], IntDistribution(1, 10)),
        ("agent.n_step", ["log:1:10"], IntDistribution(1, 10, log=True)),
        ("agent.discount", ["0:0.5"], FloatDistribution(0.0, 0.5)),
        ("run.cpu_split", ["0.5", "None", "5e-1"], CategoricalDistribution(["0.5", "None"])),
    ],
)
def test_distributions(path, texts, expected):
    assert make_space(CONFIG, {path: texts}) == {path: expected}


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("agent.discount", "0.9:0.8", "--config.agent.discount is '0.9:0.8'; .* LOW:HIGH"),
        ("agent.discount", "0.5:0.5", "LOW:HIGH"),
        ("agent.discount", "log:0:0.5", "LOW:HIGH"),
        ("environment.task", "1:2", "LOW:HIGH"),
        ("agent.discount", "0.9:1.5", r"agent\.discount is 1\.5"),
        ("agent.n_step", "1:2.5", r"agent\.n_step is 2\.5"),
        ("run.max_actor_steps", "1:2", "--config.run.max_actor_steps is '1:2'; .* a single value"),
    ],
)
def test_a_space_that_no_run_can_have_is_refused(path, text, message):
    with pytest.raises(ValueError, match=message):
        make_space(CONFIG, {path: [text]})
