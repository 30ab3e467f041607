"""Tests of the plan of a study: grids, and runs with their folders."""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping

import numpy as np
import pytest

from apex_agents.config import ExperimentConfig, LearnersConfig, RunConfig, TaskReturn
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.fields import change_fields
from apex_agents.presets import find_config, load_config
from apex_agents.runs.opening import close_workdir, open_workdir
from apex_agents.studies.plan import find_targets, make_grid, plan_runs, plan_study
from apex_agents.studies.study import Setting, Study

CONFIG = ExperimentConfig(
    ApexDQNConfig(),
    EnvironmentConfig(suite="gymnasium", task="ALE/Pong-v5"),
    RunConfig(seed=3, max_actor_steps=100),
)


def test_seeds_count_up_from_the_config(tmp_path):
    first, second = plan_runs(CONFIG, {}, 2, tmp_path, ("train", "--config=x.py"))
    assert [(run.task, run.seed) for run in (first, second)] == [
        ("ALE/Pong-v5", 3),
        ("ALE/Pong-v5", 4),
    ]
    assert second.folder == tmp_path / "ALE_Pong-v5" / "seed_4"
    assert second.argv == (
        "train",
        "--config=x.py",
        "--config.run.seed=4",
        f"--workdir={second.folder}",
    )
    assert not second.is_finished
    assert second.name == "ALE/Pong-v5, seed 4"


def test_a_setting_is_part_of_the_folder_and_of_the_name(tmp_path):
    setting = {"learning_rate": "0.001", "mlp_hidden_sizes": "(64, 32)", "torso": "my_nets:make"}
    (run,) = plan_runs(CONFIG, setting, 1, tmp_path, ())
    name = "learning_rate=0.001,mlp_hidden_sizes=64_32,torso=my_nets_make"
    assert run.folder == tmp_path / "ALE_Pong-v5" / name / "seed_3"
    assert dict(run.setting)["mlp_hidden_sizes"] == "(64, 32)"
    assert run.name.startswith("ALE/Pong-v5, learning_rate=0.001, mlp_hidden_sizes=(64, 32), ")
    assert {run} == {run._replace()}


def test_seeds_of_an_earlier_command_are_shown_and_not_trained(tmp_path):
    for name in ("seed_4", "seed_9", "seed_x"):
        (tmp_path / "ALE_Pong-v5" / "setting=a_b" / name).mkdir(parents=True)
    runs = plan_runs(CONFIG, {"setting": "a b"}, 2, tmp_path, ())
    assert [(run.seed, run.is_wanted) for run in runs] == [(3, True), (4, True), (9, False)]
    assert {run.label for run in runs} == {"a b"}


def test_targets_are_those_of_the_tasks_and_settings():
    fields = {"run.max_actor_steps": 100}
    settings = {
        "as it is": Setting("apex_dqn_cartpole", {}),
        "low": Setting("apex_dqn_cartpole", {"run.target_return": 100.0}),
        "none": Setting("apex_dqn_cartpole", {"run.target_return": None}),
    }
    study = Study("", settings, ("CartPole-v1", "Acrobot-v1"), fields)
    assert find_targets(study, pathlib.Path()) == {
        ("CartPole-v1", "as it is"): 475.0,
        ("CartPole-v1", "low"): 100.0,
        ("Acrobot-v1", "low"): 100.0,
    }


def test_a_text_among_keyword_arguments_stays_a_text(tmp_path):
    entries = {"a": "7", "b": 7, "c": "None", "d": np.float32(0.5), "e": "plain"}
    fields = {f"environment.kwargs.{name}": value for name, value in entries.items()}
    study = Study("", {"texts": Setting("apex_dqn_cartpole", fields)}, ("CartPole-v1",), {}, "", 1)
    checked: list[ExperimentConfig] = []

    def make_command(file: pathlib.Path, config: ExperimentConfig, texts: Mapping[str, str]):
        return [f"--config.{path}={text}" for path, text in texts.items()]

    def check(label: str, config: ExperimentConfig, changed: Collection[str]) -> None:
        assert label == "texts" and {*fields} <= {*changed}
        checked.append(config)

    (run,) = plan_study(study, study, tmp_path, tmp_path, make_command, check, {})
    (config,) = checked
    assert config.environment.kwargs == {**entries, "d": 0.5}
    # The command says the same.
    texts = [flag.removeprefix("--config.").split("=", 1) for flag in run.argv[: len(entries)]]
    assert change_fields(load_config("apex_dqn_cartpole"), texts).environment == config.environment


def test_runs_without_an_end_are_refused(tmp_path):
    config = dataclasses.replace(CONFIG, run=RunConfig())
    with pytest.raises(ValueError, match="max_actor_steps"):
        plan_runs(config, {}, 1, tmp_path, ())


def test_a_run_without_the_target_of_another_task_is_finished(tmp_path):
    run = RunConfig(seed=3, max_actor_steps=100, target_return=TaskReturn(475.0, "CartPole-v1"))
    workdir = tmp_path / "ALE_Pong-v5" / "seed_3"
    close_workdir(open_workdir(str(workdir), CONFIG))
    (workdir / "summary.json").write_text('{"finished": true}')
    (planned,) = plan_runs(dataclasses.replace(CONFIG, run=run), {}, 1, tmp_path, ())
    assert planned.is_finished


@pytest.mark.parametrize(
    ("summary", "limits", "is_finished"),
    [
        ({"finished": True}, {}, True),
        ({"finished": False}, {}, False),
        (None, {}, False),
        ({"finished": True}, {"max_actor_steps": 200}, False),
        ({"finished": True}, {"target_return": 18.0}, False),
    ],
)
def test_a_run_is_finished_if_it_ended_where_it_would_end_now(
    summary, limits, is_finished, tmp_path
):
    workdir = tmp_path / "ALE_Pong-v5" / "seed_3"
    close_workdir(open_workdir(str(workdir), CONFIG))
    if summary is not None:
        (workdir / "summary.json").write_text(json.dumps(summary))
    config = dataclasses.replace(CONFIG, run=dataclasses.replace(CONFIG.run, **limits))
    (run,) = plan_runs(config, {}, 1, tmp_path, ())
    assert run.is_finished is is_finished


def finish(folder, config: ExperimentConfig) -> pathlib.Path:
    """Make the folder of a finished run within that of a study."""
    workdir = folder / "ALE_Pong-v5" / "seed_3"
    close_workdir(open_workdir(str(workdir), config))
    (workdir / "summary.json").write_text(json.dumps({"finished": True}))
    return workdir


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("run", {"num_envs_per_actor": 3}, r"run.num_envs_per_actor 8, not 3; name another"),
        ("run", {"num_learners": 2}, r"run.num_learners 1, not 2; name another"),
        ("run", {"num_replays": 2, "num_actors": 2}, r"run.num_\w+ 1, not 2; name another"),
        (
            *("run", {"learners": LearnersConfig(mode="asynchronous")}),
            r"run.learners.mode 'synchronous', not 'asynchronous'",
        ),
        ("environment", {"max_episode_steps": 9}, r"environment.max_episode_steps \w+, not 9"),
        ("environment", {"kwargs": {"mode": 1}}, r"environment.kwargs.mode None, not 1"),
        ("agent", {"n_step": 5}, r"agent.n_step 3, not 5"),
    ],
)
def test_a_folder_of_another_setting_is_refused(section, changes, message, tmp_path):
    finish(tmp_path, CONFIG)
    part = dataclasses.replace(getattr(CONFIG, section), **changes)
    config = dataclasses.replace(CONFIG, **{section: part})
    with pytest.raises(ValueError, match=message):
        plan_runs(config, {}, 1, tmp_path, ())
    (run,) = plan_runs(CONFIG, {}, 1, tmp_path, ())
    assert run.is_finished


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_actor_steps": 80},
            "100 actor_steps, more than run.max_actor_steps 80; name another",
        ),
        ({"max_actor_steps": 110}, None),
        ({"max_actor_steps": None, "max_learner_steps": 6}, "7 learner_steps, more than run.max_l"),
        ({"max_learner_steps": 7}, None),
        ({"max_seconds": 59.0}, "60 wall_time_seconds, more than run.max_seconds 59"),
        ({"max_seconds": 60.0}, None),
        ({"target_return": 5.0}, "a return of 5, with which run.target_return 5.0 is"),
        ({"target_return": 6.0}, None),
    ],
)
def test_a_run_beyond_the_limit_is_refused(limits, message, tmp_path):
    log = finish(tmp_path, CONFIG) / "logs" / "learner.csv"
    log.parent.mkdir(exist_ok=True)
    log.write_text("actor_steps,learner_steps,wall_time_seconds\n50,3,30\n100,7,60\n\n")
    names = "actor_steps,learner_steps,wall_time_seconds,mean_return"
    log.with_name("evaluator.csv").write_text(f"{names}\n9,1,1,5\n19,2,2,4\n29,3,3,6\n")
    config = dataclasses.replace(CONFIG, run=dataclasses.replace(CONFIG.run, **limits))
    if message:
        with pytest.raises(ValueError, match=message):
            plan_runs(config, {}, 1, tmp_path, ())
    else:
        assert len(plan_runs(config, {}, 1, tmp_path, ())) == 1


def test_what_does_not_change_results_makes_no_other_setting(tmp_path):
    workdir = finish(tmp_path, CONFIG)
    file = workdir / "config.json"
    values = json.loads(file.read_text())
    del values["run"]["num_envs_per_actor"]  # Earlier versions lack this field.
    file.write_text(json.dumps(values))
    run = dataclasses.replace(CONFIG.run, checkpoint_period_seconds=7.0)
    (run,) = plan_runs(dataclasses.replace(CONFIG, run=run), {}, 1, tmp_path, ())
    assert run.is_finished


def test_a_grid_has_all_combinations_and_equal_values_once():
    file, config = find_config("apex_dqn_catch"), load_config("apex_dqn_catch")
    variants = {
        "agent.learning_rate": ["1e-3", "0.004", "0.0010"],
        "agent.mlp_hidden_sizes": ["(64,64)", "128"],
        "environment.task": ["catch", "memory"],
    }
    study, cells = make_grid(file, config, {"run.seed": 3}, variants)
    assert (study.tasks, study.num_seeds) == (["catch", "memory"], 5)
    assert list(study.settings) == [
        f"learning_rate={rate}, mlp_hidden_sizes={sizes}"
        for rate in ("0.001", "0.004")
        for sizes in ("(64, 64)", "(128,)")
    ]
    label = "learning_rate=0.004, mlp_hidden_sizes=(128,)"
    assert study.settings[label] == Setting(
        str(file),
        {"run.seed": 3, "agent.learning_rate": 0.004, "agent.mlp_hidden_sizes": (128,)},
    )
    assert cells[label] == {"learning_rate": "0.004", "mlp_hidden_sizes": "(128,)"}
    assert cells.keys() == study.settings.keys()


@pytest.mark.parametrize(
    ("field", "texts", "message"),
    [
        ("run.max_actor_steps", ["100", "200"], "run.max_actor_steps is 100,200; .* --seeds"),
        ("run.seed", ["1", "2"], "run.seed is 1,2; .* --seeds"),
        ("environment.kwargs", ["{}", "[1]"], r"environment.kwargs=\[1\]: "),
    ],
)
def test_a_grid_of_other_values_is_refused(field, texts, message):
    config = load_config("apex_dqn_catch")
    with pytest.raises(ValueError, match=message):
        make_grid(pathlib.Path("a.py"), config, {}, {field: texts})


FIELDS = {"run.max_actor_steps": 100}


def plan(all_settings, folder, **part) -> list:
    """Plan a study on catch; configs are looked up in its folder."""
    study = Study("", all_settings, ("catch",), FIELDS)
    return plan_study(
        *(study, study._replace(**part), folder, folder / "runs"),
        lambda file, config, fields: [file.stem, str(config.agent.n_step), *fields],
        lambda label, config, fields: config.validate(),
        {"a": {"n_step": "2"}},
    )


def test_a_study_is_planned_and_a_part_of_it_is_wanted(tmp_path):
    text = find_config("apex_dqn_catch").read_text()
    (tmp_path / "own.py").write_text(text)  # It comes before one in the current folder.
    settings = {"a": Setting("own.py", {"agent.n_step": 2}), "b": Setting("apex_dqn_catch", {})}
    runs = plan(settings, tmp_path, settings={"a": settings["a"]}, num_seeds=1)
    fields = ["run.max_actor_steps", "agent.n_step", "environment.task", "--config.run.seed=0"]
    assert list(runs[0].argv)[:-1] == ["own", "2", *fields]
    assert [(run.label, run.is_wanted) for run in runs] == [("n_step=2", True), ("b", False)]
    assert runs[1].folder == tmp_path / "runs" / "catch" / "setting=b" / "seed_0"


CATCH = Setting("apex_dqn_catch", {})


@pytest.mark.parametrize(
    ("label", "setting", "message"),
    [
        ("<b>", CATCH, "catch, b, seed 0 and catch, <b>, seed 0 would share the folder"),
        ("b", Setting("apex_dqn_catsh", {}), "setting 'b': apex_dqn_catsh is neither a file nor"),
        ("b", Setting("wrong.py", {}), "setting 'b': /.*/wrong.py cannot be read: ZeroDiv"),
        ("b", Setting("apex_dqn_catch", {"agent.nstep": 1}), "setting 'b': agent.nstep is no"),
        ("b", Setting("apex_dqn_catch", {"agent.discount": 2}), "setting 'b': agent.discount is"),
    ],
)
def test_a_study_that_is_impossible_is_refused(label, setting, message, tmp_path):
    (tmp_path / "wrong.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=message):
        plan({"a": CATCH, "b": CATCH, label: setting}, tmp_path)
