"""Confidence intervals of the share of runs that meet an objective."""

from math import ceil, sqrt
from typing import Final

Z: Final = 1.959963984540054
"""Standard deviations within which 95 % of a normal distribution lie."""


def wilson(met: int, runs: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a share, when `met` of `runs` have met it.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), with p = met/runs and n = runs.
    """
    if runs == 0:
        return 0.0, 1.0
    share = met / runs
    middle = share + Z * Z / (2 * runs)
    width = Z * sqrt(share * (1 - share) / runs + Z * Z / (4 * runs * runs))
    whole = 1 + Z * Z / runs
    return max(0.0, (middle - width) / whole), min(1.0, (middle + width) / whole)


def needed(share: float, runs: int) -> int:
    """Return how many of all runs must be good to reach a share."""
    return ceil(round(share * runs, 9))


def not_excluded(share: float, runs: int) -> int:
    """Return the least number of good runs whose interval still reaches a share."""
    return next(met for met in range(runs + 1) if round(wilson(met, runs)[1], 9) >= share)


def proving_runs(share: float) -> int | None:
    """Return how many runs, all of them good, have an interval above a share; `None` for 1.

    With n of n good runs the interval begins at n / (n + z²).
    """
    return None if share >= 1 else ceil(round(Z * Z * share / (1 - share), 9))
