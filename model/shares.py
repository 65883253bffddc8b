"""How sure one can be of a share that was seen in some runs."""

from math import ceil, sqrt
from typing import Final

Z: Final = 1.959963984540054
"""Of the normal distribution: 95 % lie within so many standard deviations."""


def wilson(met: int, runs: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share: where it may be if `met` of `runs` is what was seen.

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
    """How many of all runs must be good for the share to be reached."""
    return ceil(round(share * runs, 9))
