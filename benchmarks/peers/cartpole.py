"""Trains an agent of another library on CartPole-v1 until a greedy evaluation reaches a return.

RecurrentPPO of sb3-contrib sees positions only.

The hyperparameters are those that the library's own project publishes for this task. Prints a line
of JSON for every evaluation: seconds from the start of this process to the evaluation's end, mean
return, agent steps. Imports stand in the functions, since their time counts.

Example:
  .venv-peers/bin/python benchmarks/peers/cartpole.py sb3 --target 475
"""

import argparse
import json
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from process_clock import seconds_of_process

TASK = "CartPole-v1"
POSITIONS_ONLY = "CartPolePositions-v1"


class Judge:
    """Evaluates, and decides when a run is over.

    Attributes:
      is_over: whether the target is reached or the time is up.
    """

    def __init__(self, task: str, target: float, limit: float, num_episodes: int, seed: int):
        """Make the environments for evaluations.

        Args:
          task: id of the environments.
          target: mean return to reach.
          limit: seconds since the start of the process after which the run ends anyway.
          num_episodes: episodes of an evaluation, played side by side.
          seed: seed of the environments.
        """
        self._target = target
        self._limit = limit
        self._seed: int | None = seed
        self._environments = gymnasium.make_vec(task, num_episodes, vectorization_mode="sync")
        self.is_over = False

    def evaluate(self, act: Callable[[np.ndarray], np.ndarray], agent_steps: int) -> None:
        """Play episodes, and print their mean return.

        Args:
          act: function that returns the greedy actions `[E]` for observations `[E, ...]`; the first
            ones begin episodes.
          agent_steps: agent steps of training so far.
        """
        mean_return = self._play(act)
        seconds = seconds_of_process()
        self.is_over = mean_return >= self._target or seconds >= self._limit
        result = {"seconds": seconds, "mean_return": mean_return, "agent_steps": agent_steps}
        print(json.dumps(result), flush=True)

    def _play(self, act: Callable[[np.ndarray], np.ndarray]) -> float:
        observations, _ = self._environments.reset(seed=self._seed)
        self._seed = None
        returns = np.zeros(self._environments.num_envs)
        is_playing = np.ones(self._environments.num_envs, bool)
        while is_playing.any():
            observations, rewards, terminated, truncated, _ = self._environments.step(
                act(observations)
            )
            returns += rewards * is_playing
            is_playing &= ~(terminated | truncated)
        return float(returns.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--target", type=float, default=475.0, help="mean return to reach")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    parser.add_argument("--episodes", type=int, default=20, help="of an evaluation")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    gymnasium.register(POSITIONS_ONLY, make_position_only)
    task = POSITIONS_ONLY if arguments.library == "sb3_recurrent_ppo" else TASK
    settings = arguments.target, arguments.limit, arguments.episodes, arguments.seed + 1_000
    LIBRARIES[arguments.library](Judge(task, *settings), arguments.seed)


def make_position_only(**kwargs: Any) -> gymnasium.Env:
    """Make CartPole-v1 without the velocities; observations are `[2]`."""
    environment = gymnasium.make(TASK, **kwargs)
    full: Any = environment.observation_space
    space = gymnasium.spaces.Box(full.low[::2], full.high[::2])
    return gymnasium.wrappers.TransformObservation(environment, lambda o: o[::2], space)


def train_sb3(judge: Judge, seed: int) -> None:
    """Train with the tuned hyperparameters of RL Baselines3 Zoo, for as long as it takes."""
    from stable_baselines3 import DQN

    planned_steps, steps = 50_000, 10_000_000
    model = DQN(
        "MlpPolicy",
        TASK,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16 * planned_steps / steps,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )

    learn_sb3(model, judge, steps)


def train_sb3_a2c(judge: Judge, seed: int) -> None:
    """Train A2C with the hyperparameters of RL Baselines3 Zoo, for as long as it takes."""
    from stable_baselines3 import A2C
    from stable_baselines3.common.env_util import make_vec_env

    environments = make_vec_env(TASK, n_envs=8, seed=seed)
    model = A2C("MlpPolicy", environments, ent_coef=0.0, seed=seed, device="cpu")
    learn_sb3(model, judge, 10_000_000)


def train_sb3_recurrent_ppo(judge: Judge, seed: int) -> None:
    """Train RecurrentPPO with the hyperparameters of RL Baselines3 Zoo for this task.

    They fall linearly over 100,000 agent steps, with which the run ends.
    """
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env

    model = RecurrentPPO(
        "MlpLstmPolicy",
        make_vec_env(POSITIONS_ONLY, n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda remaining: 1e-3 * remaining,
        clip_range=lambda remaining: 0.2 * remaining,
        seed=seed,
        device="cpu",
    )
    learn_sb3(model, judge, 100_000)


def learn_sb3(model: Any, judge: Judge, steps: int) -> None:
    """Train a model of Stable-Baselines3, and let it be judged every 2048 agent steps."""

    def make_act() -> Callable[[np.ndarray], np.ndarray]:
        state = None  # Of a policy with memory; an evaluation plays one episode side by side.

        def act(observations: np.ndarray) -> np.ndarray:
            nonlocal state
            actions, state = model.predict(observations, state, deterministic=True)
            return actions

        return act

    def should_continue(*_: object) -> bool:
        if model.num_timesteps % 2_048 == 0:  # Every 8 times that DQN trains.
            judge.evaluate(make_act(), model.num_timesteps)
        return not judge.is_over

    model.learn(steps, callback=should_continue)


def train_torchrl(judge: Judge, seed: int) -> None:
    """Train with the parts and the hyperparameters of TorchRL's example for CartPole.

    What the example's environment counts for its logs is left out.
    """
    import torch
    from tensordict.nn import TensorDictSequential
    from torchrl.collectors import Collector
    from torchrl.data import Composite, LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import GymEnv
    from torchrl.modules import MLP, EGreedyModule, QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate

    torch.manual_seed(seed)
    environment = GymEnv(TASK)
    environment.set_seed(seed)
    network = MLP(4, 2, num_cells=[120, 84], activation_class=torch.nn.ReLU)
    actor = QValueActor(
        network, in_keys=["observation"], spec=Composite(action=environment.action_spec)
    )
    exploration = EGreedyModule(actor.spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=250_000)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=128)
    loss = DQNLoss(actor, loss_function="l2", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    target_update = HardUpdate(loss, value_network_update_interval=50)
    optimizer = torch.optim.Adam(loss.parameters(), lr=2.5e-4)
    collector = Collector(
        environment,
        TensorDictSequential(actor, exploration),
        frames_per_batch=1_000,
        total_frames=-1,
        init_random_frames=10_000,
        auto_register_policy_transforms=False,
    )

    @torch.no_grad()
    def act(observations: np.ndarray) -> np.ndarray:
        return network(torch.from_numpy(observations)).argmax(-1).numpy()

    agent_steps = 0
    for batch in collector:
        buffer.extend(batch.reshape(-1))
        exploration.step(batch.numel())
        agent_steps += batch.numel()
        if agent_steps < 10_000:
            continue
        for _ in range(100):
            optimizer.zero_grad()
            loss(buffer.sample())["loss"].backward()
            optimizer.step()
            target_update.step()
        collector.update_policy_weights_()
        if agent_steps % 5_000 == 0:
            judge.evaluate(act, agent_steps)
        if judge.is_over:
            break
    collector.shutdown()


LIBRARIES = {
    "sb3": train_sb3,
    "sb3_a2c": train_sb3_a2c,
    "sb3_recurrent_ppo": train_sb3_recurrent_ppo,
    "torchrl": train_torchrl,
}

if __name__ == "__main__":
    main()
