"""Compaction: which records it keeps, and how offsets are counted once some are missing.

As in Kafka (cleanup.policy=compact), the last record of each key stays at its offset, and the
records that it replaces are removed. Keys are equal if Python says so: 7 in an array equals 7 in a
tuple.

For speed, the records of a log are numbered from 0 without gaps, and one array of flags says which
of them stay. Integer keys in arrays are compared by NumPy, others by a dict. Only batches that lose
some of their records and keep others are cut into slices.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import BadValueError
from .batch import Batch

_Ints: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]


def compacted(
    batches: Sequence[Batch], up_to: int, tombstones_before_us: int | None
) -> tuple[list[Batch], list[Batch]]:
    """Separate the batches of a log into those kept and those removed, both in order.

    Only records below `up_to` are removed: those with a later record of the same key anywhere in
    the log, and tombstones appended before `tombstones_before_us`. A tombstone is a record with a
    key and the value `None`. A batch without a column of values is synthetic, and its records are
    not tombstones. Records without a key stay.
    """
    reach = bisect_left(batches, up_to, key=lambda batch: batch.base_offset)
    if not reach:
        return list(batches), []
    below = batches[:reach]
    counts = np.fromiter((batch.count for batch in batches), np.int64, len(batches))
    starts = np.cumsum(counts) - counts
    stays = _last_of_each_key(batches, counts, starts)
    if tombstones_before_us is not None:
        tombstones = [
            start + index
            for batch, start in zip(below, starts.tolist(), strict=False)
            if batch.append_time_us < tombstones_before_us
            for index in _tombstones(batch)
        ]
        stays[tombstones] = False
    stays[starts[reach - 1] + up_to - below[-1].base_offset :] = True
    return _parted(batches, reach, starts, stays)


def _last_of_each_key(batches: Sequence[Batch], counts: _Ints, starts: _Ints) -> _Flags:
    """Flag each record that is the last of its key, or has no key."""
    last = np.ones(int(counts.sum()), np.bool_)
    in_arrays = np.zeros(len(batches), np.bool_)
    arrays: list[_Ints] = []
    others: dict[Any, int] = {}
    keyless: list[int] = []
    for index, (batch, start) in enumerate(zip(batches, starts.tolist(), strict=True)):
        keys = batch.keys
        if keys is None:
            continue
        ints = _ints(keys)
        if ints is not None:
            in_arrays[index] = True
            arrays.append(ints)
        else:
            last[start : start + batch.count] = False
            keyless += _update_last(others, batch, start)
    if arrays:
        positions = np.flatnonzero(np.repeat(in_arrays, counts))
        last[positions] = False
        last[_last_of_each_int(np.concatenate(arrays), positions, others)] = True
    last[keyless] = True
    last[list(others.values())] = True
    return last


def _ints(keys: Any) -> _Ints | None:
    """Return keys as an array of 64-bit integers, or `None` if they are not integers."""
    if type(keys) is range:
        keys = np.arange(keys.start, keys.stop, keys.step)
    if type(keys) is np.ndarray and np.can_cast(keys.dtype, np.int64):
        return keys.astype(np.int64, copy=False)
    return None


def _update_last(last: dict[Any, int], batch: Batch, start: int) -> list[int]:
    """Update where each key was seen last, and return the records of the batch without a key."""
    keys = batch.keys
    column = type(keys) in (tuple, range, np.ndarray)
    if type(keys) is np.ndarray:
        keys = keys.tolist()
    try:
        if not column:
            last[keys] = start + batch.count - 1
            return []
        last.update(zip(keys, range(start, start + batch.count), strict=True))
    except TypeError:
        raise BadValueError(f"keys of {batch!r}: got {short(keys)}, expected hashable") from None
    if last.pop(None, None) is None:
        return []
    return [start + index for index, key in enumerate(keys) if key is None]


def _last_of_each_int(keys: _Ints, positions: _Ints, others: dict[Any, int]) -> _Ints:
    """Find the last position of each integer key, unless `others` have a later one.

    A key that `others` have at an earlier position is removed from them.
    """
    distinct, found = _last_positions(keys, positions)
    if not others:
        return found
    seen = np.array([others.get(key, -1) for key in distinct.tolist()])
    for key in distinct[(seen >= 0) & (seen < found)].tolist():
        del others[key]
    return found[seen < found]


def _last_positions(keys: _Ints, positions: _Ints) -> tuple[_Ints, _Ints]:
    """Return the distinct integers, and the last position of each."""
    lowest = int(keys.min())
    span = int(keys.max()) - lowest + 1
    if span > 2 * len(keys):
        distinct, from_behind = np.unique(keys[::-1], return_index=True)
        return distinct, positions[len(keys) - 1 - from_behind]
    # Synthetic keys are small numbers. A table in which the last write wins is several times
    # faster than sorting.
    table = np.full(span, -1)
    table[keys - lowest] = positions
    taken = np.flatnonzero(table >= 0)
    return taken + lowest, table[taken]


def _tombstones(batch: Batch) -> list[int]:
    """Return the indices of the tombstones of a batch."""
    keys, values = batch.keys, batch.values
    objects = type(values) is np.ndarray and values.dtype == object
    if keys is None or not (objects or type(values) is tuple):
        return []
    nothing = [index for index, value in enumerate(values) if value is None]
    if type(keys) is tuple or type(keys) is np.ndarray:
        return [index for index in nothing if keys[index] is not None]
    return nothing


def _parted(
    batches: Sequence[Batch], reach: int, starts: _Ints, stays: _Flags
) -> tuple[list[Batch], list[Batch]]:
    """Cut the first batches between records that stay and records that are removed."""
    kept: list[Batch] = []
    gone: list[Batch] = []
    staying = np.add.reduceat(stays, starts, dtype=np.int64)[:reach].tolist()
    for batch, start, count in zip(batches, starts.tolist(), staying, strict=False):
        if count == batch.count:
            kept.append(batch)
        elif count == 0:
            gone.append(batch)
        else:
            flags = stays[start : start + batch.count]
            edges = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
            runs = [batch[a:b] for a, b in pairwise([0, *edges, batch.count])]
            first = int(flags[0])
            kept += runs[1 - first :: 2]
            gone += runs[first::2]
    kept += batches[reach:]
    return kept, gone


class Gaps:
    """The ranges of offsets without records in a compacted log, searched by bisection.

    Valid until the next compaction: dropping records at the front does not change counts from a
    later offset on.
    """

    def __init__(self, batches: Sequence[Batch], start_offset: int, end_offset: int) -> None:
        # An empty gap comes first, so that there is one at or below every offset.
        ends_of_runs = [batch.base_offset + batch.count for batch in batches]
        bases = [*(batch.base_offset for batch in batches), end_offset]
        around = zip([start_offset, *ends_of_runs], bases, strict=True)
        pairs = [(start_offset, start_offset), *((a, b) for a, b in around if a < b)]
        self._starts = [start for start, _ in pairs]
        self._ends = [end for _, end in pairs]
        self._missing = list(accumulate((end - start for start, end in pairs), initial=0))
        self._ranks = [a - b for a, b in zip(self._starts, self._missing, strict=False)]

    def add(self, start: int, end: int) -> None:
        """Add a range without records that follows all others; it may touch the last one."""
        if start == self._ends[-1]:
            start = self._pop()
        self._push(start, end)

    def cut(self, end: int) -> None:
        """Forget what is not below an offset: the log ends there."""
        while self._ends[-1] > end:
            start = self._pop()
            if start < end or not self._starts:
                self._push(start, end)

    def _pop(self) -> int:
        for column in (self._ends, self._missing, self._ranks):
            column.pop()
        return self._starts.pop()

    def _push(self, start: int, end: int) -> None:
        before = self._missing[-1]
        self._starts.append(start)
        self._ends.append(end)
        self._ranks.append(start - before)
        self._missing.append(before + end - start)

    def skip(self, offset: int) -> int:
        """Return the first offset, from this one on, that is not in a gap."""
        return max(offset, self._ends[bisect_right(self._starts, offset) - 1])

    def rank(self, offset: int) -> int:
        """Count the records below an offset, as if there were no gaps before the log's start."""
        index = bisect_right(self._starts, offset) - 1
        return self._ranks[index] + max(0, offset - self._ends[index])

    def after(self, offset: int, count: int) -> int:
        """Return the lowest offset with `count` records between `offset` and itself."""
        rank = self.rank(offset) + count
        return rank + self._missing[bisect_left(self._ranks, rank)]
