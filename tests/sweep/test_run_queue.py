"""Tests of running commands one after the other and a few at once, with real processes."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from apex_agents.sweep.run_queue import Job, RunQueue, last_words

WAIT = "import time; print('waits', flush=True); time.sleep(60)"


@pytest.fixture
def make_job(tmp_path):
    def make(name: str, code: str) -> Job:
        return Job(name, (sys.executable, "-c", code), tmp_path / name / "output.log")

    return make


def step_until(queue: RunQueue, num_events: int) -> list[tuple[str, int | None]]:
    """Steps until so many things have happened."""
    events = []
    deadline = time.monotonic() + 20
    while len(events) < num_events:
        events += [(event.job.name, event.exit_code) for event in queue.step()]
        assert time.monotonic() < deadline, events
        time.sleep(0.01)
    return events


def wait_for_output(job: Job) -> None:
    deadline = time.monotonic() + 20
    while last_words(job.log) != "waits":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_jobs_run_one_after_the_other(make_job):
    jobs = [make_job("a", "print('a')"), make_job("b", "print('b'); raise SystemExit(1)")]
    queue = RunQueue(jobs, 1)
    assert step_until(queue, 4) == [("a", None), ("a", 0), ("b", None), ("b", 1)]
    assert queue.is_done()
    assert [job.log.read_text() for job in jobs] == ["a\n", "b\n"]


def test_some_jobs_run_at_once(make_job):
    jobs = [make_job(name, WAIT) for name in "abc"]
    queue = RunQueue(jobs, 2)
    assert step_until(queue, 2) == [("a", None), ("b", None)]
    assert queue.running == jobs[:2]
    assert queue.step() == []
    queue.stop(signal.SIGKILL)
    assert sorted(step_until(queue, 2)) == [("a", 137), ("b", 137)]
    assert queue.is_done()  # The third does not start.
    assert not jobs[2].log.exists()


def test_a_stopped_job_may_end_in_its_own_way(make_job):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        "print('waits', flush=True)\n"
        "time.sleep(60)"
    )
    job = make_job("a", code)
    queue = RunQueue([job], 1)
    queue.step()
    wait_for_output(job)
    queue.stop(signal.SIGINT)
    assert step_until(queue, 1) == [("a", 130)]


def test_output_of_a_job_that_goes_on_is_added(make_job):
    job = make_job("a", "import sys; print('out'); print('err', file=sys.stderr)")
    for _ in range(2):
        step_until(RunQueue([job], 1), 2)
    assert sorted(job.log.read_text().split()) == ["err", "err", "out", "out"]


def test_a_job_that_cannot_be_started_stops_no_other(make_job, tmp_path):
    (tmp_path / "b").touch()  # In the way of its folder.
    jobs = [make_job("a", ""), make_job("b", ""), make_job("c", "")]
    jobs[0] = jobs[0]._replace(argv=("/nothing",))
    queue = RunQueue(jobs, 1)
    events = queue.step()
    assert [(event.job.name, event.exit_code) for event in events] == [
        ("a", 126),
        ("b", 126),
        ("c", None),
    ]
    assert "No such file" in events[0].error
    assert "exists" in events[1].error
    assert step_until(queue, 1) == [("c", 0)]


def test_jobs_end_with_a_parent_that_is_killed(make_job):
    job = make_job("a", WAIT)
    code = (
        "import pathlib, sys, time\n"
        "from apex_agents.sweep.run_queue import Job, RunQueue\n"
        f"RunQueue([Job('a', {job.argv!r}, pathlib.Path({str(job.log)!r}))], 1).step()\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_for_output(job)
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    child.wait(10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "(no output)"),
        ("", "(no output)"),
        ("starts\n[10 s] goes on\n\n", "[10 s] goes on"),
        ("starts\nerror: no such field\n", "error: no such field"),
        ("Node learner failed. learner.log ends with:\n  | Traceback\n", "Node learner failed."),
        ("x" * 100_000 + "\nlast\n", "last"),
    ],
)
def test_last_words(text, words, tmp_path):
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    assert last_words(log).startswith(words)
