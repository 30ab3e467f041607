"""Steps of an environment that are recorded once and added to replay memories repeatedly."""

import dm_env
import numpy as np
from dm_env import specs

from apex_agents.acting.policy import PolicyOutput
from apex_agents.environments import VectorEnvironment

RecordedSteps = list[tuple[dm_env.TimeStep, PolicyOutput]]


def record(environment: VectorEnvironment, num_steps: int, seed: int = 0) -> RecordedSteps:
    """Record random actions in a vector of one environment, with log-normal TD errors."""
    random = np.random.default_rng(seed)
    timestep = environment.reset()
    steps = []
    for _ in range(num_steps):
        action = _random_action(environment.spec.actions, random)
        td_error = np.asarray(random.lognormal(sigma=1.5))
        first = dm_env.TimeStep(*[np.copy(field[0]) for field in timestep])
        steps.append((first, PolicyOutput(action, td_error, np.zeros(()))))
        timestep = environment.step(action[np.newaxis])
    return steps


def _random_action(spec: specs.BoundedArray, random: np.random.Generator) -> np.ndarray:
    if isinstance(spec, specs.DiscreteArray):
        return np.asarray(random.integers(spec.num_values), spec.dtype)
    return random.uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)
