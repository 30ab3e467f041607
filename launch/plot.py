"""Draws runs; the installed command is `apex-plot`.

Example:
  python launch/plot.py RUN [RUN ...]

See apex_agents/command_line/plot.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.plot()
