"""Plays with an exported policy: needs onnxruntime, gymnasium and numpy, and ale-py for Atari.

Run `python play_onnx.py EXPORT`, where EXPORT is a folder that apex-export has written.
"""

import json
import pathlib
import sys
from typing import Any

import gymnasium
import numpy as np
import onnxruntime

folder = pathlib.Path(sys.argv[1])
policy = json.loads((folder / "policy.json").read_text())
session = onnxruntime.InferenceSession(folder / "policy.onnx")
if policy["environment"]["suite"] == "atari":
    import ale_py  # noqa: F401  # Registers the games.
arguments = policy["gymnasium"] or sys.exit("It has no id in gymnasium: make it here yourself.")
environment = gymnasium.make_vec(**arguments, num_envs=1)
if not isinstance(environment.single_observation_space, gymnasium.spaces.Box):
    environment = gymnasium.wrappers.vector.FlattenObservation(environment)
space: Any = environment.single_action_space

# Where episodes end with lives, an agent knows each life from its beginning only: after the loss of
# one, action 0 is taken once, and frames from before that are black.
lives_are_episodes = (
    policy["environment"]["suite"] == "atari"
    and (policy["environment"]["atari"]["life_loss_ends_episode"])
)
observation, info = environment.reset(seed=0)
lives, life_begins, age = info.get("lives", 0), False, np.inf
returns = [0.0]
while len(returns) <= 5:
    batch = observation.astype(policy["observation"]["dtype"])
    (output,) = session.run(None, {"observation": batch})
    if isinstance(space, gymnasium.spaces.Discrete):
        actions = output.argmax(axis=-1) + space.start
    else:
        actions = space.low + (np.clip(output, -1, 1) + 1) / 2 * (space.high - space.low)
    if life_begins:
        actions = np.zeros_like(actions)
    observation, rewards, terminated, truncated, info = environment.step(actions)
    if lives_are_episodes:
        age = 0 if life_begins else age + 1
        observation[:, : int(max(observation.shape[1] - 1 - age, 0))] = 0
        life_begins = not life_begins and 0 < info["lives"][0] < lives[0]
        lives = info["lives"].copy()
    returns[-1] += float(rewards[0])
    if terminated[0] or truncated[0]:
        print(f"episode {len(returns)}: {returns[-1]:.1f}", flush=True)
        returns.append(0.0)
