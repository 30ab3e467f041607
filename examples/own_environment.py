"""Learns an environment of one's own in a minute: `apex-dqn --config=own_environment.py`."""

import gymnasium

import apex_agents


class Corridor(gymnasium.Env):
    """One action walks right, to the end and a reward of 1: 0 at even places, 1 at odd ones."""

    def __init__(self, length: int = 6):
        self.length, self.place = length, 0
        self.observation_space = gymnasium.spaces.Discrete(length + 1)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return self.place, {}

    def step(self, action):
        self.place = max(self.place + (1 if action == self.place % 2 else -1), 0)
        is_over = self.place == self.length
        return self.place, float(is_over), is_over, False, {}


gymnasium.register("Corridor-v0", entry_point=Corridor)


def get_config() -> apex_agents.ExperimentConfig:
    """Return the settings of the run."""
    replay = apex_agents.ReplayConfig(20_000, min_size=500, samples_per_insert=4.0)
    return apex_agents.ExperimentConfig(
        apex_agents.ApexDQNConfig(torso="mlp", frame_stack=0, learning_rate=0.001, replay=replay),
        apex_agents.EnvironmentConfig("gymnasium", "Corridor-v0", max_episode_steps=40),
        apex_agents.RunConfig(num_actors=1, num_envs_per_actor=8, target_return=1.0),
    )
