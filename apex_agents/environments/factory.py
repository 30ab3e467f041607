"""Which environment a run uses, by name, and how its environments are made."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import dm_env
import gymnasium
import numpy as np

from apex_agents.environments.atari import AtariVectorEnvironment
from apex_agents.environments.atari_config import AtariConfig, rom_name
from apex_agents.environments.gymnasium_adapter import GymnasiumEnvironment
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import LockStepEnvironment, VectorEnvironment
from apex_agents.validation import require_types


@dataclasses.dataclass
class EnvironmentConfig:
    """The environment of a run.

    Attributes:
      suite: where the task comes from: 'atari' (the paper's section 4.1), 'control' (section 4.2),
        'gymnasium' or 'toy'.
      task: the task's name in its suite: a game for 'atari' ('pong', 'MsPacman', 'ALE/Pong-v5'), a
        domain and a task for 'control' ('humanoid:stand'), an id for 'gymnasium' ('CartPole-v1'),
        'catch' or 'point_mass' for 'toy'.
      atari: the preprocessing of the 'atari' suite; the others do not read it.
    """

    suite: str = "atari"
    task: str = "pong"
    atari: AtariConfig = dataclasses.field(default_factory=AtariConfig)

    def validate(self, prefix: str = "environment.") -> None:
        """Check the names and the Atari fields, without making an environment.

        Raises:
          ValueError: the suite or the task is unknown, or an Atari field is out of its range.
        """
        require_types(self, prefix)
        if self.suite not in _SUITES:
            raise _make_unknown_error("suite", self.suite, _SUITES)
        _SUITES[self.suite].check_task(self.task)
        self.atari.validate(f"{prefix}atari.")


def make_vector_environment(
    config: EnvironmentConfig,
    num_envs: int,
    seed: int,
    evaluation: bool = False,
    num_rendered: int = 0,
) -> VectorEnvironment:
    """Make the environments of an actor or of an evaluator.

    Args:
      config: the environment.
      num_envs: number of environments, E.
      seed: from which the environments get a seed each.
      evaluation: play by the rules of evaluation where the suite has such (see `AtariConfig`).
      num_rendered: the first so many environments can `render` what they show.

    Returns:
      E environments, to be reset first and closed in the end.

    Raises:
      ValueError: there would be no environment, the suite or the task is unknown, an Atari field
        is out of its range, or what is to be rendered cannot be.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    config.validate()
    request = _Request(config, _make_seeds(seed, num_envs), evaluation, num_rendered)
    return _SUITES[config.suite].make_vector_environment(request)


class _Request(NamedTuple):
    """The environments to make, as for `make_vector_environment`, with one seed per environment."""

    config: EnvironmentConfig
    seeds: list[int]
    evaluation: bool
    num_rendered: int


class _Suite(NamedTuple):
    """A source of tasks.

    Attributes:
      check_task: raises ValueError for a name that is not one of the suite's tasks.
      make_vector_environment: makes environments by a valid config. Only Atari has rules of
        evaluation.
    """

    check_task: Callable[[str], object]
    make_vector_environment: Callable[[_Request], VectorEnvironment]


def _make_atari(request: _Request) -> VectorEnvironment:
    config, seeds, evaluation, num_rendered = request
    return AtariVectorEnvironment(config.task, config.atari, seeds, evaluation, num_rendered)


def _check_control_task(task: str) -> None:
    from apex_agents.environments.control import check_control_task

    check_control_task(task)


def _make_control(request: _Request) -> VectorEnvironment:
    from apex_agents.environments.control import ControlEnvironment

    task = request.config.task
    return LockStepEnvironment([ControlEnvironment(task, seed) for seed in request.seeds])


def _check_gymnasium_task(task: str) -> None:
    try:
        gymnasium.spec(task)
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise _make_unknown_error("gymnasium task", task, gymnasium.registry) from error


def _make_gymnasium(request: _Request) -> VectorEnvironment:
    task, num_rendered = request.config.task, request.num_rendered
    try:
        return LockStepEnvironment(
            [
                GymnasiumEnvironment(task, seed, render=env_index < num_rendered)
                for env_index, seed in enumerate(request.seeds)
            ]
        )
    # Known, but not installed, with spaces that do not become arrays, or nothing to be seen.
    except (gymnasium.error.Error, ImportError, ValueError) as error:
        raise ValueError(f"environment.task {task!r} cannot be made: {error}") from error


def _check_toy_task(task: str) -> None:
    if task not in _TOYS:
        raise _make_unknown_error("toy task", task, _TOYS)


def _make_toy(request: _Request) -> VectorEnvironment:
    make = _TOYS[request.config.task]
    return LockStepEnvironment([make(seed=seed) for seed in request.seeds])


_TOYS: dict[str, Callable[..., dm_env.Environment]] = {"catch": Catch, "point_mass": PointMass}

_SUITES = {
    "atari": _Suite(rom_name, _make_atari),
    "control": _Suite(_check_control_task, _make_control),
    "gymnasium": _Suite(_check_gymnasium_task, _make_gymnasium),
    "toy": _Suite(_check_toy_task, _make_toy),
}


def _make_unknown_error(kind: str, name: str, allowed: Iterable[str]) -> ValueError:
    names = sorted(allowed)
    closest = difflib.get_close_matches(name, names)
    listed = ", ".join(names) if len(names) <= 20 else f"one of the {len(names)} registered names"
    return ValueError(
        f"unknown {kind} {name!r}; closest: {', '.join(closest) or 'none'}; allowed: {listed}"
    )


def _make_seeds(seed: int, num_envs: int) -> list[int]:
    """Return a seed in [0, 2 ** 31), which every environment accepts, for each environment."""
    children = np.random.SeedSequence(seed).spawn(num_envs)
    return [int(child.generate_state(1)[0]) >> 1 for child in children]
