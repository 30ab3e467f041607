"""Shows a run, as `apex-monitor` does: see apex_agents/command_line/monitor.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.monitor()
