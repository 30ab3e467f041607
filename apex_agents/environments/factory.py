"""The environment of a run: its config, and how it is made."""

import dataclasses
from collections.abc import Callable

import dm_env
import gymnasium
import numpy as np

from apex_agents.environments.atari import AtariVectorEnvironment
from apex_agents.environments.atari_config import AtariConfig, rom_name
from apex_agents.environments.gymnasium_adapter import GymnasiumEnvironment
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import SyncVectorEnvironment, VectorEnvironment
from apex_agents.validation import require_fields, unknown_name


@dataclasses.dataclass
class EnvironmentConfig:
    """The environment of a run.

    Attributes:
      suite: source of the task: 'atari' (the paper's section 4.1), 'control' (section 4.2),
        'gymnasium' or 'toy'.
      task: name of the task in its suite: a game for 'atari' ('pong', 'MsPacman', 'ALE/Pong-v5'), a
        domain and a task for 'control' ('humanoid:stand'), an id for 'gymnasium' ('CartPole-v1'),
        'catch' or 'point_mass' for 'toy'.
      atari: preprocessing of the 'atari' suite; the others do not read it.
    """

    suite: str = "atari"
    task: str = "pong"
    atari: AtariConfig = dataclasses.field(default_factory=AtariConfig)

    def validate(self, prefix: str = "environment.") -> None:
        """Raise a ValueError that names the first field whose value is not allowed."""
        require_fields(self, prefix)
        _check_task(self.suite, self.task)


def make_vector_environment(
    config: EnvironmentConfig,
    num_envs: int,
    seed: int,
    *,
    evaluation: bool = False,
    num_rendered: int = 0,
) -> VectorEnvironment:
    """Make the environments of an actor or of an evaluator.

    Args:
      config: the environment.
      num_envs: number of environments, E.
      seed: seed from which the seed of each environment is derived.
      evaluation: whether the rules of evaluation apply, where a suite has some (see `AtariConfig`).
      num_rendered: number of environments, the first ones, that can `render` what they show.

    Raises:
      ValueError: `num_envs` is less than 1, the config is invalid, or an environment cannot be made
        or cannot be rendered.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    config.validate()
    children = np.random.SeedSequence(seed).spawn(num_envs)
    # Every environment accepts a seed in [0, 2 ** 31).
    seeds = [int(child.generate_state(1)[0]) >> 1 for child in children]
    if config.suite == "atari":
        return AtariVectorEnvironment(
            config.task, config.atari, seeds, evaluation=evaluation, num_rendered=num_rendered
        )
    return SyncVectorEnvironment(
        [
            _make_environment(config.suite, config.task, seed, i < num_rendered)
            for i, seed in enumerate(seeds)
        ]
    )


def _check_task(suite: str, task: str) -> None:
    if suite == "atari":
        rom_name(task)
    elif suite == "control":
        from apex_agents.environments.control import check_control_task

        check_control_task(task)
    elif suite == "gymnasium":
        try:
            gymnasium.spec(task)
        except (gymnasium.error.Error, ImportError, ValueError) as error:
            raise unknown_name("gymnasium task", task, gymnasium.registry) from error
    elif suite != "toy":
        raise unknown_name("suite", suite, ("atari", "control", "gymnasium", "toy"))
    elif task not in _TOYS:
        raise unknown_name("toy task", task, _TOYS)


def _make_environment(suite: str, task: str, seed: int, render: bool) -> dm_env.Environment:
    if suite == "control":
        from apex_agents.environments.control import ControlEnvironment

        return ControlEnvironment(task, seed)
    if suite == "toy":
        return _TOYS[task](seed=seed)
    try:
        return GymnasiumEnvironment(task, seed, render)
    # The task is registered, but its library is missing, its spaces do not become arrays, or it
    # cannot be drawn.
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise ValueError(f"environment.task {task!r} cannot be made: {error}") from error


_TOYS: dict[str, Callable[..., dm_env.Environment]] = {"catch": Catch, "point_mass": PointMass}
