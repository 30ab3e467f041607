"""Tests of a trained R2D2: what it remembers when it is loaded, and its exports."""

from __future__ import annotations

import numpy as np
import pytest

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.export import export_onnx, export_saved_model, record_observations
from apex_agents.loading import load
from tests.r2d2.sequences import make_config
from tests.tiny_runs import make_run

GREEDY = ExplorationConfig(evaluation_epsilon=0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the evaluated policy of a run, and the same one loaded."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    saved = make_run(folder, make_config(exploration=GREEDY), EnvironmentConfig("toy", "catch"))
    return saved, load(folder)


def test_a_loaded_policy_acts_as_the_evaluated_one(run):
    saved, policy = run
    environment = policy.make_environment()
    timestep, actions = environment.reset(), set()
    for _ in range(40):  # Episodes of catch have 9 steps.
        action = policy.act_at(timestep)
        np.testing.assert_array_equal(action, saved(timestep).action)
        actions.add(int(action[0]))
        timestep = environment.step(action)
    environment.close()
    assert len(actions) > 1


def test_values_depend_on_the_episode_so_far_and_on_the_reward(run):
    _, policy = run
    random = np.random.default_rng(0)
    first, second = random.uniform(size=[2, *policy.spec.observations.shape]).astype(np.float32)
    policy.reset()
    alone = policy.q_values(second, reward=0.0)
    policy.act(first, reward=0.0)
    after = policy.q_values(second, reward=0.0)
    assert not np.allclose(alone, after)
    assert not np.allclose(after, policy.q_values(second, reward=1.0))
    policy.reset()
    np.testing.assert_allclose(policy.q_values(second, reward=0.0), alone, atol=1e-6)
    with pytest.raises(ValueError, match="reward"):
        policy.act(first)


def test_exports_compute_what_the_network_computes(run, tmp_path):
    _, policy = run
    observations = record_observations(policy, num_steps=4, num_envs=2)
    assert 0 <= export_saved_model(policy, tmp_path / "saved_model", observations) < 1e-6
    assert 0 <= export_onnx(policy, tmp_path / "policy.onnx", observations) < 1e-6
