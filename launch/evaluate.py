"""Evaluates a run, as `apex-evaluate` does: see apex_agents/command_line/evaluate.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.evaluate()
