"""Plays with an exported policy: needs onnxruntime and gymnasium, and ale-py for Atari.

Run `python play_onnx.py EXPORT`, where EXPORT is a folder that apex-export has written.
"""

import json
import pathlib
import sys

import gymnasium
import onnxruntime

policy = json.loads(pathlib.Path(sys.argv[1], "policy.json").read_text())
session = onnxruntime.InferenceSession(pathlib.Path(sys.argv[1], "policy.onnx"))
is_atari = policy["environment"]["suite"] == "atari"
if is_atari:
    import ale_py  # noqa: F401  # Registers the games.
arguments = policy["gymnasium"] or sys.exit("It has no id in gymnasium: make it here yourself.")
environment = gymnasium.make_vec(**arguments, num_envs=1)
if not isinstance(environment.single_observation_space, gymnasium.spaces.Box):
    environment = gymnasium.wrappers.vector.FlattenObservation(environment)
if is_atari and policy["environment"]["atari"]["life_loss_ends_episode"]:
    from atari_lives import LivesBeginBlack

    environment = LivesBeginBlack(environment)
observation, _ = environment.reset(seed=0)
returns, dtype, ended = [0.0], policy["observation"]["dtype"], False
while len(returns) <= 5:
    (actions,) = session.run(["action"], {"observation": observation.astype(dtype)})
    for _ in range(1 if ended else policy["action_repeat"]):  # A step after the end resets.
        observation, rewards, terminated, truncated, _ = environment.step(actions)
        returns[-1] += float(rewards[0])
        if ended := terminated[0] or truncated[0]:
            print(f"episode {len(returns)}: {returns[-1]:.1f}", flush=True)
            returns.append(0.0)
            break
