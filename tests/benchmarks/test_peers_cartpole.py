"""The evaluations of other libraries on CartPole."""

import json

import numpy as np
import pytest
from peers.cartpole import Judge


def push_left(observations):
    return np.zeros(len(observations), np.int64)


@pytest.mark.parametrize(
    ("target", "limit", "is_over"), [(475.0, 1e9, False), (5.0, 1e9, True), (475.0, 0.0, True)]
)
def test_evaluations_end_a_run(target, limit, is_over, capsys):
    judge = Judge(target, limit, num_episodes=20, seed=0)
    judge.evaluate(push_left, agent_steps=123)
    assert judge.is_over is is_over
    result = json.loads(capsys.readouterr().out)
    assert result["agent_steps"] == 123
    # The pole falls after 8 to 10 steps to one side.
    assert 8 <= result["mean_return"] <= 10


def test_every_episode_counts_once(capsys):
    judge = Judge(475.0, 1e9, num_episodes=20, seed=0)
    lean = np.array([0.0, 0.0, 1.0, 1.0], np.float32)
    # Pushing to where the pole leans and falls to keeps it up for much longer.
    judge.evaluate(lambda observations: (observations @ lean > 0).astype(np.int64), 0)
    mean_return = json.loads(capsys.readouterr().out)["mean_return"]
    assert 100 < mean_return <= 500
