"""Tests of the epsilon ladder: numbers from the formula, written out."""

from __future__ import annotations

import numpy as np
import pytest

from apex_agents.acting.exploration import (
    ExplorationConfig,
    NoiseConfig,
    epsilon_ladder,
    noise_ladder,
)


@pytest.mark.parametrize(
    ("num_envs", "expected"),
    [
        (1, [0.4]),
        (2, [0.4, 0.4**8]),
        (3, [0.4, 0.4**4.5, 0.4**8]),
        (
            8,
            [0.4, 0.4**2, 0.4**3, 0.4**4, 0.4**5, 0.4**6, 0.4**7, 0.4**8],  # 1 + i / 7 * 7
        ),
    ],
)
def test_ladder_of_the_paper(num_envs, expected):
    np.testing.assert_allclose(epsilon_ladder(ExplorationConfig(), num_envs), expected)


def test_ladder_of_360_actors():
    ladder = epsilon_ladder(ExplorationConfig(), 360)
    assert ladder.shape == (360,)
    np.testing.assert_allclose(ladder[[0, 359]], [0.4, 0.4**8])
    np.testing.assert_allclose(ladder[1], 0.4 ** (1 + 7 / 359))
    assert (np.diff(ladder) < 0).all()


def test_other_ends():
    config = ExplorationConfig(epsilon=0.5, alpha=2.0)
    np.testing.assert_allclose(epsilon_ladder(config, 3), [0.5, 0.25, 0.125])


def test_six_epsilons_over_twelve_envs():
    ladder = epsilon_ladder(ExplorationConfig(num_distinct_epsilons=6), 12)
    rungs = [0.4, 0.4**2.4, 0.4**3.8, 0.4**5.2, 0.4**6.6, 0.4**8]  # 1 + i / 5 * 7
    np.testing.assert_allclose(ladder, np.repeat(rungs, 2))


def test_six_epsilons_over_envs_that_are_no_multiple_of_six():
    ladder = epsilon_ladder(ExplorationConfig(num_distinct_epsilons=6), 16)
    values, counts = np.unique(ladder, return_counts=True)
    np.testing.assert_allclose(values[[0, -1]], [0.4**8, 0.4])
    assert sorted(counts.tolist()) == [2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("num_envs", "expected"), [(1, [0.4]), (2, [0.4, 0.4**8])])
def test_fewer_envs_than_distinct_epsilons(num_envs, expected):
    ladder = epsilon_ladder(ExplorationConfig(num_distinct_epsilons=6), num_envs)
    np.testing.assert_allclose(ladder, expected)


def test_one_distinct_epsilon_is_the_most_exploring_one():
    ladder = epsilon_ladder(ExplorationConfig(num_distinct_epsilons=1), 4)
    np.testing.assert_allclose(ladder, [0.4, 0.4, 0.4, 0.4])


def test_defaults_and_both_ends_of_what_is_allowed_are_valid():
    ExplorationConfig().validate()
    ExplorationConfig(epsilon=0, alpha=0, num_distinct_epsilons=1, evaluation_epsilon=1).validate()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ExplorationConfig(epsilon=1.5),
            r"^exploration\.epsilon is 1\.5; it has to be between 0 and 1\.$",
        ),
        (ExplorationConfig(epsilon=-0.1), r"^exploration\.epsilon is -0\.1"),
        (ExplorationConfig(epsilon=float("nan")), r"^exploration\.epsilon is nan"),
        (
            ExplorationConfig(evaluation_epsilon=2),
            r"^exploration\.evaluation_epsilon is 2; it has to be between 0 and 1\.$",
        ),
        (ExplorationConfig(alpha=-1), r"^exploration\.alpha is -1; it has to be at least 0\.$"),
        (
            ExplorationConfig(num_distinct_epsilons=0),
            r"^exploration\.num_distinct_epsilons is 0; it has to be greater than 0\.$",
        ),
    ],
)
def test_validation_errors(config, message):
    with pytest.raises(ValueError, match=message):
        config.validate()


@pytest.mark.parametrize(
    ("least", "num_envs", "expected"),
    [
        (None, 3, [1.0, 1.0, 1.0]),
        (0.0, 3, [1.0, 0.5, 0.0]),
        (1 / 32, 32, [i / 32 for i in range(32, 0, -1)]),  # Tassa et al. 2018.
        (0.25, 1, [1.0]),
    ],
)
def test_ladder_of_noise_scales(least, num_envs, expected):
    config = NoiseConfig(noise_scale=1.0, min_noise_scale=least)
    np.testing.assert_allclose(noise_ladder(config, num_envs), expected)


def test_a_ladder_of_noise_scales_falls():
    with pytest.raises(ValueError, match=r"exploration\.min_noise_scale"):
        NoiseConfig(noise_scale=0.1, min_noise_scale=0.2).validate()
