"""The environment of a run: its config, and how it is made."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

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
        """Check all fields, without making an environment.

        Raises:
          ValueError: the suite or the task is unknown, or an Atari field is out of its range.
        """
        require_fields(self, prefix)
        if self.suite not in _SUITES:
            raise unknown_name("suite", self.suite, _SUITES)
        _SUITES[self.suite].check_task(self.task)


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

    Returns:
      E environments; the caller resets them first and closes them in the end.

    Raises:
      ValueError: `num_envs` is less than 1, the suite or the task is unknown, an Atari field is out
        of its range, or an environment cannot be made or cannot be rendered.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    config.validate()
    seeds = _make_seeds(seed, num_envs)
    make = _SUITES[config.suite].make
    if make is None:
        return AtariVectorEnvironment(
            config.task, config.atari, seeds, evaluation=evaluation, num_rendered=num_rendered
        )
    return SyncVectorEnvironment(
        [make(config.task, seed, i < num_rendered) for i, seed in enumerate(seeds)]
    )


def _make_seeds(seed: int, num_envs: int) -> list[int]:
    """Return a seed in [0, 2 ** 31), which every environment accepts, for each environment."""
    children = np.random.SeedSequence(seed).spawn(num_envs)
    return [int(child.generate_state(1)[0]) >> 1 for child in children]


def _check_control_task(task: str) -> None:
    from apex_agents.environments.control import check_control_task

    check_control_task(task)


def _make_control(task: str, seed: int, render: bool) -> dm_env.Environment:
    from apex_agents.environments.control import ControlEnvironment

    return ControlEnvironment(task, seed)


def _check_gymnasium_task(task: str) -> None:
    try:
        gymnasium.spec(task)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise unknown_name("gymnasium task", task, gymnasium.registry) from error


def _make_gymnasium(task: str, seed: int, render: bool) -> dm_env.Environment:
    try:
        return GymnasiumEnvironment(task, seed, render)
    # The task is registered, but its library is missing, its spaces do not become arrays, or it
    # cannot be drawn.
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise ValueError(f"environment.task {task!r} cannot be made: {error}") from error


def _check_toy_task(task: str) -> None:
    if task not in _TOYS:
        raise unknown_name("toy task", task, _TOYS)


def _make_toy(task: str, seed: int, render: bool) -> dm_env.Environment:
    return _TOYS[task](seed=seed)


_TOYS: dict[str, Callable[..., dm_env.Environment]] = {"catch": Catch, "point_mass": PointMass}


class _Suite(NamedTuple):
    """A source of tasks.

    Attributes:
      check_task: raises a ValueError for a name that is not one of the suite's tasks.
      make: makes an environment from a task, a seed and whether it is rendered; None for Atari,
        whose emulators are vectorized themselves.
    """

    check_task: Callable[[str], object]
    make: Callable[[str, int, bool], dm_env.Environment] | None


_SUITES = {
    "atari": _Suite(rom_name, None),
    "control": _Suite(_check_control_task, _make_control),
    "gymnasium": _Suite(_check_gymnasium_task, _make_gymnasium),
    "toy": _Suite(_check_toy_task, _make_toy),
}
