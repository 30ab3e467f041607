"""Exports the policy of a run, as `apex-export` does: see apex_agents/command_line/export.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.export()
