"""What agents make of an environment, in one screen, before any training.

The environment is played at random for a while. What no agent can learn in is refused; what makes
learning hard is a warning.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import dm_env
import numpy as np

from apex_agents.checks import describe_unread_images, report_wait
from apex_agents.dqn.builder import ApexDQNBuilder
from apex_agents.dqn.config import ApexDQNConfig
from apex_agents.environments import (
    BoxActions,
    EnvironmentConfig,
    EnvironmentSpec,
    MaskedObservationSpec,
    SyncVectorEnvironment,
    VectorEnvironment,
    adapt,
    describe_actions,
    draw_actions,
    has_mask,
    make_vector_environment,
    record_spec,
    require_unit_vectors,
    without_mask,
)
from apex_agents.environments.conversion import describe_rounding
from apex_agents.environments.frames import find_frames
from apex_agents.environments.spec_record import describe_record
from apex_agents.networks.torso_choice import fit_torso
from apex_agents.user_code import naming_errors
from apex_agents.validation import require
from apex_agents.waits import reporting_thread

_MAX_SECONDS = 20.0
_MAX_COMPARED = 200  # Steps that are played again.
# Networks begin with weights for numbers around 1.
_LARGE_OBSERVATION, _LARGE_REWARD = 10.0, 10.0
_SLOW_SECONDS = 0.01
_MAX_CHARS = 150


@dataclasses.dataclass(frozen=True)
class EnvironmentReport:
    """What agents make of an environment; `str` makes a screen of it.

    Attributes:
      rows: descriptions by what they describe.
      warnings: sentences on what makes learning hard.
    """

    rows: dict[str, str]
    warnings: list[str]

    def __str__(self) -> str:
        width = max(map(len, self.rows))
        lines = [f"{name:>{width}}: {text}" for name, text in self.rows.items()]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    __repr__ = __str__  # What a notebook shows.


def check(environment: Any, /, num_steps: int = 1_000, **kwargs: Any) -> EnvironmentReport:
    """Play an environment at random, and say what agents make of it.

    Args:
      environment: a `gymnasium.Env` or a `dm_env.Environment`; a function that returns one; or its
        name as `environment.task` has it, an id of gymnasium or 'module:function'.
      num_steps: steps to play, within 20 seconds; up to 200 of them are played again. An argument
        of the environment with this name has to be in a function:
        `check(lambda: Corridor(num_steps=7))`.
      **kwargs: keyword arguments of the function, or of the id.

    Raises:
      ValueError: no agent can learn in it, or it cannot be made, reset or stepped; it is no
        environment; or there are keyword arguments for an environment that is made already.
    """
    return report(environment, num_steps, kwargs)


@reporting_thread("The check", report_wait)
def report(environment: Any, num_steps: int, kwargs: dict[str, Any]) -> EnvironmentReport:
    """Do what `check` does, with keyword arguments of any names."""
    is_instance = not (callable(environment) or isinstance(environment, str))
    require(not (is_instance and kwargs), "kwargs", kwargs, "left out, for an environment as such")
    with contextlib.ExitStack() as stack:
        if is_instance:  # It is the caller's to close.
            try:
                made: VectorEnvironment = SyncVectorEnvironment([adapt(environment, seed=0)])
            except TypeError as error:
                raise ValueError(str(error)) from error
        else:
            made = stack.enter_context(contextlib.closing(_make(environment, kwargs)))
        rows, played = _describe(made.spec), _Play(made)
        with naming_errors("The environment fails"):
            played.run(num_steps)
        if not is_instance:
            again = stack.enter_context(contextlib.closing(_make(environment, kwargs)))
            with naming_errors("The environment fails"):
                played.compare(again)
        return EnvironmentReport({**rows, **played.rows()}, [*played.warnings()])


def _make(environment: Any, kwargs: dict[str, Any]) -> VectorEnvironment:
    if callable(environment):
        name = getattr(environment, "__qualname__", "function")
        config = EnvironmentConfig("function", name, kwargs)
        return make_vector_environment(config, 1, 0, environment_fn=environment)
    name = str(environment)
    try:
        return make_vector_environment(EnvironmentConfig("gymnasium", name, kwargs), 1, 0)
    except ValueError as error:
        if ":" not in name or "unknown gymnasium task" not in str(error):
            raise
    return make_vector_environment(EnvironmentConfig("function", name, kwargs), 1, 0)


def _describe(spec: EnvironmentSpec) -> dict[str, str]:
    """Describe what agents observe and do, and which of them learn so.

    Raises:
      ValueError: none does.
    """
    record = record_spec(spec)
    rows = {name: describe_record(record[name]) for name in ("observations", "actions")}
    space = " ".join(str(getattr(spec.observations, "space", "")).split())
    rows = {"space": space if len(space) < _MAX_CHARS else f"{space[:_MAX_CHARS]} ...", **rows}
    if isinstance(spec.actions, BoxActions):
        require_unit_vectors(spec)
        rows["actions"] += ", for agents between -1 and 1"
        rows["agents"] = "Ape-X DPG (apex-dpg)"
        return rows
    rows["agents"] = "Ape-X DQN, R2D2, A2C, A3C (apex-dqn, apex-r2d2, apex-a2c, apex-a3c)"
    if has_mask(spec):
        rows["actions"] += f". {describe_actions(spec)[-1].removesuffix('.')}"
    config = fit_torso(ApexDQNConfig(torso="auto", frame_stack=0), spec)
    rows["network"] = "fully connected layers"
    if config.torso == "conv":
        sizes = zip(
            config.conv_channels, config.conv_kernel_sizes, config.conv_strides, strict=True
        )
        layers = [f"{channels} of {side} x {side}, stride {step}" for channels, side, step in sizes]
        rows["network"] = f"convolutions: {'; '.join(layers)}"
    rows["network"] += " (agent.torso=auto)"
    num_bytes = ApexDQNBuilder(config).make_layout(spec).bytes_per_item
    rows["replay"] = f"{num_bytes / 1e3:,.1f} kB per transition of three steps, at most"
    return rows


class _Play:
    """Plays one environment at random, and keeps what is worth saying."""

    def __init__(self, environment: VectorEnvironment):
        self.environment = environment
        self._random = np.random.default_rng(0)
        self._ends: collections.Counter[str] = collections.Counter()
        self._lengths: list[int] = []
        self._returns: list[float] = []
        self._rewards: list[float] = []
        self._legal: list[float] = []
        self._largest = 0.0
        self._first: np.ndarray
        self._steps: list[tuple[np.ndarray, np.ndarray]] = []  # Actions, what came of them.
        self._is_seeded = True  # As far as it was compared.

    def run(self, num_steps: int) -> None:
        """Play so many steps, or fewer if they take long."""
        environment, started = self.environment, time.monotonic()
        timestep = environment.reset()
        self._first = timestep.observation[0]
        for _ in range(num_steps):
            self._look(timestep)
            actions = draw_actions(environment.spec, timestep.observation, self._random)
            timestep = environment.step(actions)
            begun = environment.begin_episodes()
            if begun is not None:
                self._look(timestep)
                timestep = begun
            if len(self._steps) < _MAX_COMPARED:
                self._steps.append((actions, timestep.observation))
            for episode in environment.finished_episodes():
                self._lengths.append(episode.length)
                self._returns.append(episode.episode_return)
            if time.monotonic() > started + _MAX_SECONDS:
                break
        self._look(timestep)
        self._seconds = (time.monotonic() - started) / max(len(self._rewards), 1)

    def compare(self, again: VectorEnvironment) -> None:
        """Compare what was observed with another environment of the same seed."""
        self._is_seeded = np.array_equal(again.reset().observation[0], self._first)
        for actions, observation in self._steps:
            if not self._is_seeded:  # The next action may not be legal.
                return
            timestep = again.step(actions)
            timestep = again.begin_episodes() or timestep
            self._is_seeded &= np.array_equal(timestep.observation, observation)

    def rows(self) -> dict[str, str]:
        """Describe what was played."""
        steps = len(self._rewards)
        ends = ", ".join(f"{number} {kind}" for kind, number in self._ends.items()) or "none ended"
        rows = {"played": f"{steps:,} random steps, {1 / self._seconds:,.0f} per second"}
        rows["episodes"] = ends
        if self._lengths:
            lengths, returns = _range(self._lengths), _range(self._returns)
            rows["episodes"] += f"; lengths {lengths}, returns {returns}"
        rows["rewards"] = _range(self._rewards) if steps else "none"
        if self._legal:
            rows["legal"] = (
                f"{np.mean(self._legal):.0%} of the actions, {min(self._legal):.0%} at least"
            )
        return rows

    def warnings(self) -> Iterator[str]:
        """Yield sentences on what makes learning hard."""
        spec = self.environment.spec
        if rounding := describe_rounding(without_mask(spec).observations, self._first):
            yield rounding
        if self.environment.num_failures:
            yield f"It failed {self.environment.num_failures} times, see above."
        if not self._ends:
            yield (
                f"No episode ended within {len(self._rewards):,} steps. Set "
                "environment.max_episode_steps unless one is sure to end: what is never over is "
                "never reported."
            )
        num_ended = sum(self._ends.values())
        if num_ended == self._ends["terminated"] > 2 and len({*self._lengths}) == 1:
            yield (
                f"All {num_ended} episodes terminated after {self._lengths[0]} steps. If that is a "
                "limit of time, return it as truncated: what follows a termination is worth 0."
            )
        if unread := describe_unread_images(without_mask(spec)):
            yield f"{unread[0].upper()}{unread[1:]}"
        can_be_normalized = not unread and find_frames(spec, 0) is None
        if can_be_normalized and self._largest > _LARGE_OBSERVATION:
            yield (
                f"Observations have numbers up to {self._largest:g}: set "
                "agent.normalize_observations=True."
            )
        if self._rewards and not any(self._rewards):
            yield "All rewards were 0: random play finds nothing to learn from."
        if (largest := max(map(abs, self._rewards), default=0.0)) > _LARGE_REWARD:
            yield f"Rewards have numbers up to {largest:g}: let the environment scale them."
        if self._seconds > _SLOW_SECONDS:
            yield (
                f"A step takes {self._seconds * 1e3:.0f} ms: act in as many processes as there are "
                "cores, run.num_actors, with run.num_envs_per_actor=1."
            )
        if not self._is_seeded:
            yield (
                "Two environments of the same seed differ after the same actions: runs cannot be "
                "repeated. Random numbers of gymnasium's environments come from np_random."
            )

    def _look(self, timestep: dm_env.TimeStep) -> None:
        step_type, reward, discount, observation = (field[0] for field in timestep)
        spec = self.environment.spec
        if isinstance(spec.observations, MaskedObservationSpec):
            (observation,), (legal,) = spec.observations.split(observation[np.newaxis])
            if legal.any():
                self._legal.append(float(legal.mean()))
        self._largest = max(self._largest, float(np.abs(observation).max()))
        if step_type == dm_env.StepType.FIRST:
            return
        self._rewards.append(float(reward))
        if step_type == dm_env.StepType.LAST:
            self._ends["truncated" if discount else "terminated"] += 1


def _range(numbers: list[Any]) -> str:
    return f"{np.mean(numbers):.4g} ({min(numbers):.4g} to {max(numbers):.4g})"
