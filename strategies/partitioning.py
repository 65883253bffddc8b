"""Partitioners: which partition a record goes to.

Keys are hashed as Kafka's producers hash them, so a key goes to the same partition as in Kafka. A
partitioner has no state. The partition that records without a key go to for the time being
(`sticky`) is kept by the producer for each topic. It is drawn with `next_sticky`, again whenever a
batch is full or sent.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from ..model.callables import require_plain
from ..model.errors import BadValueError, UnknownNameError
from ..model.numbers import is_whole

Key: TypeAlias = int | str | bytes | None
"""Text is hashed as UTF-8, a number, as synthetic load has, as its decimal text."""

Keys: TypeAlias = Sequence[Key] | NDArray[np.integer]
"""The keys of a batch."""

PartitionFunction: TypeAlias = Callable[[Key, object, int], int]
"""A user's function: (key, value, number of partitions) → partition."""

Chosen: TypeAlias = NDArray[np.int64]
"""The partition of each record of a batch."""


@attrs.frozen
class Partitioner:
    """Chooses the partitions of a producer's records, for one record or a batch.

    As in Kafka, a partition that the sender requests takes precedence. With the rule "random" the
    sender must not request one; with "manual" it must.
    """

    rule: str | PartitionFunction
    """A name in `PARTITIONERS`, or a user's function."""

    def choose(
        self,
        key: Key,
        value: object,
        partitions: int,
        *,
        requested: int | None,
        sticky: int,
        random: Random,
    ) -> int:
        """Choose the partition of a record. `requested` is the partition that its sender wants."""
        if self.rule == "manual" or requested is not None:
            return self._requested(requested, partitions)
        if self.rule == "random":
            return random.randrange(partitions)
        if not isinstance(self.rule, str):
            return _call(self.rule, key, value, partitions)
        if self.rule == "key" and key is not None:
            return partition_of(key, partitions)
        return sticky

    def choose_many(
        self,
        keys: Keys | None,
        values: Sequence[object] | None,
        count: int,
        partitions: int,
        *,
        requested: int | None,
        sticky: int,
        random: np.random.Generator,
    ) -> Chosen:
        """Choose the partitions of `count` records. Without `keys`, no record has a key."""
        if self.rule == "manual" or requested is not None:
            return np.full(count, self._requested(requested, partitions))
        if self.rule == "random":
            return random.integers(partitions, size=count)
        if not isinstance(self.rule, str):
            return _call_for_each(self.rule, keys, values, count, partitions)
        if self.rule == "key" and keys is not None:
            return _by_key(keys, partitions, sticky)
        return np.full(count, sticky)

    def counts(self, count: int, partitions: int, random: np.random.Generator) -> Chosen | None:
        """Return how many of `count` records without keys go to each partition, if that is random.

        One draw instead of one for each record, and the records need not be sorted by partition.
        """
        if self.rule != "random":
            return None
        return random.multinomial(count, np.full(partitions, 1 / partitions))

    def _requested(self, requested: int | None, partitions: int) -> int:
        if self.rule == "random":
            raise BadValueError(
                f"partition = {requested!r}: expected none, as the partitioner is random"
            )
        if requested is None or not _is_partition(requested, partitions):
            why = ", as the partitioner is manual" if self.rule == "manual" else ""
            raise BadValueError(
                f"partition = {requested!r}: expected a number from 0 to {partitions - 1}{why}"
            )
        return int(requested)


PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    name: Partitioner(name)
    for name in (
        "key",  # Kafka's default: by the key's hash; records without a key are sticky
        "manual",  # the sender requests a partition for every record
        "random",  # uniformly distributed
        "sticky",  # Kafka's uniform sticky: all records are sticky, with or without a key
    )
}


def partitioner(wanted: str | PartitionFunction) -> Partitioner:
    """Return the partitioner with a name, or one that calls a user's function."""
    if isinstance(wanted, str):
        if wanted not in PARTITIONERS:
            raise UnknownNameError("partitioner", wanted, PARTITIONERS)
        return PARTITIONERS[wanted]
    if not callable(wanted):
        raise BadValueError(
            f"partitioner = {wanted!r}: expected a name or a function (key, value, partitions)"
        )
    require_plain(wanted, "partitioner")
    return Partitioner(wanted)


def next_sticky(partitions: int, previous: int | None, random: Random) -> int:
    """Draw the next sticky partition: another one than before, if there is another."""
    if previous is None or partitions == 1:
        return random.randrange(partitions)
    drawn = random.randrange(partitions - 1)
    return drawn + (drawn >= previous)


def partition_of(key: int | str | bytes, partitions: int) -> int:
    """Return the partition that a Kafka producer chooses for a key."""
    return (murmur2(key_bytes(key)) & _POSITIVE) % partitions


def partition_all(
    keys: Sequence[int | str | bytes] | NDArray[np.integer], partitions: int
) -> Chosen:
    """Return the partition that a Kafka producer chooses for each key.

    For an array or range of numbers below a million, as synthetic load has, this is a table
    look-up; for other keys, the hashes of recent ones are cached.
    """
    if isinstance(keys, range):
        keys = np.arange(keys.start, keys.stop, keys.step)
    if isinstance(keys, np.ndarray) and keys.size and np.issubdtype(keys.dtype, np.integer):
        largest = int(keys.max())
        if keys.min() >= 0 and largest < _TABLE_END:
            return _to_partitions(_number_hashes(len(str(largest)))[keys], partitions)
    hashes = np.fromiter(map(murmur2, map(key_bytes, keys)), np.uint32, len(keys))
    return _to_partitions(hashes, partitions)


def _to_partitions(hashes: NDArray[np.uint32], partitions: int) -> Chosen:
    return ((hashes & np.uint32(_POSITIVE)) % np.uint32(partitions)).astype(np.int64)


_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_UINT32: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
"""Kafka's toPositive, which clears the sign bit of the hash."""
_TABLE_END: Final = 10**6


@lru_cache(maxsize=65_536)
def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit MurmurHash2, unsigned. Cached, as keys repeat."""
    whole = len(data) & ~3
    result = _SEED ^ len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = (word * _MULTIPLIER) & _UINT32
        word = ((word ^ word >> 24) * _MULTIPLIER) & _UINT32
        result = ((result * _MULTIPLIER) & _UINT32) ^ word
    if rest := data[whole:]:
        result = ((result ^ int.from_bytes(rest, "little")) * _MULTIPLIER) & _UINT32
    result = ((result ^ result >> 13) * _MULTIPLIER) & _UINT32
    return result ^ result >> 15


def _murmur2_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the hashes of many texts of the same length, given as rows."""
    multiplier, r24, r13, r15 = map(np.uint32, (_MULTIPLIER, 24, 13, 15))
    count, length = rows.shape
    whole = length & ~3
    result = np.full(count, _SEED ^ length, np.uint32)
    for start in range(0, whole, 4):
        word = np.ascontiguousarray(rows[:, start : start + 4]).view("<u4")[:, 0] * multiplier
        result = (result * multiplier) ^ ((word ^ word >> r24) * multiplier)
    for position in range(whole, length):
        result ^= rows[:, position].astype(np.uint32) << (8 * (position - whole))
    if whole < length:
        result *= multiplier
    result = (result ^ result >> r13) * multiplier
    return result ^ result >> r15


@lru_cache
def _number_hashes(digits: int) -> NDArray[np.uint32]:
    """Return the hashes of all numbers with up to `digits` digits."""
    least = 10 ** (digits - 1) if digits > 1 else 0
    texts = np.arange(least, 10**digits).astype(f"S{digits}")
    hashes = _murmur2_rows(texts.view(np.uint8).reshape(-1, digits))
    shorter = [_number_hashes(digits - 1)] if digits > 1 else []
    hashes = np.concatenate([*shorter, hashes])
    hashes.flags.writeable = False
    return hashes


def key_bytes(key: object) -> bytes:
    """Return the bytes of a key that are hashed: UTF-8 of a text, or of a number's decimal text."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode(errors="replace")  # a lone surrogate becomes a question mark, as in Java
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return b"%d" % key
    raise BadValueError(
        f"key = {key!r} of type {type(key).__name__}: expected bytes, a text or a whole number"
    )


def _by_key(keys: Keys, partitions: int, sticky: int) -> Chosen:
    if isinstance(keys, np.ndarray | range):
        return partition_all(keys, partitions)
    chosen = (sticky if key is None else partition_of(key, partitions) for key in keys)
    return np.fromiter(chosen, np.int64, len(keys))


def _call_for_each(
    function: PartitionFunction,
    keys: Keys | None,
    values: Sequence[object] | None,
    count: int,
    partitions: int,
) -> Chosen:
    """Call a user's function for each record, with plain Python numbers as keys."""
    absent = [None] * count
    listed = keys.tolist() if isinstance(keys, np.ndarray) else absent if keys is None else keys
    pairs = zip(listed, absent if values is None else values, strict=True)
    return np.fromiter((_call(function, key, value, partitions) for key, value in pairs), np.int64)


def _call(function: PartitionFunction, key: Key, value: object, partitions: int) -> int:
    chosen = function(key, value, partitions)
    if not _is_partition(chosen, partitions):
        name = getattr(function, "__name__", repr(function))
        raise BadValueError(
            f"partitioner {name} returned {chosen!r} for key {key!r}: "
            f"expected a number from 0 to {partitions - 1}"
        )
    return int(chosen)


def _is_partition(value: object, partitions: int) -> bool:
    return is_whole(value) and 0 <= value < partitions  # type: ignore[operator]
