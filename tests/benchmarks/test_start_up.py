"""What the benchmark of starting measures on a real run."""

import our_runs
import pytest
import start_up


@pytest.mark.slow
def test_a_run_acts_before_it_learns():
    acting, learning = start_up.start_run()
    assert 1 < acting < learning < our_runs.LONGEST_SECONDS


def test_a_run_that_does_not_begin(monkeypatch, tmp_path):
    monkeypatch.setattr(our_runs, "COMMAND", tmp_path / "missing.py")
    with pytest.raises(RuntimeError, match="did not begin"):
        start_up.start_run()
