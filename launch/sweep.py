"""Trains several runs, as `apex-sweep` does: see apex_agents/command_line/sweep.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.sweep()
