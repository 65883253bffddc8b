"""Shares and how sure one can be of them."""

import pytest

from wavetank.model.shares import Z, needed, wilson


@pytest.mark.parametrize(("met", "runs"), [(0, 1), (0, 10), (3, 10), (48, 50), (50, 50), (1, 1000)])
def test_wilsons_interval_is_where_the_share_is_z_standard_deviations_off(met, runs):
    low, high = wilson(met, runs)
    for end in (low, high):
        if 0 < end < 1:
            off = abs(met / runs - end)
            assert off == pytest.approx(Z * (end * (1 - end) / runs) ** 0.5)
    assert low <= met / runs <= high


def test_without_runs_nothing_is_known():
    assert wilson(0, 0) == (0, 1)


@pytest.mark.parametrize(
    ("share", "runs", "least"),
    [(0.95, 50, 48), (0.95, 100, 95), (0.7, 10, 7), (1, 7, 7), (0.01, 9, 1)],
)
def test_so_many_of_all_runs_must_be_good(share, runs, least):
    assert needed(share, runs) == least
