"""Series and histograms that grow while a run goes on.

A series has a number for each second. A histogram counts durations in buckets whose bounds are 2 %
apart, so that values read from it are at most 1 % off, whatever their size. It keeps separate
counts for slices of time: seconds in the first two minutes, minutes in the first two hours, then
hours. A warm-up can therefore be left out, and a day needs little more memory than a minute.
"""

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..durations import SECOND_US

Ints: TypeAlias = npt.NDArray[np.int64]

RATIO: Final = 1.02
"""Upper bound of a bucket divided by its lower bound."""
_LOG_RATIO: Final = math.log(RATIO)
_BUCKETS: Final = 1_400
"""Enough for ten days; longer durations are counted in the last bucket."""

_FINE_S: Final = 120
_MIDDLE_S: Final = 7_200
_MIDDLE: Final = _FINE_S + (_MIDDLE_S - _FINE_S) // 60


class Series:
    """A whole number for each second of a run, initially 0."""

    def __init__(self) -> None:
        self._values: Ints = np.zeros(64, np.int64)
        self._used = 0

    def add(self, seconds: Ints, amounts: Ints) -> None:
        """Add amounts to seconds; a second may occur several times."""
        if len(seconds):
            self._reach(int(seconds.max()) + 1)
            np.add.at(self._values, seconds, amounts)

    def add_from(self, first: int, amounts: Ints) -> None:
        """Add amounts to consecutive seconds."""
        self._reach(first + len(amounts))
        self._values[first : first + len(amounts)] += amounts

    def raise_from(self, first: int, amounts: Ints) -> None:
        """Raise consecutive seconds to at least these amounts."""
        self._reach(first + len(amounts))
        part = self._values[first : first + len(amounts)]
        np.maximum(part, amounts, out=part)

    def total(self) -> int:
        """Return the sum of all seconds."""
        return int(self._values.sum())

    def values(self, seconds: int) -> Ints:
        """Return the numbers of all seconds so far, and of at least the first `seconds`."""
        self._reach(max(seconds, self._used))
        return self._values[: self._used]

    def _reach(self, seconds: int) -> None:
        if seconds > len(self._values):
            longer = np.zeros(2 * seconds, np.int64)
            longer[: len(self._values)] = self._values
            self._values = longer
        self._used = max(self._used, seconds)


class DurationHistogram:
    """Counts of durations in buckets, for each slice of time."""

    def __init__(self) -> None:
        self._counts = np.zeros((1, _BUCKETS), np.int64)
        self._longest = np.zeros(1, np.int64)

    def add(self, times_us: Ints, durations_us: Ints, weights: Ints) -> None:
        """Count durations, each with a weight, in the slices of these times."""
        if not len(times_us):
            return
        slices = slice_of(times_us)
        last = int(slices.max())
        if last >= len(self._counts):
            more = last + 1
            self._counts = np.concatenate((self._counts, np.zeros((more, _BUCKETS), np.int64)))
            self._longest = np.concatenate((self._longest, np.zeros(more, np.int64)))
        cells = slices * _BUCKETS + bucket_of(durations_us)
        np.add.at(self._counts.reshape(-1), cells, weights)
        np.maximum.at(self._longest, slices, np.where(weights > 0, durations_us, 0))

    def slices(self) -> list[tuple[int, int, list[int], list[int]]]:
        """Return for each slice with counts: start and longest duration in µs, buckets, counts."""
        found = []
        for number in np.flatnonzero(self._counts.any(axis=1)).tolist():
            counts = self._counts[number]
            buckets = np.flatnonzero(counts)
            found.append(
                (
                    slice_start_us(number),
                    int(self._longest[number]),
                    buckets.tolist(),
                    counts[buckets].tolist(),
                )
            )
        return found


def bucket_of(durations_us: Ints) -> npt.NDArray[Any]:
    """Return the number of each duration's bucket; 0 is for the duration 0."""
    known = np.log(np.maximum(durations_us, 1)) / _LOG_RATIO
    return np.where(durations_us > 0, np.minimum(known.astype(np.int64) + 1, _BUCKETS - 1), 0)


def middle_of(bucket: int) -> float:
    """Return the duration that represents a bucket, in µs: at most 1 % from any in it."""
    return float(RATIO ** (bucket - 0.5)) if bucket else 0.0


def slice_of(times_us: Ints) -> Ints:
    """Return the number of each time's slice."""
    seconds = times_us // SECOND_US
    middle = _FINE_S + (seconds - _FINE_S) // 60
    coarse = _MIDDLE + (seconds - _MIDDLE_S) // 3_600
    return np.where(seconds < _FINE_S, seconds, np.where(seconds < _MIDDLE_S, middle, coarse))


def slice_start_us(number: int) -> int:
    """Return the start of a slice of time."""
    if number < _FINE_S:
        return number * SECOND_US
    if number < _MIDDLE:
        return (_FINE_S + (number - _FINE_S) * 60) * SECOND_US
    return (_MIDDLE_S + (number - _MIDDLE) * 3_600) * SECOND_US
