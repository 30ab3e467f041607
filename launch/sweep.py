"""Trains with several seeds and on several tasks; the installed command is `apex-sweep`.

Example:
  python launch/sweep.py --config=apex_dqn_cartpole --seeds=5

See apex_agents/command_line/sweep.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.sweep()
