"""Says what agents make of an environment, as `apex-check` does: see command_line/check.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.check()
