"""Runs command lines, each in a process of its own, forked from this one.

Importing TensorFlow takes seconds, forking milliseconds; and every command line gets fresh flags.
Requests come as lines of JSON, `{"script", "flags", "folder"}`, and are answered by lines of JSON,
`[exit code, stdout, stderr]`. Training is left out: it would answer a mistake that went through
unnoticed with exit code 0.
"""

import json
import os
import pathlib
import resource
import runpy
import signal
import sys
import traceback

import apex_agents.environments.control  # noqa: F401  # Takes a second when it is needed.
from apex_agents import launcher, training
from apex_agents.command_line import arguments, commands
from apex_agents.ending import Run

LAUNCH = pathlib.Path(__file__).resolve().parent.parent.parent / "launch"
HANGS_AFTER_SECONDS = 600
MAX_MEMORY_BYTES = 16 * 2**30


def main() -> None:
    for module in (commands, training):
        module.open_server = lambda *args: None  # Everything is imported here already.
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        os.environ.pop(name, None)  # No command opens a window.
    launcher.launch_program = lambda *args: Run(pathlib.Path(), {}, 0)
    for line in sys.stdin:
        request = json.loads(line)
        outputs = [os.memfd_create(name) for name in ("stdout", "stderr")]
        pid = os.fork()
        if pid == 0:
            run(outputs=outputs, **request)
        exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([exit_code, *map(read, outputs)]), flush=True)


def run(script: str, flags: list[str], folder: str, outputs: list[int]) -> None:
    """Run `script` with `flags` in `folder`, and exit."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(output, descriptor)
    os.chdir(folder)
    arguments.STARTED_IN = pathlib.Path(folder)
    signal.alarm(HANGS_AFTER_SECONDS)  # Ends the process: exit code -14.
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    sys.argv = [f"launch/{script}", *flags]
    exit_code = 1
    try:
        runpy.run_path(str(LAUNCH / script), run_name="__main__")
        exit_code = 0
    except SystemExit as error:
        exit_code = error.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb") as file:
        return file.read().decode(errors="backslashreplace")


main()
