"""The agents that commands know by name: the only list of them."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from apex_agents.actor_critic.builder import ActorCriticBuilder
from apex_agents.actor_critic.config import A2CConfig, A3CConfig
from apex_agents.builder import Builder
from apex_agents.dpg.builder import ApexDPGBuilder
from apex_agents.dpg.config import ApexDPGConfig
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.fields import with_fields
from apex_agents.own_torso import TorsoFn
from apex_agents.r2d2.builder import R2D2Builder
from apex_agents.r2d2.config import R2D2Config
from apex_agents.user_code import find_function, in_one_line, name_function
from apex_agents.validation import require


class Agent(NamedTuple):
    """One algorithm.

    Attributes:
      config_class: dataclass of its settings, `ExperimentConfig.agent`.
      make_builder: maker of its builder from these settings and `torso_fn`, a user's maker of
        torsos or None.
      default_config: name of the settings that its command uses without --config.
      next_task: what to try after these, and the flags of the command for it.
    """

    config_class: type
    make_builder: Callable[..., Builder]
    default_config: str
    next_task: tuple[str, str]


AGENTS = {
    "apex_dqn": Agent(
        ApexDQNConfig,
        ApexDQNBuilder,
        "apex_dqn_cartpole",
        ("Atari", "--config=apex_dqn_atari_single_host --config.environment.task=breakout"),
    ),
    "apex_dpg": Agent(
        ApexDPGConfig,
        ApexDPGBuilder,
        "apex_dpg_pendulum",
        ("control suite", "--config=apex_dpg_control_single_host"),
    ),
    "r2d2": Agent(
        R2D2Config,
        R2D2Builder,
        "r2d2_cartpole",
        ("Atari", "--config=r2d2_atari_single_host --config.environment.task=breakout"),
    ),
    "a2c": Agent(
        A2CConfig,
        ActorCriticBuilder,
        "a2c_cartpole",
        ("Atari", "--config=a2c_atari_single_host --config.environment.task=breakout"),
    ),
    "a3c": Agent(
        A3CConfig,
        ActorCriticBuilder,
        "a3c_cartpole",
        ("Atari", "--config=a3c_atari_single_host --config.environment.task=breakout"),
    ),
}
CONFIG_CLASSES = {name: agent.config_class for name, agent in AGENTS.items()}

_BUILDER = "agent.builder"
STANDARD = "standard"  # Value of this field for the agent's own builder.


def find_agent(config: Any) -> str:
    """Return the name of the agent that a config belongs to.

    Raises:
      ValueError: it is the config of no agent in `AGENTS`.
    """
    names = [name for name, kind in CONFIG_CLASSES.items() if isinstance(config, kind)]
    known = ", ".join(kind.__name__ for kind in CONFIG_CLASSES.values())
    require(bool(names), "agent", config, f"one of {known}")
    return names[0]


def with_torso_fn(config: Any, torso_fn: TorsoFn) -> Any:
    """Return a copy of `config` in which `torso_fn` makes every torso."""
    fields = dataclasses.fields(CONFIG_CLASSES[find_agent(config)])  # A subclass may have others.
    reference = name_function(torso_fn, "torso_")
    names = [field.name for field in fields if field.name.endswith("torso")]
    return with_fields(config, **dict.fromkeys(names, reference))


def with_builder_fn(config: Any, builder_fn: Callable[..., Any]) -> Any:
    """Return a copy of `config` in which `builder_fn` makes the builder.

    Raises:
      ValueError: it is the config of no agent in `AGENTS`.
    """
    find_agent(config)
    return with_fields(config, builder=name_function(builder_fn, "builder_"))


def make_builder(config: Any, torso_fn: TorsoFn | None = None) -> Builder:
    """Make the builder that a config names, by default that of the agent it belongs to.

    Args:
      config: settings of the agent.
      torso_fn: maker of torsos in place of those that the config names.

    Raises:
      ValueError: it is the config of no agent in `AGENTS`, a field has an invalid value, or the
        user's code that it names cannot be imported, fails, or returns no builder.
    """
    standard = AGENTS[find_agent(config)].make_builder
    name = config.builder
    if name == STANDARD:
        return standard(config, torso_fn)
    try:
        builder = find_function(name, _BUILDER)(config, torso_fn)
    except ValueError:
        raise
    except Exception as error:  # The user's code may raise anything.
        raise ValueError(
            f"{_BUILDER} {name!r}, called with the agent's config and torso_fn, raises "
            f"{in_one_line(error)}"
        ) from error
    if not callable(getattr(builder, "make_learner", None)):
        raise ValueError(
            f"{_BUILDER} {name!r} returns {builder!r}, which is no builder; it has to be such as a "
            f"subclass of {standard.__name__}."
        )
    return builder
