"""Tests of the labels of a study's settings: places are kept, damaged files ignored."""

import pytest

from apex_agents.runs.setting_labels import find_setting, read_labels, record_labels


def test_runs_are_found_by_the_folder_of_their_seeds_or_their_own(tmp_path):
    folders = {tmp_path / "catch" / "a": "first", tmp_path / "run_000": "second"}
    record_labels(tmp_path, folders)
    assert find_setting(tmp_path / "catch" / "a" / "seed_3") == (tmp_path, "first", 0)
    assert find_setting(tmp_path / "run_000") == (tmp_path, "second", 1)
    assert find_setting(tmp_path / "catch" / "b" / "seed_3") is None
    assert find_setting(tmp_path) is None


def test_a_label_on_several_tasks_is_one_setting_and_keeps_its_place(tmp_path):
    record_labels(tmp_path, {tmp_path / "pong" / "a": "A", tmp_path / "pong" / "b": "B"})
    record_labels(tmp_path, {tmp_path / "catch" / "b": "B", tmp_path / "catch" / "c": "C"})
    record_labels(tmp_path, {tmp_path / "pong" / "c": "C", tmp_path / "pong" / "a": "A"})
    assert read_labels(tmp_path) == ["A", "B", "C"]
    assert find_setting(tmp_path / "catch" / "b" / "seed_0") == (tmp_path, "B", 1)


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "{", "null"])
def test_a_file_that_holds_no_labels_is_ignored_and_replaced(text, tmp_path):
    (tmp_path / "settings.json").write_text(text)
    assert find_setting(tmp_path / "a" / "seed_0") is None
    record_labels(tmp_path, {tmp_path / "a": "A"})
    assert read_labels(tmp_path) == ["A"]


def test_a_folder_that_cannot_be_written_has_no_labels(tmp_path, caplog):
    (tmp_path / "settings.json").mkdir()
    record_labels(tmp_path, {tmp_path / "a": "A"})
    assert read_labels(tmp_path) == []
    assert "settings.json" in caplog.text
