"""Runs an experiment of the paper, as `apex-paper` does: see apex_agents/command_line/paper.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.paper()
