"""A run that starts with what another one has learned, such as Pong's agent in this repository.

Example, in the checkout:
  apex-dqn --config=examples/fine_tuning.py
"""

import pathlib

import apex_agents as apex
from apex_agents.dqn.learning import DQNUpdate
from apex_agents.runs.checkpoints import find_parameters
from apex_agents.runs.parameter_file import assign, read_parameters

TRAINED = "agents/pong"  # Folder of an agent or a run, from where the command is given.


class FineTuningBuilder(apex.ApexDQNBuilder):
    """Makes the parts of Ape-X DQN, but with a learner that starts with these parameters."""

    def make_update(self, spec, seed=0):
        trained = read_parameters(find_parameters(pathlib.Path(TRAINED), "best"))
        networks = [self.make_networks(spec, seed) for _ in range(2)]
        for network in networks:
            assign({"network": network.variables}, trained)
        return DQNUpdate(*networks, self.config)


def get_config():
    """Return the settings for Atari on a small machine, but with sticky actions."""
    config = apex.load_config("apex_dqn_atari_single_host")
    config.environment.atari.sticky_action_probability = 0.25
    config.agent.builder = f"{__name__}:FineTuningBuilder"
    return config
