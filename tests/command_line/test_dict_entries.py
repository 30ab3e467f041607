"""Tests of flags for dicts and for their entries, as JSON or as Python writes them."""

from typing import Any

import pytest
from absl import flags

from apex_agents.command_line.config_files import find_config
from apex_agents.command_line.dict_entries import join_entries
from apex_agents.command_line.field_names import make_suggest
from apex_agents.command_line.settings import change_fields
from apex_agents.presets import load_config
from apex_agents.validation import get_field

KWARGS = "environment.kwargs"
CONFIG = load_config("apex_dqn_frozenlake")
CONFIG.environment.kwargs = {"is_slippery": True, "of": {"a": [1]}}


def read(*values: tuple[str, Any]) -> dict[str, Any]:
    """Return the dict of a config with flags that have these paths and texts."""
    config = change_fields(CONFIG, dict(values))
    config.validate()
    return config.environment.kwargs


@pytest.mark.parametrize(
    "text",
    [
        '{"a": true, "b": null, "c": [1, 2.5], "d": "x", "e": false}',
        "{'a': True, 'b': None, 'c': [1, 2.5], 'd': 'x', 'e': False}",
        "{'a': true, 'b': null, 'c': [1, 2.5], 'd': \"x\", 'e': False,}",
    ],
)
def test_a_dict_is_written_as_in_json_or_python(text):
    assert read((KWARGS, text)) == {"a": True, "b": None, "c": [1, 2.5], "d": "x", "e": False}


def test_strings_of_json_are_those_of_json():
    assert read((KWARGS, r'{"a": "\/\ud83d\ude00"}')) == {"a": "/\U0001f600"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("false", False),
        ("False", False),
        ("null", None),
        ("7", 7),
        ("1e-3", 0.001),
        ("8x8", "8x8"),
        ("'7'", "7"),
        ("", ""),
        ("a=b", "a=b"),
        ("(84, 84)", (84, 84)),
        ("[(1, 2), {'x': (3,)}]", [(1, 2), {"x": (3,)}]),
    ],
)
def test_an_entry_has_the_type_that_its_text_has(text, value):
    kwargs = read((f"{KWARGS}.is_slippery", text))
    assert kwargs == {"is_slippery": value, "of": {"a": [1]}}
    assert type(kwargs["is_slippery"]) is type(value)
    assert CONFIG.environment.kwargs["is_slippery"] is True  # The config given stays as it is.


def test_entries_change_the_dict_that_comes_before_them():
    a = f"--config.{KWARGS}.a=1"
    whole = f"--config.{KWARGS}={{'b': 2}}"
    inner = [f"--config.{KWARGS}.of.a", "null", f"--config.{KWARGS}.of.deep.er=1"]
    for argv, expected in [
        ([a, "--x"], {**CONFIG.environment.kwargs, "a": 1}),
        ([whole, a], {"b": 2, "a": 1}),
        ([a, whole], {"b": 2}),
        (inner, {"is_slippery": True, "of": {"a": None, "deep": {"er": 1}}}),
    ]:
        *rest, joined = join_entries(CONFIG, argv)
        assert joined == f"--config.{KWARGS}={expected!r}"
        assert rest == [word for word in argv if word == "--x"]


def test_an_entry_of_what_is_no_dict_is_an_error():
    argv = [f"--config.{KWARGS}.is_slippery.a=1"]
    with pytest.raises(flags.IllegalFlagValueError, match="is_slippery is True"):
        join_entries(CONFIG, argv)
    assert join_entries(CONFIG, ["--config.run.seed.a=1"]) == ["--config.run.seed.a=1"]


def test_entries_are_fields_of_a_study():
    config = change_fields(CONFIG, {f"{KWARGS}.of.a": (1, 2)})
    assert get_field(config, f"{KWARGS}.of.a") == (1, 2)
    with pytest.raises(ValueError, match=r"run\.seed\.a is no field"):
        change_fields(CONFIG, {"run.seed.a": 1})


@pytest.mark.parametrize(
    ("flag", "field"),
    [
        ("env", "environment.task"),
        ("env-id", "environment.task"),
        ("env_config", "environment.kwargs"),
        ("buffer_size", "agent.replay.max_size"),
        ("learning_starts", "agent.replay.min_size"),
        ("num_envs", "run.num_envs_per_actor"),
        ("train_batch_size", "agent.batch_size"),
        ("max_grad_norm", "agent.max_gradient_norm"),
        ("target_network_frequency", "agent.target_update_period"),
        ("seed", "run.seed"),
        ("batchsize", "agent.batch_size"),
    ],
)
def test_flags_of_other_libraries_are_fields(flag, field):
    assert make_suggest(CONFIG)(flag) == f"the closest is --config.{field}"
    get_field(CONFIG, field)


def test_a_flag_that_resembles_none_has_no_suggestion():
    assert make_suggest(CONFIG)("wandb_entity") is None


@pytest.mark.parametrize(
    ("part", "agent", "name"),
    [
        ("lunar", "apex_dqn", "apex_dqn_lunarlander"),
        ("lunar", "", "apex_dqn_lunarlander"),
        ("cart", "a2c", "a2c_cartpole"),
        ("control", "apex_dpg", "apex_dpg_control"),  # A word counts before parts of words.
    ],
)
def test_settings_are_found_by_a_part_of_their_name(part, agent, name):
    assert find_config(part, agent).stem == name
