"""Trains Ape-X DQN; the installed command is `apex-dqn`.

Example:
  python launch/apex_dqn.py --lp_launch_type=local_mp

See apex_agents/command_line/train.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.apex_dqn()
