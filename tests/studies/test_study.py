"""Tests of a study's attributes."""

import pytest

from apex_agents.config import ExperimentConfig
from apex_agents.plotting.run_groups import TASK
from apex_agents.studies.study import Setting, Study, check_study

STUDY = Study(
    title="Two settings",
    settings={"first": Setting("apex_dqn_catch", {}), "second": Setting("apex_dqn_catch", {})},
    tasks=("catch", "CartPole-v1"),
    fields={},
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {}}, r"settings is \{\}; it has to be a dict of labels"),
        ({"settings": {1: STUDY.settings["first"]}}, "settings is .*; it has to be a dict"),
        ({"settings": {"a": {"agent.n_step": 1}}}, "setting 'a' is .*Setting"),
        ({"settings": {"a": Setting(ExperimentConfig, {})}}, "setting 'a' is .*Setting"),
        ({"tasks": ("catch", "catch")}, "tasks is .* different"),
        ({"tasks": "catch"}, "tasks is 'catch'; it has to be a tuple"),
        ({"tasks": ()}, "tasks is "),
        ({"tasks": (1,)}, "tasks is "),
        ({"settings": {"a\n": STUDY.settings["first"]}}, "settings is .*; it has to be a dict"),
        ({"settings": {"_a": STUDY.settings["first"]}}, "settings is .* do not begin with '_'"),
        ({"settings": {"a": Setting("apex_dqn_catch", {1: 2})}}, "setting 'a' is .*Setting"),
        ({"settings": {"a": Setting("apex_dqn_catch", {TASK: "pong"})}}, "name it in tasks"),
        ({"fields": {TASK: "pong"}}, "environment.task is no field of a study"),
        ({"num_seeds": 1.5}, "num_seeds is 1.5"),
        ({"fields": None}, "fields is None"),
        ({"x": "steps"}, "x is 'steps'; it has to be one of actor_steps, learner_steps"),
        ({"num_seeds": 0}, "num_seeds is 0"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(changes, message):
    check_study(STUDY)
    with pytest.raises(ValueError, match=message):
        check_study(STUDY._replace(**changes))
