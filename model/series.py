"""Numbers over time that grow as a run goes on: one for each second, and how durations spread.

Durations go into buckets whose ends are 2 % apart, so that what is read from them is at most 1 %
off, whatever its size. They are kept apart by when they were seen: by the second in the first two
minutes, by the minute in the first two hours, then by the hour. So what a warm-up did can be left
out, and a day takes no more room than a minute.
"""

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from .durations import SECOND_US

Ints: TypeAlias = npt.NDArray[np.int64]

RATIO: Final = 1.02
_LOG_RATIO: Final = math.log(RATIO)
_BUCKETS: Final = 1_400
"""Enough for ten days; what takes longer counts as that."""

_FINE_S: Final = 120
_MIDDLE_S: Final = 7_200
_MIDDLE: Final = _FINE_S + (_MIDDLE_S - _FINE_S) // 60


class Series:
    """A whole number for each second of a run, 0 unless something has been put there."""

    def __init__(self) -> None:
        self._values: Ints = np.zeros(64, np.int64)
        self._used = 0

    def add(self, seconds: Ints, amounts: Ints) -> None:
        """Add amounts to seconds, each of which may be named many times."""
        if len(seconds):
            self._reach(int(seconds.max()) + 1)
            np.add.at(self._values, seconds, amounts)

    def add_from(self, first: int, amounts: Ints) -> None:
        """Add to consecutive seconds."""
        self._reach(first + len(amounts))
        self._values[first : first + len(amounts)] += amounts

    def raise_from(self, first: int, amounts: Ints) -> None:
        """Raise consecutive seconds to these amounts, where they are less."""
        self._reach(first + len(amounts))
        part = self._values[first : first + len(amounts)]
        np.maximum(part, amounts, out=part)

    def total(self) -> int:
        """All of it."""
        return int(self._values.sum())

    def values(self, seconds: int) -> Ints:
        """The numbers of the first seconds, and of all that have one."""
        self._reach(max(seconds, self._used))
        return self._values[: self._used]

    def _reach(self, seconds: int) -> None:
        if seconds > len(self._values):
            longer = np.zeros(2 * seconds, np.int64)
            longer[: len(self._values)] = self._values
            self._values = longer
        self._used = max(self._used, seconds)


class Spread:
    """How durations are spread, each with a weight, by when they were seen."""

    def __init__(self) -> None:
        self._counts = np.zeros((1, _BUCKETS), np.int64)
        self._longest = np.zeros(1, np.int64)

    def add(self, times_us: Ints, durations_us: Ints, weights: Ints) -> None:
        """Take durations in, seen at these times."""
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
        """For each slice of time: its start and longest duration, in µs, buckets and counts."""
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
    """Number the buckets of durations; 0 is for nothing at all."""
    known = np.log(np.maximum(durations_us, 1)) / _LOG_RATIO
    return np.where(durations_us > 0, np.minimum(known.astype(np.int64) + 1, _BUCKETS - 1), 0)


def middle_of(bucket: int) -> float:
    """The duration that stands for all of a bucket, in µs: at most 1 % from each."""
    return float(RATIO ** (bucket - 0.5)) if bucket else 0.0


def slice_of(times_us: Ints) -> Ints:
    """Number the slices of time."""
    seconds = times_us // SECOND_US
    middle = _FINE_S + (seconds - _FINE_S) // 60
    coarse = _MIDDLE + (seconds - _MIDDLE_S) // 3_600
    return np.where(seconds < _FINE_S, seconds, np.where(seconds < _MIDDLE_S, middle, coarse))


def slice_start_us(number: int) -> int:
    """When a slice of time begins."""
    if number < _FINE_S:
        return number * SECOND_US
    if number < _MIDDLE:
        return (_FINE_S + (number - _FINE_S) * 60) * SECOND_US
    return (_MIDDLE_S + (number - _MIDDLE) * 3_600) * SECOND_US
