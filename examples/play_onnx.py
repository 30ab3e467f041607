"""Plays with a folder that apex-export has written: python play_onnx.py EXPORT."""

import json
import pathlib
import sys

import gymnasium
import numpy
import onnxruntime

policy = json.loads(pathlib.Path(sys.argv[1], "policy.json").read_text())
session = onnxruntime.InferenceSession(pathlib.Path(sys.argv[1], "policy.onnx"))
atari = policy["environment"]["atari"] if policy["environment"]["suite"] == "atari" else {}
bounds = (-1, 1) if atari.get("clip_rewards") else (-numpy.inf, numpy.inf)
arguments = policy["gymnasium"] or sys.exit("It has no id in gymnasium: make it here yourself.")
environment = gymnasium.make_vec(**arguments, num_envs=1)
if not isinstance(environment.single_observation_space, gymnasium.spaces.Box):
    environment = gymnasium.wrappers.vector.FlattenObservation(environment)
if atari.get("life_loss_ends_episode"):
    from atari_lives import LivesBeginBlack

    environment = LivesBeginBlack(environment)
observation, info = environment.reset(seed=0)
memory = {name: numpy.array([x["initial"]], x["dtype"]) for name, x in policy["memory"].items()}
inputs, states, returns, ended = dict(memory), sorted({*memory} - {"reward"}), [0.0], False
while len(returns) <= 5:
    inputs["observation"] = observation.astype(policy["observation"]["dtype"])
    inputs |= {k: numpy.stack(info[k]).astype("int8") for k in {"action_mask"} & policy.keys()}
    actions, *next_state = session.run(["action", *(f"next_{name}" for name in states)], inputs)
    inputs, reward = memory | ({} if ended else dict(zip(states, next_state, strict=True))), 0.0
    for _ in range(1 if ended else policy["action_repeat"]):  # A step after the end resets.
        observation, rewards, terminated, truncated, info = environment.step(actions)
        reward += float(rewards[0])
        returns[-1] += float(rewards[0])
        if ended := terminated[0] or truncated[0]:
            print(f"episode {len(returns)}: {returns[-1]:.1f}", flush=True)
            returns.append(0.0)
            break
    inputs |= {k: numpy.float32([reward]).clip(*bounds) for k in {"reward"} & memory.keys()}
