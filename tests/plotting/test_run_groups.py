"""Tests of which runs are seeds of one setting, and of the labels of settings."""

import dataclasses

import numpy as np

from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.plotting.run_groups import group_runs, make_title, name_in, place_in
from apex_agents.runs.setting_labels import record_labels

AGENT = {"batch_size": 32, "n_step": 3, "replay": {"max_size": 10, "min_size": 5}}


def labels(runs) -> list[str]:
    groups = group_runs(runs)
    return [name_in(group, groups) for group in groups]


def test_runs_of_other_seeds_and_limits_are_one_group(make_run):
    runs = [
        make_run("a", seed=1),
        make_run("b", seed=2, target_return=5.0),
        make_run("c", seed=2, max_actor_steps=100),
    ]
    (group,) = group_runs(runs)
    assert group.runs == runs
    assert (group.setting, group.task, group.agent) == ("", "catch", "Ape-X DQN")
    assert group.field("agent.batch_size") == 32
    assert group.field("run.seed") is None  # The runs differ in it.
    assert group.field("missing") is None


def test_groups_come_in_the_order_of_their_first_runs(make_run):
    pong = [make_run(f"pong{i}", task="pong", seed=i) for i in range(2)]
    catch = make_run("catch")
    groups = group_runs([pong[0], catch, pong[1]])
    assert [group.runs for group in groups] == [pong, [catch]]
    assert labels([pong[0], catch, pong[1]]) == ["pong", "catch"]


def test_whole_numbers_are_the_same_as_int_and_as_float(make_run):
    runs = [make_run(str(i), agent={**AGENT, "n_step": n}) for i, n in enumerate((3, 3.0, 4))]
    assert [group.runs for group in group_runs(runs)] == [runs[:2], runs[2:]]


def test_a_field_that_an_older_version_did_not_have_has_its_default(make_run):
    fields = dataclasses.asdict(ApexDQNConfig(n_step=7))
    old = {name: value for name, value in fields.items() if name != "max_gradient_norm"}
    runs = [make_run(str(i), agent=agent) for i, agent in enumerate((fields, old))]
    assert [group.runs for group in group_runs(runs)] == [runs]
    other = make_run("other", agent={**fields, "max_gradient_norm": 1.0})
    assert labels([*runs, other]) == ["max_gradient_norm=40.0", "max_gradient_norm=1.0"]


def test_environments_with_and_without_an_argument_are_two_settings(make_run):
    maps = [[[0, 1], [1, 0]], [[0, 0], [1, 1]]]
    settings = [{}, *({"map": lists} for lists in maps)]
    runs = [make_run(f"run{i}", kwargs=kwargs) for i, kwargs in enumerate(settings)]
    assert [group.runs for group in group_runs(runs)] == [[run] for run in runs]


def test_settings_of_one_task_are_labelled_by_what_differs(make_run):
    runs = [
        make_run("a", agent=AGENT),
        make_run("b", agent={**AGENT, "batch_size": 64}),
        make_run("c", agent={**AGENT, "replay": {"max_size": 20, "min_size": 5}}),
    ]
    assert labels(runs) == [
        "batch_size=32, max_size=10",
        "batch_size=64, max_size=10",
        "batch_size=32, max_size=20",
    ]
    assert labels([*runs[:2], make_run("d", task="pong")]) == [
        "catch, batch_size=32",
        "catch, batch_size=64",
        "pong",
    ]


def test_a_setting_has_one_colour_on_all_tasks(make_run):
    runs = [
        make_run(f"{task}{size}", task=task, agent={"batch_size": size})
        for task, size in (("pong", 8), ("pong", 16), ("catch", 16), ("catch", 32))
    ]
    found = [(group.setting, group.index) for group in group_runs(runs)]
    assert found == [
        ("batch_size=8", 0),
        ("batch_size=16", 1),
        ("batch_size=16", 1),
        ("batch_size=32", 2),
    ]


def test_fields_of_one_name_are_labelled_by_their_whole_path(make_run):
    agents = [{"size": 1, "replay": {"size": 2}}, {"size": 3, "replay": {"size": 4}}]
    runs = [make_run(f"run{i}", agent=agent) for i, agent in enumerate(agents)]
    assert labels(runs)[0] == "agent.replay.size=2, agent.size=1"


def test_settings_that_differ_in_much_are_labelled_by_their_folders(make_run):
    other = {"batch_size": 1, "n_step": 1, "replay": {"max_size": 1, "min_size": 1}}
    runs = [make_run("small", agent=other), make_run("large", agent=AGENT)]
    assert labels(runs) == ["small", "large"]


def test_runs_of_a_sweep_are_labelled_by_their_settings_folders(make_run):
    other = {"batch_size": 1, "n_step": 1, "replay": {"max_size": 1, "min_size": 1}}
    runs = [make_run("small/seed_0", agent=other), make_run("large/seed_0", agent=AGENT)]
    assert labels(runs) == ["small", "large"]
    tasks = [make_run(f"{name}/a/seed_0", task=name, agent=AGENT) for name in ("x", "y")]
    tasks += [make_run(f"{name}/b/seed_0", task=name, agent=other) for name in ("x", "y")]
    assert labels(tasks) == ["x, a", "y, a", "x, b", "y, b"]
    sweeps = [make_run(f"{name}/pong/seed_3", agent=a) for name, a in (("s", AGENT), ("t", other))]
    assert labels(sweeps) == ["s/pong", "t/pong"]
    seeds = [make_run(f"seeds/seed_{i}", agent=a) for i, a in enumerate((AGENT, other))]
    assert labels(seeds) == ["seed_0", "seed_1"]


def test_a_config_without_fields(make_run):
    run = make_run("a")
    run.config.clear()
    (group,) = group_runs([run])
    assert (group.task, group.agent, group.field("run.seed")) == ("?", "?", None)


def test_the_agent_is_named_by_the_class_of_its_config(make_run):
    types = {"ApexDPGConfig": "Ape-X DPG", "ApexR2D2Config": "Ape-X R2D2", "A2CConfig": "A2C"}
    runs = [make_run(agent_type, agent_type=agent_type) for agent_type in types]
    assert [group.agent for group in group_runs(runs)] == list(types.values())


def test_agents_are_labelled_by_their_names(make_run):
    runs = [
        make_run("a", agent=AGENT),
        make_run("b", agent={"n_step": 5, "entropy_coefficient": 0.0}, agent_type="A2CConfig"),
        make_run("c", agent={"n_step": 16, "entropy_coefficient": 0.0}, agent_type="A2CConfig"),
    ]
    assert labels(runs[:2]) == ["Ape-X DQN", "A2C"]
    assert labels(runs) == ["Ape-X DQN", "A2C, n_step=5", "A2C, n_step=16"]
    assert labels([*runs, make_run("d", task="pong")])[1:] == [
        *("catch, A2C, n_step=5", "catch, A2C, n_step=16", "pong"),
    ]


def test_files_are_read_once(make_run):
    run = make_run("a", {"replay": [{"replay_size": 5}]})
    (group,) = group_runs([run, make_run("b", seed=1)])
    first, second = group.read_columns("replay")
    np.testing.assert_array_equal(first["replay_size"], [5.0])
    assert second == {}
    run.log_path("replay").unlink()
    assert group.read_columns("replay")[0] is first
    assert group.logs() == []


def make_study(make_run, tmp_path) -> dict[str, list]:
    """Make the runs of three settings, two seeds each, in a folder that records their labels."""
    agents = {"small": {"size": 1}, "middle": {"size": 2, "n_step": 5}, "large": {"size": 3}}
    runs = {
        name: [make_run(f"catch/setting={name}/seed_{i}", agent=agent, seed=i) for i in (0, 1)]
        for name, agent in agents.items()
    }
    order = ("large", "small", "middle")  # Neither that of the names nor that of the folders.
    record_labels(tmp_path, {runs[name][0].path.parent: f"a {name} net" for name in order})
    return runs


def describe(runs) -> dict[str, tuple[int, int]]:
    groups = group_runs(runs)
    return {group.setting: place_in(group, groups) for group in groups}


def test_a_setting_of_a_study_has_one_label_and_colour_whatever_is_drawn(make_run, tmp_path):
    runs = make_study(make_run, tmp_path)
    places = {"a large net": (0, 0), "a small net": (1, 0), "a middle net": (2, 0)}
    found = describe([*runs["small"], *runs["middle"], *runs["large"]])
    assert list(found.items()) == list(places.items())
    assert describe([*runs["middle"], *runs["small"]]) == {
        label: places[label] for label in ("a middle net", "a small net")
    }
    for name in runs:
        label = f"a {name} net"
        assert describe(runs[name]) == {label: places[label]}
        assert make_title(group_runs(runs[name])) == f"Ape-X DQN on catch, {label}, 2 seeds"


def test_a_setting_that_is_added_takes_the_next_colour(make_run, tmp_path):
    runs = make_study(make_run, tmp_path)
    before = describe([run for name in runs for run in runs[name]])
    new = make_run("catch/setting=a/seed_0", agent={"size": 4})
    record_labels(tmp_path, {new.path.parent: "new", runs["large"][0].path.parent: "a large net"})
    after = describe([new, *(run for name in runs for run in runs[name])])
    assert after == {"new": (3, 0), **before}


def test_a_setting_has_one_colour_on_all_tasks_of_a_panel(make_run, tmp_path):
    agents = {"x": {"size": 1}, "y": {"size": 2}}
    runs = [
        make_run(f"{task}/{name}/seed_0", agent=agents[name], task=task)
        for task in ("catch", "pong")
        for name in agents
    ]
    record_labels(tmp_path, {run.path.parent: run.path.parent.name for run in runs})
    groups = group_runs(runs)
    assert [(g.task, g.setting, *place_in(g, groups)) for g in groups] == [
        ("catch", "x", 0, 0),
        ("pong", "x", 0, 1),
        ("catch", "y", 1, 0),
        ("pong", "y", 1, 1),
    ]
    of_pong = groups[1::2]
    assert [place_in(group, of_pong) for group in of_pong] == [(0, 0), (1, 0)]


def test_tasks_have_colours_where_there_is_one_setting(make_run):
    groups = group_runs([make_run(task, task=task) for task in ("catch", "pong")])
    assert [place_in(group, groups) for group in groups] == [(0, 0), (1, 0)]


def test_runs_of_two_studies_are_labelled_by_what_differs(make_run, tmp_path):
    runs = [
        make_run("first/catch/s/seed_0", agent={"size": 1}),
        make_run("second/catch/s/seed_0", agent={"size": 2}),
    ]
    for run in runs:
        record_labels(run.path.parents[2], {run.path.parent: "s"})
    assert describe(runs) == {"size=1": (0, 0), "size=2": (1, 0)}
    assert describe(runs[1:]) == {"s": (0, 0)}
