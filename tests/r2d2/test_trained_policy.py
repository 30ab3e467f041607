"""Tests of a trained R2D2: what it remembers when it is loaded, and its exports."""

from __future__ import annotations

import json
import pathlib
import runpy
import sys

import gymnasium
import numpy as np
import onnxruntime
import pytest

from apex_agents.acting.exploration import ExplorationConfig
from apex_agents.environments import EnvironmentConfig
from apex_agents.export import describe, export_onnx, export_saved_model, record_observations
from apex_agents.loading import load
from tests.r2d2.sequences import make_config
from tests.tiny_runs import make_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
    for reward in (None, float("nan")):
        with pytest.raises(ValueError, match="reward"):
            policy.act(first, reward)


def test_the_example_plays_an_export_as_the_policy_plays(tmp_path, monkeypatch, capsys):
    """It gives state and reward back, and forgets both where an episode begins."""
    environment = EnvironmentConfig("gymnasium", "CartPole-v1", action_repeat=2)
    make_run(tmp_path / "run", make_config(exploration=GREEDY), environment)
    policy = load(tmp_path / "run")
    export_onnx(policy, tmp_path / "policy.onnx", record_observations(policy, num_steps=4))
    (tmp_path / "policy.json").write_text(json.dumps(describe(policy)))
    monkeypatch.setattr(sys, "argv", ["play_onnx.py", str(tmp_path)])
    found, run = [], onnxruntime.InferenceSession.run

    def record_values(session, names, inputs):
        found.append(run(session, ["q_values"], inputs)[0][0])
        return run(session, names, inputs)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", record_values)
    capsys.readouterr()
    runpy.run_path(str(ROOT / "examples" / "play_onnx.py"))
    lines = capsys.readouterr().out.splitlines()

    environment, returns, expected, seed = gymnasium.make("CartPole-v1"), [], [], 0
    while len(returns) < 5:
        observation, _ = environment.reset(seed=seed)
        policy.reset()
        returns.append(0.0)
        is_over, reward, seed = False, 0.0, None
        while not is_over:
            expected.append(policy.q_values(observation, reward))
            action, reward = policy.act(observation, reward), 0.0
            for _ in range(2):
                observation, each, terminated, truncated, _ = environment.step(action)
                reward += each
                if is_over := terminated or truncated:
                    break
            returns[-1] += reward
        expected.append(None)  # The values at an episode's end are not used.
    assert lines == [f"episode {i + 1}: {value:.1f}" for i, value in enumerate(returns)]
    for values, own in zip(found, expected[:-1], strict=True):
        assert own is None or np.allclose(values, own, atol=1e-5)


def test_exports_compute_what_the_network_computes(run, tmp_path):
    _, policy = run
    observations = record_observations(policy, num_steps=4, num_envs=2)
    assert 0 <= export_saved_model(policy, tmp_path / "saved_model", observations) < 1e-6
    assert 0 <= export_onnx(policy, tmp_path / "policy.onnx", observations) < 1e-6
