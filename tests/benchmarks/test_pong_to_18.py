"""Tests of the time that Pong takes."""

import sys

import pong_to_18

from apex_agents.studies.results import Point, from_csv

POINTS = [
    Point("pong", "Ape-X DQN", seed, 1000 * minutes, minutes, 60.0 * minutes, mean_return)
    for seed, returns in enumerate([(17.9, 18.0, 3.0), (1.0, 2.0, 19.0), (1.0, 2.0, 3.0)])
    for minutes, mean_return in zip((10, 20, 30), returns, strict=True)
]


def test_the_first_evaluation_at_the_level_counts():
    assert pong_to_18.describe(POINTS[:6]) == (
        "18 after 20.0 and 30.0 minutes (20 and 30 thousand agent steps), median 25.0"
    )
    assert pong_to_18.describe(POINTS).startswith("18 after 20.0, 30.0 and inf minutes (20, 30 ")
    assert pong_to_18.describe(POINTS).endswith("median 30.0")


def test_the_sentence_of_the_documentation_is_that_of_the_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pong_to_18.py"])
    pong_to_18.main()
    sentence = capsys.readouterr().out.strip()
    assert sentence == pong_to_18.describe(from_csv(pong_to_18.FILE.read_text()))
    text = " ".join((pong_to_18.ROOT / "docs" / "results.md").read_text().split())
    assert sentence in text
