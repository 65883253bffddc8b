"""Confidence intervals of shares."""

import pytest

from wavetank.model.wilson import Z, needed, not_excluded, proving_runs, wilson


@pytest.mark.parametrize(("met", "runs"), [(0, 1), (0, 10), (3, 10), (48, 50), (50, 50), (1, 1000)])
def test_the_ends_of_the_interval_are_z_standard_deviations_from_the_share(met, runs):
    low, high = wilson(met, runs)
    for end in (low, high):
        if 0 < end < 1:
            off = abs(met / runs - end)
            assert off == pytest.approx(Z * (end * (1 - end) / runs) ** 0.5)
    assert low <= met / runs <= high


def test_the_interval_without_runs_is_zero_to_one():
    assert wilson(0, 0) == (0, 1)


@pytest.mark.parametrize(
    ("share", "runs", "least"),
    [(0.95, 50, 48), (0.95, 100, 95), (0.7, 10, 7), (1, 7, 7), (0.01, 9, 1)],
)
def test_the_number_of_good_runs_needed_is_rounded_up(share, runs, least):
    assert needed(share, runs) == least


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.95, 1])
@pytest.mark.parametrize("runs", [1, 2, 10, 50, 300])
def test_fewer_good_runs_than_the_least_not_excluded_have_an_interval_below_the_share(share, runs):
    least = not_excluded(share, runs)
    assert least <= needed(share, runs)
    assert wilson(least, runs)[1] == pytest.approx(share) or wilson(least, runs)[1] > share
    assert all(wilson(met, runs)[1] < share for met in range(least))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.95, 0.999])
def test_the_proving_runs_are_the_fewest_whose_interval_begins_at_the_share(share):
    runs = proving_runs(share)
    assert wilson(runs, runs)[0] >= share
    assert wilson(runs - 1, runs - 1)[0] < share
    assert proving_runs(1) is None
