"""Tests of the state of a run as its files tell it."""

import math
import os

import pytest
from waiting import Clock

from apex_agents.metrics.run_state import RunState
from apex_agents.runs.csv_file import end_rows
from apex_agents.runs.folder import RunFolder


@pytest.fixture
def state(written_run) -> RunState:
    return RunState(RunFolder(written_run.folder))


def test_nothing_is_known_before_the_first_row(state):
    assert state.refresh() == []
    assert (state.learner, state.replay, state.evaluations, state.environments) == ({}, {}, [], {})
    assert state.actor_speed() == 0
    assert math.isnan(state.parameter_age())
    assert (state.num_actors(), state.num_envs()) == (2, 8)
    assert state.is_running and not state.is_over()


def test_newest_rows(written_run, state):
    written_run.append_everything()
    names = [name for name, row in state.refresh()]
    assert names.count("learner") == 2 and names.count("learner_histograms") == 2
    assert state.learner["learner_steps"] == 300
    assert [row["mean_return"] for row in state.evaluations] == [10, 90, 50]
    assert sorted(state.environments) == [0, 3, 4, 7]
    assert state.actor_speed() == 100 + 150
    assert state.refresh() == []
    written_run.append("actor_1", wall_time_seconds=25, actor_steps_per_second=10)
    assert [name for name, row in state.refresh()] == []  # It has other columns: left out.
    damaged = {"env_index": float("nan"), "epsilon": 0.1, "episode_return": 1.0}
    written_run.append("actor_0_envs", wall_time_seconds=26.0, **damaged)
    assert [name for name, row in state.refresh()] == ["actor_0_envs"]
    assert sorted(state.environments) == [0, 3, 4, 7]


def test_age_of_parameters_is_that_when_the_row_was_written(written_run, state):
    written_run.append_everything()
    state.refresh()
    # The learner had done 200 steps after 15 s and 300 after 20 s; actors had those of 150, 250.
    assert state.parameter_age() == ((200 - 150) + (300 - 250)) / 2


def test_an_actor_that_writes_no_more_has_no_speed(written_run):
    clock = Clock(1000.0)
    state = RunState(RunFolder(written_run.folder), clock)
    written_run.append_everything()
    state.refresh()
    clock.now += 15
    written_run.append(
        "actor_1",
        wall_time_seconds=35,
        actor_steps_per_second=70,
        parameters_learner_steps=0,
        episode_return=0,
    )
    state.refresh()
    assert state.actor_speed() == 100 + 70
    clock.now += 10
    assert state.actor_speed() == 70
    written_run.end()
    state.refresh()
    assert state.actor_speed() == 100 + 70  # The speed at the end.


def test_time_elapses_between_rows(written_run):
    clock = Clock(3.0)  # It began when the run was seen first, 17 s after its start.
    state = RunState(RunFolder(written_run.folder), clock)
    state.refresh()
    assert state.elapsed_seconds() == 3
    written_run.append_everything()
    state.refresh()
    assert state.elapsed_seconds() == 20
    clock.now += 1.5
    assert state.elapsed_seconds() == 20 + 1.5
    written_run.end()
    state.refresh()
    assert state.elapsed_seconds() == 20
    assert state.is_over()


@pytest.mark.parametrize("time_of_files", [0, 5e9], ids=["past", "future"])
def test_the_times_of_files_are_those_of_a_clock_that_may_be_set(time_of_files, written_run):
    state = RunState(RunFolder(written_run.folder), Clock(3.0))
    written_run.append_everything()
    for path in written_run.folder.glob("logs/*.csv"):
        os.utime(path, (time_of_files, time_of_files))
    state.refresh()
    assert state.elapsed_seconds() == 20
    assert state.learner["q_value"] == 42.0
    assert state.actor_speed() == 100 + 150


@pytest.mark.parametrize(("max_seconds", "is_reached"), [(500, True), (501, False), (None, False)])
def test_a_run_whose_time_is_over_evaluates_its_last_parameters(
    written_run, max_seconds, is_reached
):
    written_run.configure("run", max_seconds=max_seconds)
    state = RunState(RunFolder(written_run.folder), Clock(500.0))
    state.refresh()
    assert state.is_evaluating_last() is is_reached


def test_of_a_run_that_is_resumed_only_what_still_holds_is_known(written_run):
    written_run.append_everything()
    written_run.append("actor_2", wall_time_seconds=9.0, episodes=5, actor_steps_per_second=1)
    written_run.end_rows()
    state = RunState(RunFolder(written_run.folder))
    state.refresh()
    assert (state.learner, state.replay) == ({"learner_steps": 300}, {"actor_steps": 2500})
    assert (state.environments, state.actor_speed()) == ({}, 0)
    assert math.isnan(state.parameter_age())
    assert len(state.evaluations) == 3
    assert state.num_episodes == 5
    written_run.append("actor_2", wall_time_seconds=21.0, episodes=2, actor_steps_per_second=30)
    state.refresh()
    assert state.actor_speed() == 30
    assert state.num_episodes == 7


def test_a_node_that_was_restarted_has_no_speed_before_its_first_row(written_run, state):
    written_run.append_everything()
    end_rows(written_run.folder / "logs" / "actor_1.csv")
    end_rows(written_run.folder / "logs" / "learner.csv")
    state.refresh()
    assert state.actor_speed() == 100
    assert state.learner == {"learner_steps": 300}
    assert state.replay["replay_size"] == 1000


def test_the_clock_of_a_run_that_lost_steps_goes_back_with_them(written_run):
    clock = Clock(1.0)
    state = RunState(RunFolder(written_run.folder), clock)
    for wall_time, steps in ((300.0, 30.0), (600.0, 60.0)):
        for name in ("learner", "replay"):
            written_run.append(name, wall_time_seconds=wall_time, learner_steps=steps)
    written_run.end_rows()
    for wall_time, steps in ((310.0, 31.0), (320.0, 34.0)):
        written_run.append("learner", wall_time_seconds=wall_time, learner_steps=steps)
    written_run.append("actor_0", wall_time_seconds=315.0, parameters_learner_steps=25.0)
    state.refresh()
    clock.now = 11.0
    assert state.elapsed_seconds() == 320 + 10
    assert state.parameter_age() == 32.5 - 25


def test_of_a_finished_run_the_last_rows_are_known(written_run):
    written_run.append_everything()
    written_run.end()
    written_run.end_rows()
    state = RunState(RunFolder(written_run.folder))
    state.refresh()
    assert (state.learner["q_value"], state.replay["replay_size"]) == (42.0, 1000)
    assert state.actor_speed() == 100 + 150


def test_of_a_run_that_was_resumed_with_fewer_actors_the_newest_row_of_an_index_is_known(
    written_run, state
):
    row = {"episode_return": 1.0, "env_index": 4}
    written_run.append("actor_2_envs", wall_time_seconds=9.0, epsilon=0.5, **row)
    written_run.end_rows()
    written_run.append("actor_1_envs", wall_time_seconds=12.0, epsilon=0.1, **row)
    written_run.end()
    state.refresh()
    assert state.environments[4]["epsilon"] == 0.1


def test_a_run_that_was_killed_is_over(written_run, state):
    written_run.end(None)
    state.refresh()
    assert (state.summary, state.is_running, state.is_over()) == (None, False, True)


def test_a_warning_of_learner_steps_that_change_nothing(written_run):
    state = RunState(RunFolder(written_run.folder))

    def warning_after(steps: int, skipped: int) -> str:
        written_run.append("learner", learner_steps=steps, steps_skipped=skipped)
        state.refresh()
        return state.warning()

    assert warning_after(100, 80) == ""  # There is no row before it.
    assert warning_after(200, 130) == ""  # One half.
    assert "90% of the newest learner steps" in warning_after(300, 220)
    assert warning_after(400, 220) == ""
    written_run.end_rows()  # The process has ended; the next one counts from 0.
    assert warning_after(500, 90) == ""
    assert "a division" in warning_after(600, 190)


@pytest.mark.parametrize(
    ("share", "exponent", "is_warned"),
    [(0.9, 0.6, True), (0.5, 0.6, False), (float("nan"), 0.6, False), (0.9, 0.0, False)],
)
def test_a_warning_of_priorities_that_are_mostly_at_a_bound(
    share, exponent, is_warned, written_run
):
    written_run.configure("agent", replay={"priority_exponent": exponent})
    state = RunState(RunFolder(written_run.folder))
    assert state.warning() == ""
    written_run.append("learner", priorities_at_bound_fraction=share, td_error=2e7)
    state.refresh()
    assert bool(state.warning()) == is_warned
    assert not is_warned or all(part in state.warning() for part in ("90%", "2e+07", "rewards"))
