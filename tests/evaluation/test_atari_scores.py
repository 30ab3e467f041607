"""Tests of human-normalized scores, by hand and against the median that the paper reports."""

import dataclasses
import statistics

import pytest
from ale_py import roms

from apex_agents.environments import AtariConfig
from apex_agents.evaluation.atari_scores import (
    AtariScores,
    atari_scores,
    human_normalized_score,
    no_op_rules,
    protocol_deviations,
    scored_game,
)


@pytest.mark.parametrize(
    ("game", "score", "expected"),
    [
        ("pong", 20.9, (20.9 + 20.7) / (14.6 + 20.7)),  # 117.8 %
        ("skiing", -10789.9, 6308.2 / 12761.2),
        ("boxing", 6.1, 0.5),
        ("bowling", 17.6, -5.5 / 137.6),  # Worse than a random player.
    ],
)
def test_human_normalized_score(game, score, expected):
    assert human_normalized_score(game, score) == pytest.approx(expected, abs=1e-9)


def test_rows_of_the_table():
    assert atari_scores()["pong"] == AtariScores(-20.7, 14.6, 20.9, 18.7)
    assert atari_scores()["montezuma_revenge"] == AtariScores(0.0, 4753.3, 2500.0, 1079.0)
    assert atari_scores()["zaxxon"] == AtariScores(32.5, 9173.3, 42285.5, 37672.0)


def test_the_emulator_has_the_57_games():
    assert len(atari_scores()) == 57
    assert set(atari_scores()) <= set(roms.get_all_rom_ids())


def test_the_median_of_the_paper_s_scores_is_the_one_that_it_reports():
    # Horgan et al. 2018, table 1: 434 % with no-op starts.
    scores = [human_normalized_score(g, s.apex_no_op) for g, s in atari_scores().items()]
    assert round(100 * statistics.median(scores)) == 434


@pytest.mark.parametrize("game", ["tetris", "Pong", ""])
def test_other_games_have_no_score(game):
    with pytest.raises(ValueError, match=f"'{game}'"):
        human_normalized_score(game, 1.0)


@pytest.mark.parametrize(
    ("suite", "task", "game"),
    [
        ("atari", "pong", "pong"),
        ("atari", "MsPacman", "ms_pacman"),
        ("atari", "tetris", None),
        ("toy", "pong", None),
    ],
)
def test_scored_games(suite, task, game):
    assert scored_game(suite, task) == game


def test_no_op_rules_replace_only_settings_that_do_not_affect_learning():
    config = AtariConfig(max_noops=3, evaluation_max_frames=50, sticky_action_probability=0.25)
    rules = no_op_rules(config)
    assert rules == AtariConfig(
        max_noops=30, evaluation_max_frames=108_000, sticky_action_probability=0.25
    )
    assert config.max_noops == 3


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"max_frames": 1000, "frame_size": 42}, []),
        ({"life_loss_ends_episode": True}, ["after"]),
        ({"sticky_action_probability": 0.25}, ["sticky_action_probability"]),
        ({"action_repeat": 2}, ["action_repeat"]),
    ],
)
def test_deviations_from_the_paper_s_protocol(changes, fields):
    deviations = protocol_deviations(dataclasses.replace(AtariConfig(), **changes))
    assert [text.split()[0] for text in deviations] == fields
