"""The records of a poll: a sequence that makes each record when it is accessed."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from ..topics import TopicPartition
from .batch import Batch
from .record import Record

Piece: TypeAlias = tuple[TopicPartition, Batch, int]
"""Consecutive records of one appended batch: their partition, the records, and how often they have
been delivered before."""


class Records(Sequence[Record]):
    """Records of a poll, in order within each partition."""

    __slots__ = ("_length", "pieces", "read_us")

    def __init__(self, pieces: tuple[Piece, ...], read_us: int) -> None:
        self.pieces = pieces
        """The batches that contain them."""
        self.read_us = read_us
        """Time at which they were handed to the user."""
        self._length = sum(batch.count for _, batch, _ in pieces)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Record]:
        for (topic, partition), batch, retries in self.pieces:
            yield from batch.records(topic, partition, retries, self.read_us)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._length))]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"record {index} of {self._length}")
        for (topic, partition), batch, retries in self.pieces:
            if place < batch.count:
                return batch.record(place, topic, partition, retries, self.read_us)
            place -= batch.count
        raise AssertionError("the pieces have fewer records than their sum")

    def __repr__(self) -> str:
        return f"<{self._length} records of {', '.join(str(tp) for tp, _, _ in self.pieces)}>"
