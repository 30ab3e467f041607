"""The agents that commands know by name: the only list of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from apex_agents.builder import Builder
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.validation import require


class Agent(NamedTuple):
    """One algorithm.

    Attributes:
      config_class: dataclass of its settings, `ExperimentConfig.agent`.
      make_builder: maker of its builder from these settings.
      default_config: name of the settings that its command uses without --config.
    """

    config_class: type
    make_builder: Callable[[Any], Builder]
    default_config: str


AGENTS = {
    "apex_dqn": Agent(ApexDQNConfig, ApexDQNBuilder, "apex_dqn_cartpole"),
    "apex_dpg": Agent(ApexDPGConfig, ApexDPGBuilder, "apex_dpg_pendulum"),
}


def find_agent(config: Any) -> str:
    """Return the name of the agent that a config belongs to.

    Args:
      config: settings of an agent.

    Raises:
      ValueError: it is the config of no agent in `AGENTS`.
    """
    for name, agent in AGENTS.items():
        if isinstance(config, agent.config_class):
            return name
    known = ", ".join(agent.config_class.__name__ for agent in AGENTS.values())
    require(False, "agent", config, f"one of {known}")
    raise AssertionError


def make_builder(config: Any) -> Builder:
    """Make the builder of the agent that a config belongs to.

    Raises:
      ValueError: it is the config of no agent in `AGENTS`, or a field has an invalid value.
    """
    return AGENTS[find_agent(config)].make_builder(config)
