"""Which partition a record goes to.

Keys are hashed as Kafka's producers hash them, so a key lands where a real Kafka would put it. A
partitioner has no memory: the partition on which keyless records stay for now (`sticky`) belongs
to the producer, which keeps it for each topic, draws it with `next_sticky`, and draws anew when a
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

from ..model.errors import BadValueError, UnknownNameError

Key: TypeAlias = int | str | bytes | None
"""Text is hashed as UTF-8, a number (synthetic load has those) as its decimal text."""

Keys: TypeAlias = Sequence[Key] | NDArray[np.integer]
"""A batch's column of keys."""

PartitionFunction: TypeAlias = Callable[[Key, object, int], int]
"""A user's own: (key, value, number of partitions) → partition."""

Chosen: TypeAlias = NDArray[np.int64]
"""For each record of a batch, its partition."""


@attrs.frozen
class Partitioner:
    """How a producer allocates its records, one at a time or a batch at once.

    A partition that the sender names wins, as in Kafka; a random producer's must not name one, a
    manual one's must.
    """

    rule: str | PartitionFunction
    """A name of `PARTITIONERS`, or a user's function."""

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
        """The partition of one record; `requested` is the one its sender named, if any."""
        if self.rule == "manual" or requested is not None:
            return self._named(requested, partitions)
        if self.rule == "random":
            return random.randrange(partitions)
        if not isinstance(self.rule, str):
            return _ask(self.rule, key, value, partitions)
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
        """The partitions of `count` records; no column of keys means that all are keyless."""
        if self.rule == "manual" or requested is not None:
            return np.full(count, self._named(requested, partitions))
        if self.rule == "random":
            return random.integers(partitions, size=count)
        if not isinstance(self.rule, str):
            return _ask_all(self.rule, keys, values, count, partitions)
        if self.rule == "key" and keys is not None:
            return _by_key(keys, partitions, sticky)
        return np.full(count, sticky)

    def counts(self, count: int, partitions: int, random: np.random.Generator) -> Chosen | None:
        """How many of `count` records without keys go to each partition, if chance alone decides.

        One draw in place of one for each record, which then need not be sorted either.
        """
        if self.rule != "random":
            return None
        return random.multinomial(count, np.full(partitions, 1 / partitions))

    def _named(self, requested: int | None, partitions: int) -> int:
        if self.rule == "random":
            raise BadValueError(
                f"partition = {requested!r}: expected none, for this producer allocates randomly"
            )
        if requested is None or not _is_partition(requested, partitions):
            why = ", for this producer allocates manually" if self.rule == "manual" else ""
            raise BadValueError(
                f"partition = {requested!r}: expected a number from 0 to {partitions - 1}{why}"
            )
        return requested


PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    name: Partitioner(name)
    for name in (
        "key",  # Kafka's default: the key decides, keyless records stick
        "manual",  # the sender names every record's partition
        "random",  # every record anywhere, all partitions equally likely
        "sticky",  # Kafka's uniform sticky: all records stick, keyed ones too
    )
}


def partitioner(wanted: str | PartitionFunction) -> Partitioner:
    """The partitioner of this name, or one that asks this function."""
    if isinstance(wanted, str):
        if wanted not in PARTITIONERS:
            raise UnknownNameError("partitioner", wanted, PARTITIONERS)
        return PARTITIONERS[wanted]
    if not callable(wanted):
        raise BadValueError(
            f"partitioner = {wanted!r}: expected a name or a function (key, value, partitions)"
        )
    return Partitioner(wanted)


def next_sticky(partitions: int, previous: int | None, random: Random) -> int:
    """Where keyless records stay next: on another partition than before, if there is another."""
    if previous is None or partitions == 1:
        return random.randrange(partitions)
    drawn = random.randrange(partitions - 1)
    return drawn + (drawn >= previous)


def partition_of(key: int | str | bytes, partitions: int) -> int:
    """Where a Kafka producer puts this key."""
    return (murmur2(key_bytes(key)) & _POSITIVE) % partitions


def partition_all(
    keys: Sequence[int | str | bytes] | NDArray[np.integer], partitions: int
) -> Chosen:
    """Where a Kafka producer puts each of these keys.

    An array or range of numbers below a million, as synthetic load has, costs a table look-up
    each; of other keys the hashes of recent ones are remembered.
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
"""Kafka's toPositive: the sign bit of the hash is dropped, not the sign."""
_TABLE_END: Final = 10**6


@lru_cache(maxsize=65_536)
def murmur2(data: bytes) -> int:
    """Kafka's 32-bit MurmurHash2, unsigned; remembered, since keys come again and again."""
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
    """The same for many texts of one length, a row each, all at once."""
    multiplier, r24, r13, r15 = map(np.uint32, (_MULTIPLIER, 24, 13, 15))
    count, length = rows.shape
    whole = length & ~3
    result = np.full(count, _SEED ^ length, np.uint32)
    for start in range(0, whole, 4):
        word = np.ascontiguousarray(rows[:, start : start + 4]).view("<u4")[:, 0] * multiplier
        result = (result * multiplier) ^ ((word ^ word >> r24) * multiplier)
    for place in range(whole, length):
        result ^= rows[:, place].astype(np.uint32) << (8 * (place - whole))
    if whole < length:
        result *= multiplier
    result = (result ^ result >> r13) * multiplier
    return result ^ result >> r15


@lru_cache
def _number_hashes(digits: int) -> NDArray[np.uint32]:
    """The hashes of all numbers of up to so many digits."""
    least = 10 ** (digits - 1) if digits > 1 else 0
    texts = np.arange(least, 10**digits).astype(f"S{digits}")
    hashes = _murmur2_rows(texts.view(np.uint8).reshape(-1, digits))
    shorter = [_number_hashes(digits - 1)] if digits > 1 else []
    hashes = np.concatenate([*shorter, hashes])
    hashes.flags.writeable = False
    return hashes


def key_bytes(key: object) -> bytes:
    """What is hashed of a key: text as UTF-8, a number as its decimal text."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode(errors="replace")  # half a surrogate pair: a question mark, as in Java
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


def _ask_all(
    function: PartitionFunction,
    keys: Keys | None,
    values: Sequence[object] | None,
    count: int,
    partitions: int,
) -> Chosen:
    """A function sees what it would see one record at a time, Python's numbers and all."""
    nothing = [None] * count
    listed = keys.tolist() if isinstance(keys, np.ndarray) else nothing if keys is None else keys
    pairs = zip(listed, nothing if values is None else values, strict=True)
    return np.fromiter((_ask(function, key, value, partitions) for key, value in pairs), np.int64)


def _ask(function: PartitionFunction, key: Key, value: object, partitions: int) -> int:
    chosen = function(key, value, partitions)
    if not _is_partition(chosen, partitions):
        name = getattr(function, "__name__", repr(function))
        raise BadValueError(
            f"partitioner {name} returned {chosen!r} for key {key!r}: "
            f"expected a number from 0 to {partitions - 1}"
        )
    return int(chosen)


def _is_partition(value: object, partitions: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 0 <= value < partitions  # type: ignore[operator]
