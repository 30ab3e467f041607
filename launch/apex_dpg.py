"""Trains Ape-X DPG; the installed command is `apex-dpg`.

Example:
  python launch/apex_dpg.py --lp_launch_type=local_mp

See apex_agents/command_line/train.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.apex_dpg()
