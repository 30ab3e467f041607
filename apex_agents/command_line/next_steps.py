"""What to do after a run, as commands of the kind that the user has given."""

import os
import pathlib
import shlex
import shutil
import sys
from collections.abc import Iterator

from apex_agents.plotting import PLOTS
from apex_agents.registry import AGENTS


def describe_next_steps(
    agent: str, folder: pathlib.Path, settings: str, program: str
) -> Iterator[str]:
    """Yield lines for the terminal; none if the command was started by another one, as in studies.

    Args:
      agent: name of the agent that was trained.
      folder: folder of the run.
      settings: name of the settings; after those of the agent's first run another task is named.
      program: first word of the command line, `sys.argv[0]`.
    """
    script = pathlib.Path(program)
    if script.stem not in (agent, f"apex-{agent.removeprefix('apex_')}"):
        return
    run = shlex.quote(_shorten(str(folder)))
    steps = {
        "evaluate": f"{_command(script, 'evaluate')} {run}",
        "plot": f"{_command(script, 'plot')} {run}  # or several runs, in one figure",
    }
    figure = folder / PLOTS / "returns.png"
    if figure.exists():
        steps = {"figure": _shorten(str(figure)), **steps}
    if settings == AGENTS[agent].default_config:
        task, flags = AGENTS[agent].next_task
        steps[task] = f"{_command(script, agent)} {flags}"
    yield "What to do next:"
    for name, step in steps.items():
        yield f"{name:>18}: {step}"


def _command(script: pathlib.Path, name: str) -> str:
    """Return the command of a name, `evaluate` or `apex_dqn`, that lies beside a script."""
    if script.suffix == ".py":
        beside = str(script.with_name(f"{name}.py"))
        return f"{shlex.quote(_shorten(sys.executable))} {shlex.quote(beside)}"
    beside = str(script.with_name(f"apex-{name.removeprefix('apex_')}"))
    return shlex.quote(_shorten(beside))


def _shorten(path: str) -> str:
    """Return how a path is written in the current folder: as a program's name where that is it."""
    name = os.path.basename(path)
    if shutil.which(name) == path:
        return name
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative
