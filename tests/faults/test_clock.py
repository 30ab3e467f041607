"""A wall clock that is set in the middle of a run."""

from __future__ import annotations

import signal

import pytest
from whole_runs import ENDLESS, apex_dqn

# Python imports it when it starts: the time is shifted by the seconds in a file, once there is one.
SITE_CUSTOMIZE = """
import os, time
now = time.time

def shifted():
    try:
        with open(os.environ["CLOCK_SHIFT_FILE"]) as file:
            return now() + float(file.read())
    except OSError:
        return now()

time.time = shifted
"""
# Continues as a command whose processes have that clock.
WITH_SHIFTED_CLOCK = """
import os, sys
folder = sys.argv[1]
path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
os.environ.update(PYTHONPATH=path, CLOCK_SHIFT_FILE=f"{folder}/shift")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
LIMIT_SECONDS = 3000.0  # More than the test may take.


@pytest.mark.fault(
    breaks="a wall clock that is set a day ahead or an hour back, then `kill -9` of the learner",
    holds="limit, rows, summary and resumed run count the seconds that have passed",
)
@pytest.mark.parametrize("shift", [86_400, -3_600])
def test_a_clock_that_is_set(shift, start, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    limit = f"--config.run.max_seconds={LIMIT_SECONDS}"
    flags = ("-c", WITH_SHIFTED_CLOCK, str(tmp_path), *apex_dqn("local_mp", limit))
    run = start(*flags, *ENDLESS)
    run.wait_for(run.is_learning)
    (tmp_path / "shift").write_text(str(shift))
    run.kill("learner")
    run.wait_for_rows("learner")
    run.signal(signal.SIGTERM)
    assert run.finish().exit_code == 143, run.output()
    times = wall_times(run)
    stopped_at = run.summary()["wall_time_seconds"]
    assert times == sorted(times)
    assert times[0] > 0 and times[-1] <= stopped_at < LIMIT_SECONDS

    steps = run.summary()["learner_steps"] + 8
    again = [arg.replace("{workdir}", str(run.workdir)) for arg in flags]
    second = start(*again, f"--config.run.max_learner_steps={steps}").finish()
    assert second.exit_code == 0, second.output()
    assert run.summary()["reason"] == f"limit of {steps} learner steps reached"
    assert wall_times(run) == sorted(wall_times(run))
    assert stopped_at < run.summary()["wall_time_seconds"] < LIMIT_SECONDS


def wall_times(run) -> list[float]:
    return [float(row["wall_time_seconds"]) for row in run.rows("learner")]
