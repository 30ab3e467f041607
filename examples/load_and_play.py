"""Loads the policy of a run and plays with it.

  python load_and_play.py RUN [EPISODES]

RUN is the folder of a run, such as runs/apex_dqn_cartpole-20260101-120000.
"""

import sys

import apex_agents


def main(run: str, num_episodes: int = 5) -> None:
    """Print the returns of some episodes."""
    policy = apex_agents.load(run)
    print(f"{policy.config.environment.task}, learner step {policy.learner_steps:,}")
    environment = policy.make_environment()
    timestep = environment.reset()
    returns: list[float] = []
    while len(returns) < num_episodes:
        timestep = environment.step(policy.act_at(timestep))
        for episode in environment.finished_episodes():
            returns.append(episode.episode_return)
            print(f"episode {len(returns)}: {episode.episode_return:.1f}", flush=True)
    environment.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
