"""Draws runs, as `apex-plot` does: see apex_agents/command_line/plot.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.plot()
