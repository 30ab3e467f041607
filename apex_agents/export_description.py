"""What a program has to know of an exported policy to act with it: `policy.json`."""

import dataclasses
from typing import Any

from apex_agents.environments import DiscreteActions, EnvironmentConfig
from apex_agents.environments.atari import emulator_settings
from apex_agents.environments.atari_config import rom_name
from apex_agents.loading import TrainedPolicy
from apex_agents.registry import find_agent

_MEANINGS = {"q_values": "value", "logits": "logarithm of the probability, up to a constant,"}


def describe(policy: TrainedPolicy) -> dict[str, Any]:
    """Return what a program needs to act with an export, as JSON values."""
    config, observations = policy.config, policy.spec.observations
    action, held = policy.actions.environment_spec, _held(policy.config.environment)
    described = {
        "agent": find_agent(config.agent),
        "parameters": policy.path.stem,
        "learner_steps": policy.learner_steps,
        "environment": dataclasses.asdict(config.environment),
        "gymnasium": _gymnasium_environment(config.environment),
        "action_repeat": config.environment.action_repeat,  # Beside what that does itself.
        "observation": {
            "shape": list(observations.shape),
            "dtype": str(observations.dtype),
            "meaning": _meaning_of_observations(config.environment),
        },
        "action": {
            "shape": list(action.shape),
            "dtype": str(action.dtype),
            "low": action.minimum.tolist(),
            "high": action.maximum.tolist(),
            "meaning": f"action as the environment takes it{held}",
        },
    }
    if isinstance(policy.actions, DiscreteActions):
        described[policy.output_name] = {
            "shape": [policy.actions.num_values],
            "dtype": "float32",
            "meaning": f"{_MEANINGS[policy.output_name]} of each action, from the lowest one on",
        }
    return described


def _gymnasium_environment(config: EnvironmentConfig) -> dict[str, Any] | None:
    """Return the arguments of `gymnasium.make_vec` for the environment; None if it has no id."""
    if config.suite == "atari":
        game = rom_name(config.task).title().replace("_", "")
        return {"id": f"ALE/{game}-v5", **emulator_settings(config.atari, evaluation=True)}
    if config.suite != "gymnasium":
        return None
    limit = config.max_episode_steps
    limits = {} if limit is None else {"max_episode_steps": limit}
    return {"id": config.task, **config.kwargs, **config.evaluation_kwargs, **limits}


def _held(config: EnvironmentConfig) -> str:
    repeat = config.action_repeat
    return f"; an action is held for {repeat} environment steps" if repeat > 1 else ""


def _meaning_of_observations(config: EnvironmentConfig) -> str:
    if config.suite != "atari":
        return (
            "what the environment returns, converted to this shape and dtype; one of a Dict, a "
            "Tuple or a discrete space is flattened as gymnasium.spaces.flatten does"
        )
    atari = config.atari
    lives = (
        "; after the loss of a life action 0 is taken once, and frames from before that are black"
        if atari.life_loss_ends_episode
        else ""
    )
    return (
        f"the last {atari.frame_stack} grey images, oldest first, black before an episode's first; "
        f"each is the maximum of the last two of {atari.action_repeat} frames, scaled to "
        f"{atari.frame_size} x {atari.frame_size} pixels{lives}"
    )
