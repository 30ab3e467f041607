"""Evaluates the parameters of a run; the installed command is `apex-evaluate`.

Example:
  python launch/evaluate.py --workdir=RUN --episodes=100

See apex_agents/command_line/evaluate.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.evaluate()
