"""The commands, as `launch/*.py` and the installed `apex-*` scripts call them.

A command is imported when it is called: `--help` of a small one does not wait for TensorFlow, and
the commands define flags of the same names.
"""

import functools
import importlib
import io
import logging
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder

from absl import logging as absl_logging

from apex_agents.command_line.arguments import fail, run_command
from apex_agents.nodes.fork_server import open_server, script_argv
from apex_agents.stopwatch import Stopwatch
from apex_agents.training import NODE_MODULES

# The process may be older: a script keeps it when it execs the command.
STOPWATCH = Stopwatch()


def train_argv(agent: str) -> list[str]:
    """Return the command that trains an agent, without flags, in this environment."""
    return script_argv(__file__, agent)


def _train(agent: str) -> None:
    _open_streams()
    _use_utf8()
    open_server(NODE_MODULES)  # It imports TensorFlow while this process does the same.
    _run("train", lambda main: main(agent))


def _open_streams() -> None:
    """Open streams that the caller has closed (`>&-`), before another file gets their numbers.

    Characters of results that the terminal's encoding lacks, such as a plus-minus sign, become '?'.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, errors="replace"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # Standard error escapes them.
        sys.stdout.reconfigure(errors="replace")


def _use_utf8() -> None:
    """Execute this command again in Python's UTF-8 mode if the locale has a different encoding.

    TensorFlow and Reverb take paths in UTF-8 only.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"  # It has no effect after `python -E` or `-X utf8=0`.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _run(command: str, call: Callable[[Callable[..., None]], None] = run_command) -> None:
    """Import a command, and call its function `main`."""
    # Until the command handles it, Ctrl-C ends it without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_streams()
    _use_utf8()
    absl_logging.use_absl_handler()
    absl_logging.get_absl_handler().setFormatter(_LogFormatter())
    try:
        module = importlib.import_module(f"apex_agents.command_line.{command}")
    except Exception as error:
        hiding = " and ".join(_find_hiding_modules())
        if not hiding:
            raise
        fail(
            f"{type(error).__name__}: {error}. PYTHONPATH puts {hiding} in the place of a library; "
            "rename it, or take its folder from PYTHONPATH."
        )
    call(module.main)


class _LogFormatter(logging.Formatter):
    """Formats log records as commands print warnings and errors."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _find_hiding_modules() -> Iterator[str]:
    """Yield the modules in folders of PYTHONPATH that hide a library."""
    first = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = {os.path.abspath(folder) for folder in first if folder}
    others = [folder for folder in sys.path if os.path.abspath(folder) not in folders]
    for folder in folders:
        for module in pkgutil.iter_modules([folder]):
            is_ours = module.name == __name__.partition(".")[0]
            if not is_ours and PathFinder.find_spec(module.name, others) is not None:
                yield os.path.join(folder, module.name)


a2c = functools.partial(_train, "a2c")
a3c = functools.partial(_train, "a3c")
apex_dqn = functools.partial(_train, "apex_dqn")
r2d2 = functools.partial(_train, "r2d2")
apex_dpg = functools.partial(_train, "apex_dpg")
check = functools.partial(_run, "check")
evaluate = functools.partial(_run, "evaluate")
export = functools.partial(_run, "export")
monitor = functools.partial(_run, "monitor")
play = functools.partial(_run, "play")
plot = functools.partial(_run, "plot")
study = functools.partial(_run, "study", lambda main: main())

if __name__ == "__main__":
    agent = sys.argv.pop(1)
    sys.argv[0] = agent.replace("_", "-")  # The summary of the run names the command so.
    _train(agent)
