"""Shows the state of a run; the installed command is `apex-monitor`.

Example:
  python launch/monitor.py --workdir=RUN

See apex_agents/command_line/monitor.py.
"""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.monitor()
