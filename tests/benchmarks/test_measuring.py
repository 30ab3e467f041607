"""How measurements become the rows of a table."""

import pytest
from measuring import (
    Row,
    Spread,
    at_least,
    at_most,
    calls_per_second,
    measure_in_turn,
    ratios,
    read_reports,
    report,
    spread,
)


def test_spread_is_median_smallest_and_largest():
    assert spread([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert spread([4.0, 1.0]) == Spread((4.0 + 1.0) / 2, 1.0, 4.0)


def test_ratios_are_those_of_the_rounds():
    # 6 / 2, 1 / 4 and 10 / 5; the ratio of the medians would be 6 / 4.
    assert ratios([6.0, 1.0, 10.0], [2.0, 4.0, 5.0]) == Spread(2.0, 0.25, 3.0)
    with pytest.raises(ValueError):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("make", "median", "aim", "holds"),
    [
        (at_least, 0.5, ">= 0.5", True),
        (at_least, 0.49, ">= 0.5", False),
        (at_most, 0.5, "<= 0.5", True),
        (at_most, 0.51, "<= 0.5", False),
    ],
)
def test_rows_say_whether_the_median_reaches_the_aim(make, median, aim, holds):
    row = make("share", Spread(median, 0.0, 1.0), 0.5)
    assert (row.aim, row.holds) == (aim, holds)


def test_what_failed_once_is_not_small_though_its_median_is():
    assert at_most("steps", Spread(2.0, 1.0, 3.0), 5.0).holds
    assert not at_most("steps", Spread(2.0, 1.0, float("inf")), 5.0).holds


def test_measurements_take_turns_and_the_first_round_is_forgotten():
    calls = []

    def measure(name):
        calls.append(name)
        return float(len(calls))

    numbers = measure_in_turn({name: lambda name=name: measure(name) for name in "ab"}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert numbers == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_calls_per_second_counts_calls():
    calls = []
    rate = calls_per_second(lambda: calls.append(None), seconds=0.05)
    assert 0 < rate <= len(calls) / 0.05


def test_reports_are_printed_and_read_back(tmp_path, capsys):
    rows = [
        at_most("bytes, ours / best", Spread(1250.0, 0.123456, 2e6), 1.0),
        Row("rate", Spread(1.0, 1.0, 1.0), "/s"),
    ]
    report("part", str(tmp_path / "new"), rows, {"rates": [1.0, 2.0]})
    (found,) = read_reports(str(tmp_path / "new"))
    assert (found.part, found.rows, found.series) == ("part", rows, {"rates": [1.0, 2.0]})
    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == [
        *("bytes,", "ours", "/", "best", "1,250", "(0.123", "to", "2,000,000)"),
        *("aim", "<=", "1", "MISSED"),
    ]
    assert second.split() == ["rate", "1", "(1", "to", "1)", "/s"]
