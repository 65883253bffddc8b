"""Compaction: which records it keeps, and how to count offsets once some are missing.

As in Kafka (cleanup.policy=compact) the last record of each key stays, at its old offset, and what
it replaces goes. Keys are the same if Python says so: 7 in an array and 7 in a tuple are.

All records of a log are numbered from 0 on, whatever their offsets, and one array says of each
whether it stays. Keys in arrays of ints are compared by NumPy, others by a dict; only batches that
lose some of their records and keep others are looked into, and they fall into slices.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .batch import Batch
from .errors import BadValueError

_Ints: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]


def compacted(
    batches: Sequence[Batch], up_to: int, tombstones_before_us: int | None
) -> tuple[list[Batch], list[Batch]]:
    """Part the batches of a log into what stays and what goes, both in order.

    Only records below `up_to` go: those of which a later one has the key, wherever it is, and
    tombstones that were appended before a time. A tombstone is a keyed record that says None where
    others of its batch could have said something; a batch without values is synthetic, and is not
    made of tombstones. Records without a key have nothing that could replace them.
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
    """Say of each record whether it is the last of its key, or has none."""
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
            keyless += _note(others, batch, start)
    if arrays:
        places = np.flatnonzero(np.repeat(in_arrays, counts))
        last[places] = False
        last[_last_of_each_int(np.concatenate(arrays), places, others)] = True
    last[keyless] = True
    last[list(others.values())] = True
    return last


def _ints(keys: Any) -> _Ints | None:
    """Give keys as an array of 64-bit ints, if they are a column of nothing else."""
    if type(keys) is range:
        keys = np.arange(keys.start, keys.stop, keys.step)
    if type(keys) is np.ndarray and np.can_cast(keys.dtype, np.int64):
        return keys.astype(np.int64, copy=False)
    return None


def _note(last: dict[Any, int], batch: Batch, start: int) -> list[int]:
    """Note where the keys of a batch were seen last, and list the records that have none."""
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


def _last_of_each_int(keys: _Ints, places: _Ints, others: dict[Any, int]) -> _Ints:
    """Find where each int is for the last time; one that others have too stays at one place."""
    distinct, found = _last_places(keys, places)
    if not others:
        return found
    seen = np.array([others.get(key, -1) for key in distinct.tolist()])
    for key in distinct[(seen >= 0) & (seen < found)].tolist():
        del others[key]
    return found[seen < found]


def _last_places(keys: _Ints, places: _Ints) -> tuple[_Ints, _Ints]:
    """Give each int once, and the last place where it is."""
    lowest = int(keys.min())
    span = int(keys.max()) - lowest + 1
    if span > 2 * len(keys):
        distinct, from_behind = np.unique(keys[::-1], return_index=True)
        return distinct, places[len(keys) - 1 - from_behind]
    # Synthetic keys are numbers from 0 on: a table, where who writes last wins, is several times
    # faster than sorting.
    table = np.full(span, -1)
    table[keys - lowest] = places
    taken = np.flatnonzero(table >= 0)
    return taken + lowest, table[taken]


def _tombstones(batch: Batch) -> list[int]:
    """Find the records that only say that their key is gone."""
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
    """Cut the first batches where records that stay and records that go meet."""
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
    """Where a log has no records, from its first offset on: found and counted by bisection.

    What is appended later leaves no gap, and what is dropped at the front does not matter to who
    counts from a later offset: this stays true until the next compaction.
    """

    def __init__(self, batches: Sequence[Batch], start_offset: int, end_offset: int) -> None:
        # One gap of no length comes first, so that there is one at or below every offset.
        ends_of_runs = [batch.base_offset + batch.count for batch in batches]
        bases = [*(batch.base_offset for batch in batches), end_offset]
        around = zip([start_offset, *ends_of_runs], bases, strict=True)
        pairs = [(start_offset, start_offset), *((a, b) for a, b in around if a < b)]
        self._starts = [start for start, _ in pairs]
        self._ends = [end for _, end in pairs]
        self._missing = list(accumulate((end - start for start, end in pairs), initial=0))
        self._ranks = [a - b for a, b in zip(self._starts, self._missing, strict=False)]

    def skip(self, offset: int) -> int:
        """Give the first offset from this one on that is in no gap."""
        return max(offset, self._ends[bisect_right(self._starts, offset) - 1])

    def rank(self, offset: int) -> int:
        """Count the records below an offset, as if there had been no gaps below the first."""
        index = bisect_right(self._starts, offset) - 1
        return self._ranks[index] + max(0, offset - self._ends[index])

    def after(self, offset: int, count: int) -> int:
        """Give the lowest offset that has so many records between this one and itself."""
        rank = self.rank(offset) + count
        return rank + self._missing[bisect_left(self._ranks, rank)]
