"""Trains Ape-X DPG, as `apex-dpg` does: see apex_agents/command_line/train.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.apex_dpg()
