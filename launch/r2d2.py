"""Trains R2D2, as `apex-r2d2` does: see apex_agents/command_line/train.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.r2d2()
