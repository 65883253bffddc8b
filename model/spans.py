"""Ranges of offsets, and places in columns."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Span: TypeAlias = tuple[int, int]
"""The first offset of a range, and the one behind its last."""

Places: TypeAlias = slice | npt.NDArray[np.intp]
"""Where records are in columns: a slice if they are consecutive, which is so much cheaper."""

_NONE: Final[Span] = (2**63, 2**63)
"""A range behind all others."""


def runs(offsets: npt.NDArray[Any]) -> list[Span]:
    """Ranges of consecutive numbers."""
    if not len(offsets):
        return []
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.append(0, ends + 1)]
    lasts = offsets[np.append(ends, len(offsets) - 1)]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Put ranges in order, and those together that touch or overlap."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def minus(spans: Iterable[Span], parts: Iterable[Span]) -> list[Span]:
    """What is left of ranges without some parts of them; both are in order and do not overlap."""
    left = []
    rest = iter(parts)
    first, last = next(rest, _NONE)
    for start, end in spans:
        while first < end:
            if start < first:
                left.append((start, first))
            start = max(start, last)
            if last > end:
                break
            first, last = next(rest, _NONE)
        if start < end:
            left.append((start, end))
    return left


def numbers_in(spans: Sequence[Span]) -> npt.NDArray[np.int64]:
    """All numbers of ranges, one by one, in their order."""
    starts, ends = np.array(spans, np.int64).T
    lengths = ends - starts
    before = lengths.cumsum() - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def selected(mask: npt.NDArray[np.bool_], low: int) -> Places:
    """The places of what a mask selects, which begins at `low`."""
    if mask.all():
        return slice(low, low + len(mask))
    return np.flatnonzero(mask) + low


def count_of(places: Places) -> int:
    """How many places there are."""
    return places.stop - places.start if isinstance(places, slice) else len(places)


def each(places: Places) -> npt.NDArray[np.intp]:
    """All places one by one."""
    return np.arange(places.start, places.stop) if isinstance(places, slice) else places
