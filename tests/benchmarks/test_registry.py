"""Tests of the table of installed packages."""

import registry
from registry import ACTS, BROKEN, REFUSED, UNUSABLE, Trial


def test_a_line_counts_the_environments_of_a_package():
    outcomes = {
        "Cart-v0": (ACTS, REFUSED),
        "Pole-v0": (ACTS, REFUSED),
        "Arm-v0": (REFUSED, ACTS),
        "Text-v0": (REFUSED, REFUSED),
        "Stuck-v0": (BROKEN, REFUSED),
        "Old-v0": (UNUSABLE, UNUSABLE),
    }
    trials = [
        Trial("mine", name, agent, outcome)
        for name, pair in outcomes.items()
        for agent, outcome in zip(registry.AGENTS, pair, strict=True)
    ]
    *_, line = registry.make_table(trials).splitlines()
    # Ids, Ape-X DQN, Ape-X DPG, refused by both, broken, gymnasium cannot.
    assert line.strip("|").replace("|", "").split() == ["mine", "6", "2", "1", "1", "1", "1"]


def test_messages_that_differ_in_numbers_are_one():
    trials = [
        Trial("mine", "A-v0", "Ape-X DPG", REFUSED, "the environment 'A-v0' has 3 actions"),
        Trial("mine", "B-v0", "Ape-X DPG", REFUSED, "the environment 'B-v0' has 18 actions"),
        Trial("mine", "C-v0", "Ape-X DPG", REFUSED, "no numbers"),
        Trial("mine", "D-v0", "Ape-X DPG", ACTS),
    ]
    assert list(registry.list_messages(trials)) == [
        "mine, Ape-X DPG, refused, 2: A-v0: the environment 'A-v0' has 3 actions",
        "mine, Ape-X DPG, refused, 1: C-v0: no numbers",
    ]


def test_an_environment_is_tried_by_both_agents():
    config = registry.EnvironmentConfig("gymnasium", "CartPole-v1")
    dqn, dpg = registry.try_environment("gymnasium", config, 5)
    assert (dqn.agent, dqn.outcome, dqn.message) == ("Ape-X DQN", ACTS, "")
    assert (dpg.agent, dpg.outcome) == ("Ape-X DPG", REFUSED)
    assert "Use Ape-X DQN" in dpg.message
