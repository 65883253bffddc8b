"""Ranges of offsets, and places in columns."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Span: TypeAlias = tuple[int, int]
"""The first offset of a range, and the one behind its last."""

Places: TypeAlias = slice | npt.NDArray[np.intp]
"""Where records are in columns: a slice if they are consecutive, which is so much cheaper."""


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


def minus(span: Span, parts: Iterable[Span]) -> list[Span]:
    """What is left of a range without some of its parts, which are in order."""
    start, end = span
    left = []
    for first, last in parts:
        if start < first:
            left.append((start, first))
        start = max(start, last)
    if start < end:
        left.append((start, end))
    return left


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
