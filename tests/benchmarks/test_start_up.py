"""What the benchmark of starting measures on a real run."""

import pytest
import start_up


@pytest.mark.slow
def test_a_run_acts_before_it_learns():
    acting, learning = start_up.start_run()
    assert 1 < acting < learning < start_up.LONGEST_SECONDS


def test_a_run_that_does_not_begin(monkeypatch, tmp_path):
    monkeypatch.setattr(start_up, "COMMAND", tmp_path / "missing.py")
    with pytest.raises(RuntimeError, match="did not begin"):
        start_up.start_run()
