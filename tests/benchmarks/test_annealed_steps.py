"""Test of the schedule of transitions that become shorter."""

import annealed_steps
import dm_env
import numpy as np
import pytest
from dm_env import specs

from apex_agents.acting.policy import PolicyOutput
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import EnvironmentSpec


# 10 * 0.3^(2/3) is 4.48, and 10 * 0.3^(1/3) is 6.69.
@pytest.mark.parametrize(
    ("learner_steps", "n_step"), [(0, 10), (10_000, 7), (20_000, 4), (30_000, 3), (90_000, 3)]
)
def test_n_falls_with_the_learner_steps_of_the_parameters(learner_steps, n_step, serve):
    spec = EnvironmentSpec(specs.Array([2], np.float32), specs.DiscreteArray(2), None, None)
    config = ApexDQNConfig(torso="mlp", mlp_hidden_sizes=(4,), frame_stack=0, n_step=10)
    builder = annealed_steps.AnnealedBuilder(config)
    client = serve(*builder.make_replay_tables(spec))
    calls = {"should_stop": lambda: False, "learner_steps_fn": lambda: learner_steps}
    adder, other = builder.make_adders(client, spec, env_indices=(0, 1), num_envs=2, **calls)
    output = PolicyOutput(np.asarray(0), np.asarray(0.0), 0.0)
    adder.add(dm_env.restart(np.zeros(2, np.float32)), output)
    for _ in range(20):
        adder.add(dm_env.transition(1.0, np.zeros(2, np.float32)), output)
    assert adder.num_steps == 21 - n_step
    assert other.num_steps == 0
    # Reverb's writer may wait for ever if it is closed before its items have been confirmed.
    for each in (adder, other):
        each.close()
