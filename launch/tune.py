"""Searches for good settings, as `apex-tune` does: see apex_agents/command_line/tune.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.tune()
