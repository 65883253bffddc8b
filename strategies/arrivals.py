"""Arrival processes: when the records of a running producer arrive.

Times are those of the run, which starts at 0. A process is asked about consecutive windows
[start, end) of any width and keeps no state. `Constant` and `Trace` give the same arrivals however
the time is divided into windows. The others are Poisson processes, independent from window to
window, with a constant, bursting or daily rate.
"""

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Final, Protocol, Self, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ..model.durations import SECOND_US, Duration, to_us
from ..model.errors import BadValueError

Times: TypeAlias = NDArray[np.int64]
"""Sorted times in µs."""


class Arrivals(Protocol):
    """An arrival process."""

    def count_in(self, start_us: int, end_us: int, random: np.random.Generator) -> int:
        """Return the number of records that arrive from `start_us` on and before `end_us`."""

    def times_in(self, start_us: int, end_us: int, random: np.random.Generator) -> Times:
        """Return the times of the arrivals; as many as `count_in` with the same random state."""

    def scaled(self, factor: float) -> Self:
        """Return the same process with its rate multiplied by a factor."""


def mean_rate(arrivals: Arrivals, start_us: int, end_us: int) -> float:
    """Return the mean of records per second from `start_us` to `end_us`.

    That of a random process is its expected value; that of a user's own, what it draws with a
    fixed seed.
    """
    if isinstance(arrivals, _Random):
        count = arrivals._expected(end_us) - arrivals._expected(start_us)
    else:
        count = arrivals.count_in(start_us, end_us, np.random.default_rng(0))
    return count * SECOND_US / (end_us - start_us)


_LEAST_RATE: Final = 1e-6
_MOST_RATE: Final = 1e9
_INT64_MAX: Final = 2**63 - 1


def _rate(_: object, field: "attrs.Attribute[float]", value: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (value == 0 or _LEAST_RATE <= value <= _MOST_RATE):
        raise BadValueError(
            f"{field.name} = {value!r}: expected records per second, "
            f"0 or from {_LEAST_RATE:g} to {_MOST_RATE:g}"
        )


def _checked(factor: float) -> float:
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    if not number or not 0 <= factor < math.inf:
        raise BadValueError(f"factor = {factor!r}: expected zero or more")
    return factor


@attrs.frozen
class Constant:
    """One record every 1/rate seconds, the first at 0."""

    rate: float = attrs.field(validator=_rate)
    """Records per second."""

    def count_in(self, start_us: int, end_us: int, random: np.random.Generator) -> int:
        """Return the number of records that arrive from `start_us` on and before `end_us`."""
        return self._before(end_us) - self._before(start_us)

    def times_in(self, start_us: int, end_us: int, random: np.random.Generator) -> Times:
        """Return the times of the arrivals; as many as `count_in` with the same random state."""
        first, last = self._before(start_us), self._before(end_us)
        if first == last:
            return np.empty(0, np.int64)
        return _multiples(first, last, SECOND_US / _exact(self.rate))

    def scaled(self, factor: float) -> Self:
        """Return the same arrivals at a rate multiplied by `factor`."""
        return attrs.evolve(self, rate=self.rate * _checked(factor))

    def _before(self, time_us: int) -> int:
        """Count the arrivals before a time. Number k, from 0, is at k/rate, rounded down."""
        rate = _exact(self.rate)
        return -(-time_us * rate.numerator // (rate.denominator * SECOND_US))


@lru_cache
def _exact(rate: float) -> Fraction:
    """Return the rate as a fraction: 0.1 becomes 1/10. Small integers also calculate fast."""
    return Fraction(rate).limit_denominator(10**6)


def _multiples(first: int, last: int, step: Fraction) -> Times:
    """Multiply the integers from first to last - 1 by a step, rounded down, without floats."""
    whole, part = divmod(step.numerator, step.denominator)
    room = _INT64_MAX // step.denominator - 1
    pieces = []
    for start in range(first, last, room):
        index = np.arange(min(room, last - start))
        base, rest = divmod(start * step.numerator, step.denominator)
        pieces.append(base + index * whole + (rest + index * part) // step.denominator)
    return np.concatenate(pieces)


class _Random(ABC):
    """A Poisson process; the subclass defines the expected number of arrivals."""

    __slots__ = ()

    @abstractmethod
    def _expected(self, time_us: int) -> float:
        """Return the expected number of arrivals before a time, up to a constant."""

    @abstractmethod
    def _knots(self, start_us: int, end_us: int) -> Iterable[int]:
        """Return times inside a window between which the rate is (nearly) constant."""

    def count_in(self, start_us: int, end_us: int, random: np.random.Generator) -> int:
        """Return the number of records that arrive from `start_us` on and before `end_us`."""
        return int(random.poisson(max(0.0, self._expected(end_us) - self._expected(start_us))))

    def times_in(self, start_us: int, end_us: int, random: np.random.Generator) -> Times:
        """Return the times of the arrivals; as many as `count_in` with the same random state."""
        count = self.count_in(start_us, end_us, random)
        knots = [start_us, *self._knots(start_us, end_us), end_us]
        expected = [self._expected(knot) for knot in knots]
        # Given their number, arrivals are independent and uniform in the integral of the rate.
        times = np.interp(random.uniform(expected[0], expected[-1], count), expected, knots)
        return np.sort(np.minimum(times.astype(np.int64), end_us - 1))


@attrs.frozen
class Poisson(_Random):
    """Independent arrivals with a constant mean rate."""

    rate: float = attrs.field(validator=_rate)
    """Mean of records per second."""

    def scaled(self, factor: float) -> Self:
        """Return the same arrivals at a rate multiplied by `factor`."""
        return attrs.evolve(self, rate=self.rate * _checked(factor))

    def _expected(self, time_us: int) -> float:
        return self.rate * time_us / SECOND_US

    def _knots(self, start_us: int, end_us: int) -> Iterable[int]:
        return ()


@attrs.frozen
class Bursts(_Random):
    """Bursts at regular intervals, the first at 0, with a lower or higher rate in between."""

    rate: float = attrs.field(validator=_rate)
    """Mean of records per second between bursts."""
    burst_rate: float = attrs.field(validator=_rate)
    """Mean of records per second during a burst."""
    every: Duration
    """Time from the start of a burst to the start of the next."""
    length: Duration
    """Duration of a burst."""
    _every_us: int = attrs.field(init=False, repr=False, eq=False)
    _length_us: int = attrs.field(init=False, repr=False, eq=False)

    @_every_us.default
    def _(self) -> int:
        return _positive_us(self.every, "every")

    @_length_us.default
    def _(self) -> int:
        length_us = to_us(self.length, "length")
        if length_us > self._every_us:
            raise BadValueError(
                f"length = {self.length!r}: expected at most every = {self.every!r}"
            )
        return length_us

    def scaled(self, factor: float) -> Self:
        """Return the same arrivals at a rate multiplied by `factor`."""
        factor = _checked(factor)
        return attrs.evolve(self, rate=self.rate * factor, burst_rate=self.burst_rate * factor)

    def _expected(self, time_us: int) -> float:
        periods, rest_us = divmod(time_us, self._every_us)
        burst_us = periods * self._length_us + min(rest_us, self._length_us)
        return (self.burst_rate * burst_us + self.rate * (time_us - burst_us)) / SECOND_US

    def _knots(self, start_us: int, end_us: int) -> Iterable[int]:
        first = start_us // self._every_us * self._every_us
        for start in range(first, end_us, self._every_us):
            yield from (k for k in (start, start + self._length_us) if start_us < k < end_us)


@attrs.frozen
class Daily(_Random):
    """A mean rate that follows a cosine between `low` and `peak` every day."""

    low: float = attrs.field(validator=_rate)
    """Lowest mean of records per second."""
    peak: float = attrs.field(validator=_rate)
    """Highest mean of records per second."""
    peak_at: Duration = "14h"
    """Time of the peak, since the start of the day."""
    day: Duration = "24h"
    """Length of a day."""
    start_at: Duration = 0
    """Time of day at which the run starts. 0: at the start of the day."""
    _peak_at_us: int = attrs.field(init=False, repr=False, eq=False)
    _day_us: int = attrs.field(init=False, repr=False, eq=False)
    _start_at_us: int = attrs.field(init=False, repr=False, eq=False)

    @_peak_at_us.default
    def _(self) -> int:
        return to_us(self.peak_at, "peak_at")

    @_day_us.default
    def _(self) -> int:
        return _positive_us(self.day, "day")

    @_start_at_us.default
    def _(self) -> int:
        return to_us(self.start_at, "start_at")

    def __attrs_post_init__(self) -> None:
        if self.low > self.peak:
            raise BadValueError(f"low = {self.low!r}: expected at most peak = {self.peak!r}")

    def scaled(self, factor: float) -> Self:
        """Return the same arrivals at a rate multiplied by `factor`."""
        factor = _checked(factor)
        return attrs.evolve(self, low=self.low * factor, peak=self.peak * factor)

    def _expected(self, time_us: int) -> float:
        since_peak_us = time_us + self._start_at_us - self._peak_at_us
        angle = math.tau * (since_peak_us % self._day_us) / self._day_us
        swing_us = (self.peak - self.low) / 2 * math.sin(angle) * self._day_us / math.tau
        return ((self.low + self.peak) / 2 * time_us + swing_us) / SECOND_US

    def _knots(self, start_us: int, end_us: int) -> Iterable[int]:
        minute_us = max(
            1, self._day_us // 1_440
        )  # within which the cosine is linear up to a part in 10⁵
        return range(start_us + minute_us, end_us, minute_us)


def _positive_us(duration: Duration, what: str) -> int:
    microseconds = to_us(duration, what)
    if not microseconds:
        raise BadValueError(f"{what} = {duration!r}: expected more than zero")
    return microseconds


@attrs.frozen
class Trace:
    """Arrivals from a recording, made with `trace`. There are none before and after it."""

    times_us: Times = attrs.field(eq=attrs.cmp_using(eq=np.array_equal))
    """Times of arrivals, sorted."""
    totals: NDArray[np.int64] = attrs.field(eq=attrs.cmp_using(eq=np.array_equal))
    """Number of records that had arrived before each of these times, and at the end."""
    factor: float = 1.0
    """Factor on each total, which is then rounded down."""

    def count_in(self, start_us: int, end_us: int, random: np.random.Generator) -> int:
        """Return the number of records that arrive from `start_us` on and before `end_us`."""
        _, totals = self._scaled_totals(start_us, end_us)
        return int(totals[-1] - totals[0])

    def times_in(self, start_us: int, end_us: int, random: np.random.Generator) -> Times:
        """Return the times of the arrivals; as many as `count_in` with the same random state."""
        times_us, totals = self._scaled_totals(start_us, end_us)
        return np.repeat(times_us, np.diff(totals))

    def scaled(self, factor: float) -> Self:
        """Return the same arrivals at a rate multiplied by `factor`."""
        return attrs.evolve(self, factor=self.factor * _checked(factor))

    def _scaled_totals(self, start_us: int, end_us: int) -> tuple[Times, NDArray[np.int64]]:
        first, last = np.searchsorted(self.times_us, [start_us, end_us])
        totals = np.floor(self.totals[first : last + 1] * self.factor).astype(np.int64)
        return self.times_us[first:last], totals


def trace(
    source: str
    | PathLike[str]
    | Sequence[float]
    | Sequence[tuple[float, int]]
    | NDArray[np.number],
) -> Trace:
    """Make a `Trace` of times in seconds since the start of the run, or of rows (time, count).

    They need not be sorted. A path names a text file with one such row in each line, the count
    after a comma; empty lines, comments after # and a heading that starts with "time" are skipped.
    """
    if isinstance(source, str | PathLike):
        places, rows = _read_rows(Path(source))
    else:
        places, rows = [], _as_rows(source)
    times, counts = rows.T
    good = np.isfinite(rows).all(axis=1) & (rows >= 0).all(axis=1) & (counts == np.floor(counts))
    if not good.all():
        index = int(np.argmin(good))
        place = places[index] if places else f"trace, row {index}"
        raise BadValueError(
            f"{place}: time {times[index]:g}, count {counts[index]:g}: "
            "expected zero or more seconds and a whole number of records"
        )
    order = np.argsort(times, kind="stable")
    totals = np.concatenate([[0], np.cumsum(counts[order])])
    return Trace(np.rint(times[order] * SECOND_US).astype(np.int64), totals.astype(np.int64))


def _as_rows(source: object) -> NDArray[np.float64]:
    """Convert either form of a trace to rows (time, count)."""
    try:
        rows = np.asarray(source, np.float64)
    except (TypeError, ValueError):
        rows = np.empty((0, 0, 0))
    if rows.ndim == 1:
        return np.column_stack([rows, np.ones(len(rows))])
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise BadValueError("trace: expected times in seconds, or rows of a time and a count")
    return rows


def _read_rows(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the rows of a file, and the place of each in the file, for errors."""
    places, rows = [], []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for number, cells in enumerate(csv.reader(line.partition("#")[0] for line in file), 1):
            heading = number == 1 and bool(cells) and cells[0].strip().lower().startswith("time")
            if heading or not any(cell.strip() for cell in cells):
                continue
            try:
                time, count = map(float, cells if len(cells) > 1 else [*cells, "1"])
            except ValueError:
                raise BadValueError(
                    f"{path}, line {number}: {','.join(cells)!r}: "
                    "expected a time in seconds, or a time and a count"
                ) from None
            places.append(f"{path}, line {number}")
            rows.append((time, count))
    return places, np.array(rows, np.float64).reshape(-1, 2)
