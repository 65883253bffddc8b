"""Arrival processes."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.strategies.arrivals import Arrivals, Bursts, Constant, Daily, Poisson, Trace, trace

SECOND = 1_000_000
HOUR = 3_600 * SECOND

rates = st.one_of(
    st.just(0), st.integers(1, 10**6), st.floats(0.001, 5_000), st.sampled_from([1 / 3, 0.1, 7.7])
)
windows = st.tuples(st.integers(0, 10**12), st.integers(0, 10 * SECOND)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
traces = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5))).map(
    lambda rows: trace(rows or np.empty((0, 2)))
)
steady = st.one_of(st.builds(Constant, rates), traces, traces.map(lambda t: t.scaled(0.7)))
processes = st.one_of(
    st.builds(Constant, st.floats(0.001, 5_000)),
    st.builds(Poisson, st.floats(0.001, 5_000)),
    st.builds(Bursts, st.floats(0, 50).map(round), st.integers(0, 5_000), st.just(3), st.just(1)),
    st.builds(Daily, st.integers(0, 50), st.integers(50, 900), st.just("9h"), st.just("10s")),
    traces,
)


def stream(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def count(process: Arrivals, start_us: int, end_us: int, seed: int = 1) -> int:
    return process.count_in(start_us, end_us, stream(seed))


def times(process: Arrivals, start_us: int, end_us: int, seed: int = 1) -> list[int]:
    return process.times_in(start_us, end_us, stream(seed)).tolist()


@given(processes, windows, st.integers(0, 2**32))
def test_times_are_sorted_inside_the_window_and_as_many_as_counted(
    process: Arrivals, window: tuple[int, int], seed: int
) -> None:
    drawn = process.times_in(*window, stream(seed))
    assert len(drawn) == count(process, *window, seed)
    assert drawn.dtype == np.int64
    assert (np.diff(drawn) >= 0).all()
    assert not len(drawn) or window[0] <= drawn[0] <= drawn[-1] < window[1]


@given(steady, st.lists(st.integers(0, 20 * SECOND), min_size=2), st.integers(0, 10**9))
def test_constant_and_trace_do_not_depend_on_the_windows(
    process: Arrivals, cuts: list[int], shift: int
) -> None:
    cuts = sorted(cut + shift for cut in cuts)
    pieces = list(pairwise(cuts))
    assert sum(count(process, *piece) for piece in pieces) == count(process, cuts[0], cuts[-1])


@given(st.builds(Constant, st.floats(0.1, 900)), st.lists(st.integers(0, 20 * SECOND), min_size=2))
def test_constant_arrivals_have_the_same_times_in_all_windows(
    process: Constant, cuts: list[int]
) -> None:
    cuts.sort()
    pieces = [time for piece in pairwise(cuts) for time in times(process, *piece)]
    assert pieces == times(process, cuts[0], cuts[-1])


@given(st.fractions(Fraction(1, 10), 900, max_denominator=50), windows)
def test_constant_arrival_number_k_is_at_k_divided_by_the_rate(
    rate: Fraction, window: tuple[int, int]
) -> None:
    first, last = (int(time * rate / SECOND) for time in window)
    brute = [int(k * SECOND / rate) for k in range(max(0, first - 1), last + 2)]
    expected = [time for time in brute if window[0] <= time < window[1]]
    assert times(Constant(float(rate)), *window) == expected


def test_a_constant_rate_is_the_decimal_number_as_written() -> None:
    assert times(Constant(0.1), 0, 30 * SECOND) == [0, 10 * SECOND, 20 * SECOND]
    assert times(Constant(4), 0, SECOND) == [0, 250_000, 500_000, 750_000]


@pytest.mark.parametrize("rate", [1 / 3, 999.9, 1_000_000])
def test_a_constant_rate_does_not_drift_in_a_year(rate: float) -> None:
    year = 365 * 24 * HOUR
    assert count(Constant(rate), 0, year) == pytest.approx(rate * year / SECOND, abs=1)
    last = times(Constant(rate), year - 10 * SECOND, year)
    assert len(last) == pytest.approx(10 * rate, abs=1)


def test_even_a_billion_records_a_second_are_exact() -> None:
    window = (10**12, 10**12 + 1_000)
    drawn = Constant(999_999_999).times_in(*window, stream())
    assert len(drawn) == count(Constant(999_999_999), *window)
    assert np.bincount(drawn - window[0]).tolist() == [
        count(Constant(999_999_999), time, time + 1) for time in range(*window)
    ]


def test_poisson_arrivals_have_the_mean_and_the_variance_of_their_rate() -> None:
    random = stream()
    counts = [Poisson(500).count_in(0, SECOND // 10, random) for _ in range(4_000)]
    assert np.mean(counts) == pytest.approx(50, rel=0.01)
    assert np.var(counts) == pytest.approx(50, rel=0.05)
    gaps = np.diff(Poisson(1_000).times_in(0, 20 * SECOND, random))
    assert gaps.mean() == pytest.approx(1_000, rel=0.02)
    assert gaps.std() == pytest.approx(1_000, rel=0.02)


def test_bursts_come_at_the_start_of_every_period() -> None:
    bursts = Bursts(rate=100, burst_rate=5_000, every="10s", length="2s")
    drawn = bursts.times_in(5 * SECOND, 35 * SECOND, stream())
    per_second = np.bincount(drawn // SECOND, minlength=35)
    for second in range(5, 35):
        expected = 5_000 if second % 10 < 2 else 100
        assert per_second[second] == pytest.approx(expected, rel=0.4 if expected == 100 else 0.05)
    assert count(bursts, 0, 10 * SECOND) == pytest.approx(10_800, rel=0.03)
    assert count(bursts, 0, 2 * SECOND) == pytest.approx(10_000, rel=0.03)


def test_a_daily_load_goes_from_low_to_peak_and_back() -> None:
    daily = Daily(low=10, peak=90, peak_at="14h")
    peak, low = (count(daily, hour * HOUR, (hour + 1) * HOUR) / 3_600 for hour in (13.5, 1.5))
    assert peak == pytest.approx(90, rel=0.02)
    assert low == pytest.approx(10, rel=0.05)
    assert count(daily, 0, 24 * HOUR) == pytest.approx(50 * 86_400, rel=0.005)
    assert count(daily, 24 * HOUR, 48 * HOUR) == pytest.approx(50 * 86_400, rel=0.005)


def test_the_times_of_a_daily_load_follow_its_curve() -> None:
    drawn = Daily(10, 90, "14h").times_in(0, 24 * HOUR, stream())
    per_hour = np.bincount(drawn // HOUR, minlength=24) / 3_600
    middle = np.arange(24) + 0.5
    expected = 50 + 40 * np.cos(2 * np.pi * (middle - 14) / 24)
    assert per_hour == pytest.approx(expected, rel=0.06)


def test_a_day_can_be_short() -> None:
    quick = Daily(0, 2_000, peak_at="5s", day="10s")
    assert count(quick, 4_500_000, 5_500_000) == pytest.approx(2_000, rel=0.05)
    assert count(quick, 9_500_000, 10_500_000) < 60


def test_a_run_can_start_at_any_hour_of_the_day() -> None:
    midnight, noon = Daily(10, 90, "14h"), Daily(10, 90, "14h", start_at="12h")
    assert count(noon, 0, HOUR) == count(midnight, 12 * HOUR, 13 * HOUR)
    assert count(noon, 20 * HOUR, 21 * HOUR) == count(midnight, 8 * HOUR, 9 * HOUR)
    peak = count(noon, 1.5 * HOUR, 2.5 * HOUR) / 3_600
    assert peak == pytest.approx(90, rel=0.02)
    with pytest.raises(wt.errors.BadValueError, match="start_at = 'noon': expected seconds"):
        Daily(1, 3, start_at="noon")


def test_a_trace_replays_its_times() -> None:
    recorded = trace([0.5, 0.25, 2, 0.5])
    assert times(recorded, 0, 10 * SECOND) == [250_000, 500_000, 500_000, 2_000_000]
    assert times(recorded, 500_000, 2_000_000) == [500_000, 500_000]
    assert count(recorded, 2_000_001, 10**12) == 0


def test_a_trace_can_have_counts() -> None:
    recorded = trace([(1, 3), (0, 2), (2, 0)])
    assert times(recorded, 0, 3 * SECOND) == [0, 0, SECOND, SECOND, SECOND]
    assert recorded == trace(np.array([[0, 2], [1, 3], [2, 0]]))


def test_a_trace_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,count\n# warm-up\n0.5, 2\n\n1.5 # one\n1e0,1\n")
    assert trace(path) == trace(str(path)) == trace([(0.5, 2), (1, 1), (1.5, 1)])
    path.write_text("")
    assert count(trace(path), 0, 10**12) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\nsoon\n", r"load.csv, line 2: 'soon': expected a time in seconds, or a time and"),
        ("time\n1,2,3\n", r"load.csv, line 2: '1,2,3': expected a time in seconds"),
        ("1\n\n-1\n", r"load.csv, line 3: time -1, count 1: expected zero or more seconds"),
        ("1,1.5\n", r"load.csv, line 1: time 1, count 1.5: expected .* a whole number of records"),
    ],
)
def test_an_invalid_line_of_a_trace_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(wt.errors.BadValueError, match=message):
        trace(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, float("nan")], "trace, row 1: time nan"),
        ([(1, 2), (2, -1)], "trace, row 1: time 2, count -1"),
        ([(1, 2, 3)], "trace: expected times in seconds, or rows of a time and a count"),
        (["soon"], "trace: expected times"),
        ([1, (1, 2)], "trace: expected times"),
        (5, "trace: expected times"),
    ],
)
def test_an_invalid_row_of_a_trace_is_named(rows: Any, message: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=message):
        trace(rows)


def test_every_process_can_be_scaled() -> None:
    changed = {
        Constant(10): Constant(25),
        Poisson(10): Poisson(25),
        Bursts(10, 100, 9, 1): Bursts(25, 250, 9, 1),
        Daily(10, 100, "3h"): Daily(25, 250, "3h"),
    }
    for process, expected in changed.items():
        assert process.scaled(2.5) == expected
    recorded = trace([(1, 3), (2, 4)])
    assert times(recorded.scaled(0.5), 0, 9 * SECOND) == [SECOND, 2 * SECOND, 2 * SECOND]
    assert recorded.scaled(2).scaled(0.5) == recorded


def test_a_rate_of_zero_gives_no_arrivals() -> None:
    for process in (
        Constant(0),
        Poisson(0),
        Bursts(0, 0, 9, 1),
        Daily(5, 9).scaled(0),
        trace([1, 2]).scaled(0),
    ):
        assert count(process, 0, 99 * HOUR) == 0
        assert times(process, 0, HOUR) == []


def test_a_random_process_draws_only_from_its_stream() -> None:
    for process in (Poisson(500), Bursts(9, 500, 3, 1), Daily(5, 900)):
        first, again, other = (times(process, 0, SECOND, seed) for seed in (1, 1, 2))
        assert first == again != other


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(-1), "rate = -1: expected records per second, 0 or from 1e-06 to 1e.09"),
        (lambda: Constant(1e-9), "rate = 1e-09: expected records per second"),
        (lambda: Poisson(float("nan")), "rate = nan: expected"),
        (lambda: Poisson("5"), "rate = '5': expected"),  # type: ignore[arg-type]
        (lambda: Poisson(True), "rate = True: expected"),
        (lambda: Bursts(1, float("inf"), 9, 1), "burst_rate = inf: expected"),
        (lambda: Bursts(1, 2, "0s", 0), "every = '0s': expected more than zero"),
        (lambda: Bursts(1, 2, "1s", "2s"), "length = '2s': expected at most every = '1s'"),
        (lambda: Bursts(1, 2, "often", 1), "every = 'often': expected seconds"),
        (lambda: Daily(9, 3), "low = 9: expected at most peak = 3"),
        (lambda: Daily(1, 3, "noon"), "peak_at = 'noon': expected seconds"),
        (lambda: Daily(1, 3, 0, 0), "day = 0: expected more than zero"),
        (lambda: Constant(5).scaled(-1), "factor = -1: expected zero or more"),
        (lambda: Trace.scaled(trace([1]), float("inf")), "factor = inf: expected zero or more"),
    ],
)
def test_an_invalid_load_is_refused_with_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(wt.errors.BadValueError, match=message):
        make()
