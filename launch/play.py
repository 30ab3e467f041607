"""Shows a trained agent, as `apex-play` does: see apex_agents/command_line/play.py."""

from apex_agents.command_line import commands

if __name__ == "__main__":
    commands.play()
