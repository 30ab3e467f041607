"""Learns Catch with the parts of an agent, in a program of its own and in Acme's loop."""

import acme
import numpy as np
import reverb
from acme.utils import loggers

from apex_agents import ApexDQNBuilder, ApexDQNConfig, ReplayConfig
from apex_agents.environments import Catch

environment = Catch(seed=0)
replay = ReplayConfig(max_size=10_000, min_size=200)
config = ApexDQNConfig(torso="mlp", frame_stack=0, batch_size=32, learning_rate=1e-3)
config.target_update_period, config.variable_update_period, config.replay = 50, 1, replay
builder = ApexDQNBuilder(config)

# From here on nothing depends on the algorithm.
spec = acme.make_environment_spec(environment)
server = reverb.Server(builder.make_replay_tables(spec))
client = reverb.Client(f"localhost:{server.port}")
learner = builder.make_learner(spec, client)
policy = builder.make_policy(spec, env_indices=[0], num_envs=1, seed=0)
adders = builder.make_adders(client, spec, learner_steps_fn=lambda: learner.num_steps)
actor = builder.make_actor(policy, adders, variable_source=learner)
# Acme's own logger would write into ~/acme.
loop = acme.EnvironmentLoop(environment, actor, logger=loggers.NoOpLogger())
for _ in range(500):
    loop.run_episode()
    if adders[0].num_items >= config.replay.min_size:
        for _ in range(3):
            learner.step()

policy = builder.make_evaluation_policy(spec, num_envs=1, seed=0)
actor = builder.make_actor(policy, variable_source=learner)
loop = acme.EnvironmentLoop(environment, actor, logger=loggers.NoOpLogger())
print("mean return:", np.mean([loop.run_episode()["episode_return"] for _ in range(20)]))
learner.close()
server.stop()
