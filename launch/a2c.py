"""Trains A2C, as `apex-a2c` does: see apex_agents/command_line/train.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.a2c()
