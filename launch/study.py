"""Trains several runs and compares them, as `apex-study` does: see command_line/study.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.study()
