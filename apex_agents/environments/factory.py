"""The environment of a run: its config, and how it is made."""

import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import gymnasium
import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from apex_agents.environments.adapters import (
    AdaptedEnvironment,
    adapt,
    check_wrappers,
    make_to_render,
)
from apex_agents.environments.atari import AtariConfig, AtariVectorEnvironment, rom_name
from apex_agents.environments.batched import BatchedEnvironment
from apex_agents.environments.gymnasium_tasks import find_task
from apex_agents.environments.info_metrics import NAME
from apex_agents.environments.masks import DEFAULT_MASK, has_mask
from apex_agents.environments.toy import Catch, PointMass
from apex_agents.environments.vector_environment import (
    SyncVectorEnvironment,
    VectorEnvironment,
    name_call,
)
from apex_agents.fields import ReadWith
from apex_agents.user_code import find_function, name_function, naming_errors
from apex_agents.validation import Rule, check_config, matching, require, unknown_name
from apex_agents.waits import Waiting

_FIELD = "environment.task"
_IS_METRIC = matching(
    lambda name: bool(NAME.fullmatch(name)), "'name' or 'mean(name)', several as ('a', 'b')"
)
# Of the control suite, by domain; those of hopper and of all that are not here are ours.
_USUAL_REPEATS = {"cartpole": 8, "reacher": 4, "cheetah": 4, "ball_in_cup": 4, "hopper": 4}
# Parameter of a function that returns a `gymnasium.vector.VectorEnv`.
_NUM_ENVS = "num_envs"


@dataclasses.dataclass
class EnvironmentConfig:
    """The environment of a run.

    Attributes:
      suite: source of the task: 'atari' (the paper's section 4.1), 'control' (section 4.2),
        'gymnasium', 'toy' or 'function'.
      task: name of the task in its suite: a game for 'atari' ('pong', 'MsPacman'), a domain and a
        task for 'control' ('humanoid:stand'), an id for 'gymnasium' ('CartPole-v1', or 'module:id'
        of a module that registers it), 'catch' or 'point_mass' for 'toy', 'module:function' for
        'function': a function that returns a gymnasium or a dm_env environment.
      kwargs: keyword arguments of the environment: numbers, strings, tuples, lists, dicts and the
        like; for 'gymnasium' and 'function'. A flag may name one of them: `kwargs.size=7`.
      max_episode_steps: number of environment steps after which an episode is truncated, for the
        same suites; None: as the environment is registered or made.
      action_repeat: number of environment steps for which an action is held, whose rewards are
        added up, with the environment's discounts: an agent step. For 'atari' it is
        `atari.action_repeat`. None: for 'control' 8 for tasks of cartpole, 4 for reacher,
        cheetah and ball_in_cup, 2 for finger and walker (Hafner et al. 2019, table 1), 4 for hopper
        and 2 for all others; 1 for the other suites.
      action_mask: name of the mask of legal actions: an entry of `info` (gymnasium) or of a Dict
        observation (PettingZoo) with a 1 for each legal action and a 0 for each other one. Nothing
        is masked if there is no entry of the usual name, 'action_mask'; None: in no case.
      metrics: names of numbers in `info` of gymnasium environments that become columns of logs,
        such as 'x_position' for its value at the end of an episode or 'mean(x_velocity)' for the
        mean over its steps; 'is_success' is one in any case.
      atari: preprocessing of the 'atari' suite; the others do not read it.
      step_timeout_seconds: seconds within which an environment has to return from `step` and from
        `reset`, or else its node is restarted (local_mp, ray); None: it may take any time.
      evaluation_kwargs: keyword arguments that are added to `kwargs` in evaluations, or replace
        some of them there, such as held-out levels.
    """

    suite: str = "atari"
    task: str = "pong"
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    max_episode_steps: PositiveInt | None = None
    action_repeat: Annotated[int, Field(ge=1, le=1_000)] | None = 1
    action_mask: Annotated[str, Field(min_length=1)] | None = DEFAULT_MASK
    metrics: tuple[Annotated[str, _IS_METRIC], ...] = ()
    atari: Annotated[AtariConfig, ReadWith("suite", ("atari",))] = dataclasses.field(
        default_factory=AtariConfig
    )
    step_timeout_seconds: PositiveFloat | None = None
    evaluation_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def num_repeats(self) -> int:
        """Number of environment steps for which an action is held; see `action_repeat`."""
        if self.action_repeat is not None:
            return self.action_repeat
        domain = self.task.partition(":")[0]
        return _USUAL_REPEATS.get(domain, 2) if self.suite == "control" else 1

    def rules(self) -> Iterator[Rule]:
        """Yield the conditions between fields; the module that `task` may name is imported.

        Raises:
          ValueError: see `find_environment_fn`.
        """
        find_environment_fn(self)
        fits = self.num_repeats == 1 or self.suite != "atari"
        yield "action_repeat", fits, "1 for Atari; set atari.action_repeat"


def with_environment_fn(
    config: EnvironmentConfig, environment_fn: Callable[..., Any]
) -> EnvironmentConfig:
    """Return the config of a run whose environments a function makes, instead of suite and task."""
    return dataclasses.replace(config, suite="function", task=name_function(environment_fn))


def find_environment_fn(config: EnvironmentConfig) -> Callable[..., Any] | None:
    """Return the function that makes one environment, or None for Atari, which makes many at once.

    Other processes get it as an object, since an id that is registered here may not be there.

    Raises:
      ValueError: the task is unknown, or the suite does not read a field that is set.
    """
    if config.suite not in _SUITES:
        raise unknown_name("suite", config.suite, _SUITES)
    if config.suite not in ("function", "gymnasium"):
        unset_values: dict[str, Any] = {
            "kwargs": {},
            "evaluation_kwargs": {},
            "max_episode_steps": None,
            "metrics": (),
        }
        allowed = f"left out for the suite {config.suite!r}"
        for name, unset in unset_values.items():
            value = getattr(config, name)
            require(value == unset, f"environment.{name}", value, allowed)
        mask = config.action_mask
        require(mask in (None, DEFAULT_MASK), "environment.action_mask", mask, allowed)
    return _SUITES[config.suite](config)


def _find_atari(config: EnvironmentConfig) -> None:
    rom_name(config.task)


def _find_control(config: EnvironmentConfig) -> Callable[..., Any]:
    from apex_agents.environments.control import ControlEnvironment, check_control_task

    check_control_task(config.task)
    return functools.partial(ControlEnvironment, config.task)


def _find_function(config: EnvironmentConfig) -> Callable[..., Any]:
    if ":" not in config.task:
        raise ValueError(
            f"{_FIELD} is {config.task!r}, but environment.suite is 'function', whose tasks are "
            "'module:function'. For an id of gymnasium set environment.suite=gymnasium."
        )
    return find_function(config.task, _FIELD)


def _find_gymnasium(config: EnvironmentConfig) -> Callable[..., Any]:
    # gymnasium's checker would cost time on every step; conversion checks the spaces.
    limits: Any = {"max_episode_steps": config.max_episode_steps, "disable_env_checker": True}
    return functools.partial(gymnasium.make, find_task(config.task, _FIELD), **limits)


def _find_toy(config: EnvironmentConfig) -> Callable[..., Any]:
    toys: dict[str, Callable[..., Any]] = {"catch": Catch, "point_mass": PointMass}
    if config.task not in toys:
        raise unknown_name("toy task", config.task, toys)
    return toys[config.task]


_SUITES: dict[str, Callable[[EnvironmentConfig], Callable[..., Any] | None]] = {
    "atari": _find_atari,
    "control": _find_control,
    "function": _find_function,
    "gymnasium": _find_gymnasium,
    "toy": _find_toy,
}


def knows_evaluations(config: EnvironmentConfig) -> bool:
    """Return whether evaluations may have different environments than training."""
    if config.suite != "function":
        return bool(config.evaluation_kwargs)
    function = find_function(config.task, _FIELD)
    return bool(config.evaluation_kwargs) or "evaluation" in _parameters(function)


def make_vector_environment(  # noqa: PLR0913
    config: EnvironmentConfig,
    num_envs: int,
    seed: int,
    *,
    evaluation: bool = False,
    num_rendered: int = 0,
    env_indices: Sequence[int] = (),
    environment_fn: Callable[..., Any] | None = None,
) -> VectorEnvironment:
    """Make the environments of an actor or of an evaluator.

    Args:
      config: the environment.
      num_envs: number of environments, E.
      seed: seed from which the seed of each environment is derived.
      evaluation: whether the rules of evaluation apply (see `AtariConfig`), and
        `config.evaluation_kwargs`.
      num_rendered: number of environments, the first ones, that can `render` what they show.
      env_indices: numbers that tell the environments from all others of a run; by default they
        count from 0.
      environment_fn: makes one environment, called with `config.kwargs`, instead of `suite` and
        `task`. Arguments `seed`, `evaluation` and `env_index` that it has get the seed of
        the environment, whether it is one for evaluations, and its number in `env_indices`. One
        with an argument `num_envs` returns as many at once, a `gymnasium.vector.VectorEnv`.

    Raises:
      ValueError: `num_envs` is less than 1, the config is invalid, or an environment cannot be made
        or cannot be rendered.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, got {num_envs}")
    if environment_fn is None:
        check_config(config, "environment.")
        environment_fn = find_environment_fn(config)
    children = np.random.SeedSequence(seed).spawn(num_envs)
    # Every environment accepts a seed in [0, 2 ** 31).
    seeds = [int(child.generate_state(1)[0]) >> 1 for child in children]
    if environment_fn is None:
        return AtariVectorEnvironment(
            config.task,
            config.atari,
            seeds,
            evaluation=evaluation,
            num_rendered=num_rendered,
            step_timeout_seconds=config.step_timeout_seconds,
        )
    timeout = config.step_timeout_seconds
    if _NUM_ENVS in _parameters(environment_fn) and _NUM_ENVS not in config.kwargs:
        offered = {_NUM_ENVS: num_envs, "seed": seeds[0], "evaluation": evaluation}
        with Waiting("the environments to be made"):
            batch = _make_batch(environment_fn, config, offered, num_rendered > 0)
        settings = (config.action_mask, config.metrics, timeout)
        with naming_errors(f"{config.task} fails when it is reset", ValueError):
            return BatchedEnvironment(batch, seeds[0], *settings)
    with contextlib.ExitStack() as made:  # A licence may allow for so many and no more.
        environments, earlier = [], list[Any]()
        numbers = zip(seeds, env_indices or range(num_envs), strict=True)
        for index, (env_seed, env_index) in enumerate(numbers):
            offered = {"seed": env_seed, "evaluation": evaluation, "env_index": env_index}
            render = index < num_rendered
            with Waiting(f"environment {index} to be made"):
                environment = _make(environment_fn, config, offered, render, earlier)
            environments.append(made.enter_context(contextlib.closing(environment)))
            with (
                name_call(f"environment {index}", "reset", timeout),
                naming_errors(f"{config.task} fails when it is reset", ValueError),
            ):
                environment.use_mask(config.action_mask)
        vector = SyncVectorEnvironment(environments, config.num_repeats, timeout)
        may_repeat, name = not has_mask(vector.spec), "environment.action_repeat"
        allowed = "1, since a repeated action may not stay legal"
        require(may_repeat or config.num_repeats == 1, name, config.action_repeat, allowed)
        made.pop_all()
        return vector


def _make_batch(
    environment_fn: Callable[..., Any],
    config: EnvironmentConfig,
    offered: Mapping[str, Any],
    render: bool,
) -> gymnasium.vector.VectorEnv:
    """Make environments of a function that returns many at once.

    Raises:
      ValueError: it cannot make so many, or the config asks for what they cannot do.
    """
    for name, value, unset in (
        ("action_repeat", config.num_repeats, 1),
        ("max_episode_steps", config.max_episode_steps, None),
    ):
        allowed = f"{unset}: a VectorEnv does this itself"
        require(value == unset, f"environment.{name}", value, allowed)
    kwargs = _arguments(environment_fn, config, offered)
    if render and "render_mode" in _parameters(environment_fn):
        kwargs["render_mode"] = "rgb_array"
    with naming_errors(f"{_FIELD} {config.task!r} cannot be made"):
        environment = environment_fn(**kwargs)
        if not isinstance(environment, gymnasium.vector.VectorEnv):
            kind = type(environment).__name__
            raise TypeError(f"it takes {_NUM_ENVS} and returns a {kind}, not a VectorEnv")
        num_envs, wanted = environment.num_envs, offered[_NUM_ENVS]
        if num_envs != wanted:
            raise ValueError(f"it returns {num_envs} environments, not {wanted}")
        check_wrappers(environment)
        return environment


def _arguments(
    environment_fn: Callable[..., Any], config: EnvironmentConfig, offered: Mapping[str, Any]
) -> dict[str, Any]:
    """Return those of the offered arguments that a function has, and those of the config."""
    parameters = _parameters(environment_fn)
    kwargs = {name: value for name, value in offered.items() if name in parameters}
    given = config.kwargs | (config.evaluation_kwargs if offered["evaluation"] else {})
    return kwargs | copy.deepcopy(given)  # An environment may change what it gets.


def _make(
    environment_fn: Callable[..., Any],
    config: EnvironmentConfig,
    offered: Mapping[str, Any],
    render: bool,
    earlier: list[Any],
) -> AdaptedEnvironment:
    """Make an environment of code that is not ours, and adapt it.

    Args:
      environment_fn: the code.
      config: settings of the environment.
      offered: `seed` and others, arguments for a function that has parameters of these names.
      render: whether the environment is drawn.
      earlier: environments made so far, which the new one joins.
    """
    how = "made to be drawn" if render else "made"
    with naming_errors(f"{_FIELD} {config.task!r} cannot be {how}"):
        parameters = _parameters(environment_fn)
        kwargs = _arguments(environment_fn, config, offered)
        takes_render_mode = "render_mode" in parameters or _ANY in parameters
        if render and takes_render_mode:
            environment = make_to_render(environment_fn, kwargs)
        else:
            environment = environment_fn(**kwargs)
        unwrapped = getattr(environment, "unwrapped", environment)
        if any(unwrapped is one for one in earlier):
            raise ValueError("its function has to return a new environment at each call")
        earlier.append(unwrapped)
        is_gymnasium = isinstance(environment, gymnasium.Env)
        if render and is_gymnasium and environment.render_mode != "rgb_array":
            raise ValueError("its function has no argument `render_mode`")
        return adapt(environment, offered["seed"], config.max_episode_steps, None, config.metrics)


def _parameters(function: Callable[..., Any]) -> Collection[str]:
    """Return the names of a function's parameters, `_ANY` for all others; none if unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # It is written in C.
        return ()
    return {_ANY if p.kind is p.VAR_KEYWORD else p.name for p in parameters}


_ANY = "**"
