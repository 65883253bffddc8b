"""Slots of a key-shared group: the slot of each record, and the load of slots and keys.

A key-shared group divides 65,536 slots among its consumers. A record goes to the owner of its key's
slot, so all records of a key go to one consumer as long as the slot does not move. Keys are hashed
with 32-bit MurmurHash3 (x86, seed 0), as brokers with key-shared subscriptions do. Records without
a key have no order to keep and are spread over all slots by their offsets.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import compress
from typing import Any, Final, TypeAlias, TypeGuard

import mmh3
import numpy as np
from numpy.typing import NDArray

from ..model.errors import BadValueError
from ..model.log.cursor import SLOTS
from .partitioning import key_bytes

Slots: TypeAlias = NDArray[np.uint16]
"""The slot of each record of a batch."""

Loads: TypeAlias = NDArray[np.float64]
"""The recent number of records of each slot."""

_SLOT: Final = SLOTS - 1
_STRIDE: Final = 40_503
"""SLOTS divided by the golden ratio: consecutive multiples are far apart. It is odd, so every slot
is used once before any is used again."""
_TABLE_END: Final = 10**6
_FORGOTTEN: Final = 0.01
"""A slot with a load below this counts as idle."""


# Slots of records


def slot_of(key: int | str | bytes) -> int:
    """Return the slot of a key."""
    return mmh3.hash(key_bytes(key), 0, False) & _SLOT


def keyless_slot(offset: int) -> int:
    """Return the slot of a record without a key, by its offset."""
    return offset * _STRIDE & _SLOT


def slots_of(keys: Any, count: int, first_offset: int) -> Slots:
    """Return the slots of `count` consecutive records with a column of keys, or one shared key.

    For numbers below a million, as synthetic load has, this is a table look-up.
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
    """Return the slot of a number; four times as fast as `slot_of`."""
    return mmh3.hash(b"%d" % number, 0, False) & _SLOT


@lru_cache
def _number_slots(digits: int) -> Slots:
    """Return the slots of all numbers with up to `digits` digits."""
    shorter = [_number_slots(digits - 1)] if digits > 1 else []
    longest = range(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
    slots = np.concatenate([*shorter, np.fromiter(map(_number_slot, longest), np.uint16)])
    slots.flags.writeable = False
    return slots


# Load


class SlotLoad:
    """Counts the records of each slot, with a weight that decays over time."""

    def __init__(self) -> None:
        self.loads: Loads = np.zeros(SLOTS)

    def add(self, slots: Slots) -> None:
        """Count records by their slots."""
        np.add.at(self.loads, slots, 1.0)

    def decay(self, factor: float) -> None:
        """Multiply all counts so far by a factor."""
        if not 0 <= factor <= 1:
            raise BadValueError(f"factor = {factor!r}: expected a number from 0 to 1")
        self.loads *= factor
        self.loads[self.loads < _FORGOTTEN] = 0.0


class HotKeys:
    """The most frequent keys, in bounded memory (Misra–Gries, a batch at a time).

    When there are more than twice `capacity` keys, the largest count that is not among the first
    `capacity` is subtracted from all counts, and keys with nothing left are forgotten. Each time,
    more than `capacity` keys lose this amount, so the sum of the amounts, `missed`, is at most
    total / (capacity + 1). Every key with more records than that is kept, and its count is at most
    `missed` too low and never too high.
    """

    def __init__(self, capacity: int = 1_000) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise BadValueError(f"capacity = {capacity!r}: expected a whole number from 1 on")
        self.capacity = capacity
        self.total = 0
        """Number of records with a key."""
        self.missed = 0
        """How much a count may be too low. A key that is not kept has at most this many records."""
        self._counts: dict[Any, int] = {}

    def add(self, keys: Any, count: int) -> None:
        """Count the records of a batch by a column of keys, or one shared key."""
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
        """Return the n most frequent keys, with counts and shares of all records with a key."""
        hottest = sorted(self._counts.items(), key=lambda item: -item[1])[:n]
        return [(key, count, count / self.total) for key, count in hottest]

    def _hottest(self, keys: Any, counts: NDArray[np.int64]) -> Iterable[tuple[Any, int]]:
        """Return as many of the keys as fit, with their reduced counts."""
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
