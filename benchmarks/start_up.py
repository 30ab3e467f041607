"""Measures how long a run takes to start, against importing TensorFlow once.

The command trains Ape-X DQN on CartPole in processes of its own. The first environment step is seen
when the replay server has a transition, a few steps later; the first learner step when the learner
writes its first row.

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
from our_runs import our_run, wait_for

from apex_agents.replay.tables import TRANSITIONS
from apex_agents.runs.csv_file import RowReader
from apex_agents.runs.opening import read_run_id
from apex_agents.runs.workdir import NODES_FILE

SERVER_TIMEOUT_SECONDS = 5


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
    """Return the seconds that a new process takes to import TensorFlow."""
    started = time.monotonic()
    command = [sys.executable, "-c", "import tensorflow"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return (time.monotonic() - started,)


def start_run() -> tuple[float, float]:
    """Return the seconds to the first environment step and to the first learner step."""
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder, "run")
        started = time.monotonic()
        with our_run(workdir) as run:
            port = wait_for(lambda: find_port(workdir), run)
            table = f"{TRANSITIONS}-{read_run_id(str(workdir))}"
            client = reverb.Client(f"localhost:{port}")
            wait_for(lambda: count_inserted(client, table), run)
            acting = time.monotonic() - started
            learner = RowReader(workdir / "logs" / "learner.csv")
            wait_for(learner.read, run)
            return acting, time.monotonic() - started


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
