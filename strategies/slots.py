"""Which slot a record belongs to, and how busy slots and keys are.

A key-shared group shares out 65,536 slots among its consumers; a record goes to the owner of its
key's slot, so that all records of a key are one consumer's as long as the slot stays. Keys are
hashed with 32-bit MurmurHash3 (x86, seed 0), as brokers with key-shared subscriptions do. Records
without a key have no order to keep and go round all slots by their offsets.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import compress
from typing import Any, Final, TypeAlias, TypeGuard

import mmh3
import numpy as np
from numpy.typing import NDArray

from ..model.cursor import SLOTS
from ..model.errors import BadValueError
from .partitioning import key_bytes

Slots: TypeAlias = NDArray[np.uint16]
"""For each record of a batch, its slot."""

Loads: TypeAlias = NDArray[np.float64]
"""For each slot, how many records it has had of late."""

_SLOT: Final = SLOTS - 1
_STRIDE: Final = 40_503
"""SLOTS divided by the golden ratio: consecutive multiples lie far apart, and as it is odd, all
slots have their turn before one comes again."""
_TABLE_END: Final = 10**6
_FORGOTTEN: Final = 0.01
"""A slot with less than this many records left is idle again."""


# Records to slots


def slot_of(key: int | str | bytes) -> int:
    """The slot of all records with this key."""
    return mmh3.hash(key_bytes(key), 0, False) & _SLOT


def keyless_slot(offset: int) -> int:
    """The slot of a record without a key at this offset."""
    return offset * _STRIDE & _SLOT


def slots_of(keys: Any, count: int, first_offset: int) -> Slots:
    """The slots of `count` consecutive records, given their column of keys, or the one they share.

    Numbers below a million, as synthetic load has, cost a table look-up each.
    """
    if keys is None:
        offsets = np.arange(first_offset & _SLOT, (first_offset & _SLOT) + count)
        return (offsets * _STRIDE).astype(np.uint16)  # which keeps the lowest 16 bits
    if not isinstance(keys, tuple | range | np.ndarray):
        return np.full(count, slot_of(keys), np.uint16)
    if len(keys) != count:
        raise BadValueError(f"column keys: got {len(keys)} items, expected {count}")
    if isinstance(keys, range) or _are_numbers(keys):
        return _of_numbers(keys)
    each = (
        keyless_slot(first_offset + index) if key is None else slot_of(key)
        for index, key in enumerate(keys)
    )
    return np.fromiter(each, np.uint16, count)


def _of_numbers(keys: range | NDArray[np.integer[Any]]) -> Slots:
    if not len(keys):
        return np.empty(0, np.uint16)
    ends = (keys[0], keys[-1]) if isinstance(keys, range) else (keys.min(), keys.max())
    if min(ends) >= 0 and max(ends) < _TABLE_END:
        slots: Slots = _number_slots(len(str(max(ends))))[np.asarray(keys)]
        return slots
    listed = keys if isinstance(keys, range) else keys.tolist()
    return np.fromiter(map(_number_slot, listed), np.uint16, len(keys))


def _are_numbers(keys: Any) -> TypeGuard[NDArray[np.integer[Any]]]:
    return isinstance(keys, np.ndarray) and np.issubdtype(keys.dtype, np.integer)


def _number_slot(number: int) -> int:
    """The slot of what is known to be a number, found in a quarter of the time."""
    return mmh3.hash(b"%d" % number, 0, False) & _SLOT


@lru_cache
def _number_slots(digits: int) -> Slots:
    """The slots of all numbers of up to so many digits."""
    shorter = [_number_slots(digits - 1)] if digits > 1 else []
    longest = range(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
    slots = np.concatenate([*shorter, np.fromiter(map(_number_slot, longest), np.uint16)])
    slots.flags.writeable = False
    return slots


# How busy they are


class SlotLoad:
    """Counts the records of each slot, and forgets old ones little by little."""

    def __init__(self) -> None:
        self.loads: Loads = np.zeros(SLOTS)

    def add(self, slots: Slots) -> None:
        """Count records, given each one's slot."""
        np.add.at(self.loads, slots, 1.0)

    def decay(self, factor: float) -> None:
        """Let what was counted up to now weigh this much of what it did."""
        if not 0 <= factor <= 1:
            raise BadValueError(f"factor = {factor!r}: expected a number from 0 to 1")
        self.loads *= factor
        self.loads[self.loads < _FORGOTTEN] = 0.0


class HotKeys:
    """The keys that most records have, in bounded memory (Misra–Gries, a batch at a time).

    When there are more than twice `capacity` keys, the largest count that is not among the first
    `capacity` is taken off all of them, and who has nothing left is forgotten. More than `capacity`
    keys lose that much each time, so together it is never more than total / (capacity + 1): every
    key with more records than that is there, counted at most `missed` too low and never too high.
    """

    def __init__(self, capacity: int = 1_000) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise BadValueError(f"capacity = {capacity!r}: expected a whole number from 1 on")
        self.capacity = capacity
        self.total = 0
        """How many records with a key there were."""
        self.missed = 0
        """By how much a count may be too low; a key that is not there had no more than this."""
        self._counts: dict[Any, int] = {}

    def add(self, keys: Any, count: int) -> None:
        """Count the records of a batch, given its column of keys or the one that all share."""
        if keys is None or not count:
            return
        distinct: Any
        if _are_numbers(keys):
            distinct, counts = np.unique(keys, return_counts=True)
        else:
            counted = _counted(keys, count)
            count -= counted.pop(None, 0)
            distinct, counts = list(counted), np.fromiter(counted.values(), np.int64)
        self.total += count
        known = self._counts
        for key, more in self._hottest(distinct, counts):
            known[key] = known.get(key, 0) + more
        if len(known) > 2 * self.capacity:
            counts = np.fromiter(known.values(), np.int64)
            self._counts = dict(self._hottest(list(known), counts))

    def top(self, n: int) -> list[tuple[Any, int, float]]:
        """The hottest keys with their counts and their shares of all records that have a key."""
        hottest = sorted(self._counts.items(), key=lambda item: -item[1])[:n]
        return [(key, count, count / self.total) for key, count in hottest]

    def _hottest(self, keys: Any, counts: NDArray[np.int64]) -> Iterable[tuple[Any, int]]:
        """As many of these keys as there is room for, with what is left of their counts."""
        if len(keys) > 2 * self.capacity:
            cut = np.partition(counts, -self.capacity - 1)[-self.capacity - 1]
            self.missed += int(cut)
            kept = counts > cut
            keys = keys[kept] if isinstance(keys, np.ndarray) else list(compress(keys, kept))
            counts = counts[kept] - cut
        listed = keys.tolist() if isinstance(keys, np.ndarray) else keys
        return zip(listed, counts.tolist(), strict=True)


def _counted(keys: Any, count: int) -> Counter[Any]:
    if isinstance(keys, np.ndarray):
        return Counter(keys.tolist())
    return Counter(keys) if isinstance(keys, tuple | range) else Counter({keys: count})
