r"""Trains Ape-X DQN.

Examples:
  python launch/apex_dqn.py --lp_launch_type=local_mp
  python launch/apex_dqn.py --lp_launch_type=local_mp \
      --config=configs/apex_dqn_atari_single_host.py --config.environment.task=breakout
"""

import pathlib

from apex_agents.nodes.fork_server import open_server

if __name__ == "__main__":
    open_server(("apex_agents.program", "apex_agents.dqn.builder"))  # It imports for all nodes.

import command

from apex_agents.dqn.builder import ApexDQNBuilder

_CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "configs"

if __name__ == "__main__":
    command.run(ApexDQNBuilder, str(_CONFIGS / "apex_dqn_cartpole.py"))
