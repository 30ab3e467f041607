"""The commands, as `launch/*.py` and the installed `apex-*` scripts call them.

Each function imports its command when it is called: `--help` of a small command does not wait for
TensorFlow, and the commands define flags of the same names.
"""

import importlib
import os
import sys

from apex_agents.nodes.fork_server import open_server

# Read when TensorFlow is imported, by this process and by the nodes: its remarks about missing GPU
# drivers are no news, and its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Imported by the process from which nodes are forked.
_NODE_MODULES = ("apex_agents.program", "apex_agents.registry")


def apex_dqn() -> None:
    """Train Ape-X DQN."""
    _train("apex_dqn")


def apex_dpg() -> None:
    """Train Ape-X DPG."""
    _train("apex_dpg")


def evaluate() -> None:
    """Evaluate the parameters of a run."""
    _run("evaluate")


def monitor() -> None:
    """Show the state of a run."""
    _run("monitor")


def plot() -> None:
    """Draw runs."""
    _run("plot")


def sweep() -> None:
    """Train with several seeds and on several tasks."""
    _run("sweep")


def train_argv(agent: str) -> list[str]:
    """Return the command that trains an agent, without flags, in this environment."""
    return [sys.executable, "-m", __name__, agent]


def _train(agent: str) -> None:
    open_server(_NODE_MODULES)  # It imports TensorFlow while this process does the same.
    _run("train", agent)


def _run(command: str, *args: str) -> None:
    module = importlib.import_module(f"apex_agents.command_line.{command}")
    sys.modules["__main__"].__doc__ = module.__doc__  # Printed by --help.
    module.main(*args)


if __name__ == "__main__":
    _train(sys.argv.pop(1))
