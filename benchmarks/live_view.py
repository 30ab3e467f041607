"""Measures what the live view of a run costs: its share of one core.

The view is a process in a terminal of its own (`launch/monitor.py`); the command that trains does
the same in a thread.

Example:
  python benchmarks/live_view.py --workdir=runs/apex_dqn_cartpole-20260101-120000
"""

import argparse
import os
import pathlib
import pty
import statistics
import subprocess
import sys
import threading
import time

import psutil

MONITOR = pathlib.Path(__file__).resolve().parent.parent / "launch" / "monitor.py"
START_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workdir", required=True, help="folder of a run that is active")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--repetitions", type=int, default=6, help="measurements")
    arguments = parser.parse_args()
    leader, follower = pty.openpty()
    # The view would block if its terminal were not read.
    threading.Thread(target=_drain, args=(leader,), daemon=True).start()
    command = [sys.executable, str(MONITOR), f"--workdir={arguments.workdir}"]
    env = {**os.environ, "COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"}
    monitor = subprocess.Popen(command, stdin=follower, stdout=follower, env=env)
    process = psutil.Process(monitor.pid)
    time.sleep(START_SECONDS)
    shares = []
    for _ in range(arguments.repetitions):
        started, used = time.monotonic(), sum(process.cpu_times()[:2])
        time.sleep(arguments.seconds)
        if monitor.poll() is not None:
            parser.error(f"{arguments.workdir} is not the folder of an active run.")
        elapsed = time.monotonic() - started
        shares.append(100 * (sum(process.cpu_times()[:2]) - used) / elapsed)
    monitor.kill()
    print(
        f"{statistics.median(shares):.2f} % of a core (median of {len(shares)}; "
        f"{min(shares):.2f} to {max(shares):.2f})"
    )


def _drain(leader: int) -> None:
    while os.read(leader, 65536):
        pass


if __name__ == "__main__":
    main()
