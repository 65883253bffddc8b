"""Ranges of offsets, and the rows of columns that hold their records.

A range is a pair (start, end) without its end, as Python's ranges and slices are. Whatever has to
be done to many records is done to ranges and to whole rows at once, never record by record.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

OffsetRange: TypeAlias = tuple[int, int]
"""A range of offsets: the first offset, and the offset after the last."""

Rows: TypeAlias = slice | npt.NDArray[np.intp]
"""Rows of a column: a slice if they are consecutive, which is much cheaper, else their indices."""

_NONE: Final[OffsetRange] = (2**63, 2**63)
"""A range after all others."""


def ranges_of(offsets: npt.NDArray[Any]) -> list[OffsetRange]:
    """Group consecutive offsets into ranges; the order is kept."""
    if not len(offsets):
        return []
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts = offsets[np.append(0, ends + 1)]
    lasts = offsets[np.append(ends, len(offsets) - 1)]
    return list(zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))


def merge(spans: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Sort ranges, and join those that touch or overlap."""
    result: list[OffsetRange] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def subtract(spans: Iterable[OffsetRange], parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Subtract ranges from ranges. Both must be sorted and free of overlaps."""
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


def offsets_in(spans: Sequence[OffsetRange]) -> npt.NDArray[np.int64]:
    """List every offset of the given ranges, in the order of the ranges."""
    starts, ends = np.array(spans, np.int64).T
    lengths = ends - starts
    before = lengths.cumsum() - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def rows_where(mask: npt.NDArray[np.bool_], first: int) -> Rows:
    """Select the rows that a mask marks; the mask begins at row `first`."""
    if mask.all():
        return slice(first, first + len(mask))
    return np.flatnonzero(mask) + first


def row_count(rows: Rows) -> int:
    """Count rows."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def row_indices(rows: Rows) -> npt.NDArray[np.intp]:
    """List the index of every row."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
