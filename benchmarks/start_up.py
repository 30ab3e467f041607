"""Measures how long a run takes to begin, against importing TensorFlow once.

The command trains Ape-X DQN on CartPole in processes of its own. An environment step counts once
the replay server has a transition, a few steps later; the first learner step counts when the
learner says that it was.

Example:
  python benchmarks/start_up.py --rounds 3
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import psutil
import reverb
from measuring import (
    Row,
    at_most,
    make_parser,
    measure_in_turn,
    ratios,
    report,
    run_and_leave,
    spread,
)

from apex_agents.replay.tables import TRANSITIONS
from apex_agents.running.run_files import RowReader
from apex_agents.running.workdir import NODES_FILE, read_run_id

COMMAND = pathlib.Path(__file__).resolve().parent.parent / "launch" / "apex_dqn.py"
POLL_SECONDS = 0.02
SERVER_TIMEOUT_SECONDS = 5
LONGEST_SECONDS = 120.0

Found = TypeVar("Found")


def main() -> None:
    arguments = make_parser(__doc__).parse_args()
    measurements: dict[str, Callable[[], tuple[float, ...]]] = {
        "import": import_tensorflow,
        "run": start_run,
    }
    measured = measure_in_turn(measurements, arguments.rounds)
    (imports,) = zip(*measured["import"], strict=True)
    acting, learning = zip(*measured["run"], strict=True)
    rows = [Row("importing TensorFlow", spread(imports), "s")]
    for what, seconds in (("environment", acting), ("learner", learning)):
        rows.append(Row(f"from the command to the first {what} step", spread(seconds), "s"))
        times = ratios(seconds, imports)
        rows.append(at_most(f"first {what} step, in imports of TensorFlow", times, 4.0))
    report("start_up", arguments.out, rows)


def import_tensorflow() -> tuple[float]:
    """Return the seconds that it takes a new process."""
    started = time.monotonic()
    command = [sys.executable, "-c", "import tensorflow"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return (time.monotonic() - started,)


def start_run() -> tuple[float, float]:
    """Return the seconds to the first environment step and to the first learner step."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder, "run")
        command = [sys.executable, str(COMMAND), "--lp_launch_type=local_mp"]
        started = time.monotonic()
        run = subprocess.Popen([*command, f"--workdir={workdir}"], stdout=subprocess.DEVNULL)
        try:
            port = wait_for(lambda: find_port(workdir), run)
            table = f"{TRANSITIONS}-{read_run_id(str(workdir))}"
            client = reverb.Client(f"localhost:{port}")
            wait_for(lambda: count_inserted(client, table), run)
            acting = time.monotonic() - started
            learner = RowReader(workdir / "logs" / "learner.csv")
            wait_for(learner.read, run)
            return acting, time.monotonic() - started
        finally:
            run.terminate()
            run.wait()


def wait_for(look: Callable[[], Found], run: subprocess.Popen) -> Found:
    """Look again and again until there is something, and return it."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not (found := look()):
        if run.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the run ended, or did not begin")
        time.sleep(POLL_SECONDS)
    return found


def find_port(workdir: pathlib.Path) -> int | None:
    """Return the port of the replay server, once it listens."""
    with contextlib.suppress(FileNotFoundError, KeyError, TypeError, psutil.NoSuchProcess):
        pid = json.loads((workdir / NODES_FILE).read_text())["replay"]["pid"]
        for connection in psutil.Process(pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return connection.laddr.port
    return None


def count_inserted(client: reverb.Client, table: str) -> int:
    """Return how many transitions were added so far."""
    with contextlib.suppress(RuntimeError, reverb.errors.ReverbError):
        info = client.server_info(SERVER_TIMEOUT_SECONDS)[table].rate_limiter_info
        return info.insert_stats.completed
    return 0


if __name__ == "__main__":
    run_and_leave(main)
