"""A partition's log: batches one after the other, found by offset and by time.

Offsets are dense: the log gives each record the next one and never skips. What may lie behind a
partition is a `Storage`; `MemoryLog` is the one that forgets everything when its broker crashes.

Where a read begins and ends is found by bisection, never by a walk, so a thousand batches of one
record are read nearly as fast as one of a thousand. Three lists run in parallel: the batches, their
base offsets and the bytes before each, the latter two with an item more for the end. What retention
drops leaves a gap at their front, closed once it is longer than the rest: dropping stays cheap
however long the log is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final, Protocol, TypeAlias

import attrs

from .batch import Batch
from .errors import BadValueError

Range: TypeAlias = tuple[int, int, int, int]
"""Base offset, count, bytes and append time of records that were appended together."""

_GONE: Final = Batch("", 0, 0, timestamps_us=0, sizes=0)
"""Stands where a dropped batch was, whose memory is free at once."""


class OffsetOutOfRangeError(BadValueError):
    """An offset that the log does not have: not any more, or not yet."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset = {offset}: expected {start_offset} to {end_offset}")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class Storage(Protocol):
    """What a partition needs of a log, wherever it keeps its batches."""

    start_offset: int
    """The first offset it has; equal to `end_offset` if it is empty."""
    end_offset: int
    """The offset that the next record gets."""
    high_watermark: int
    """Consumers may read up to here: what is below is safe."""

    def append(self, batch: Batch, now_us: int, epoch: int) -> Batch:
        """Take a batch in and give it back with its offsets."""

    def read(
        self, offset: int, *, max_bytes: int, max_records: int | None = None,
        up_to: int | None = None,
    ) -> tuple[Batch, ...]:  # fmt: skip
        """Give the records from this offset on and below `up_to`, as far as the limits go."""

    def available_bytes(self, offset: int) -> int:
        """How much there is to read from this offset on."""

    def offset_at(self, timestamp_us: int) -> int:
        """Find the first offset that was made at this time or later; the end if none was."""

    def offset_at_append_time(self, time_us: int) -> int:
        """Find the first offset that was appended at this time or later; the end if none was."""

    def ranges(self, start: int, end: int) -> list[Range]:
        """Split a range of offsets where appended batches meet."""

    def truncate_before(self, offset: int) -> None:
        """Drop everything below this offset."""


@attrs.frozen
class Snapshot:
    """A log as it was: handed to the next leader of its partition, by reference."""

    start_offset: int
    """The first offset it has."""
    high_watermark: int
    """Up to where it was safe."""
    batches: tuple[Batch, ...]
    """All it has."""


class MemoryLog:
    """A log in memory. The fields are those of `Storage`; to set them is for replication."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.high_watermark = start_offset
        self._batches: list[Batch] = []
        self._bases = [start_offset]
        self._bytes_before = [0]
        self._head = 0
        self._timestamps = _Latest(attrgetter("latest_us"))
        self._append_times = _Latest(attrgetter("append_time_us"))

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "MemoryLog":
        """Continue a log where it was handed over."""
        log = cls(snapshot.start_offset)
        log._batches = list(snapshot.batches)
        counts = (batch.count for batch in snapshot.batches)
        log._bases = list(accumulate(counts, initial=snapshot.start_offset))
        sizes = (batch.bytes for batch in snapshot.batches)
        log._bytes_before = list(accumulate(sizes, initial=0))
        log.end_offset = log._bases[-1]
        log.high_watermark = snapshot.high_watermark
        return log

    def snapshot(self) -> Snapshot:
        """Keep what the log has now, whatever becomes of it."""
        batches = tuple(self._batches[self._head :])
        return Snapshot(self.start_offset, self.high_watermark, batches)

    def append(self, batch: Batch, now_us: int, epoch: int) -> Batch:
        """Take a batch in and give it back with its offsets.

        There is only this one copy: it is as safe as it gets, and the high watermark follows.
        """
        if batch.count < 1:
            raise BadValueError(f"{batch!r}: expected at least one record to append")
        end_bytes = self._bytes_before[-1] + batch.bytes
        stamped = batch.stamped(self.end_offset, now_us, epoch)
        self.end_offset = self.high_watermark = self.end_offset + batch.count
        self._batches.append(stamped)
        self._bases.append(self.end_offset)
        self._bytes_before.append(end_bytes)
        return stamped

    def read(
        self, offset: int, *, max_bytes: int, max_records: int | None = None,
        up_to: int | None = None,
    ) -> tuple[Batch, ...]:  # fmt: skip
        """Give the records from this offset on and below `up_to`, as far as the limits go.

        As in Kafka the first record comes even if it is too large, for who waits for less would
        wait forever. Bytes cut a batch only if it is the first; the other limits hold exactly.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        end = self.end_offset
        if up_to is not None:
            end = min(end, up_to)
        if max_records is not None:
            end = min(end, offset + max_records)
        if offset >= end:
            return ()
        index = self._index(offset)
        end = min(end, self._reach(index, offset, max_bytes))
        return tuple(self._between(index, offset, end))

    def available_bytes(self, offset: int) -> int:
        """How much there is to read from this offset on, or from the start if that is later."""
        if offset >= self.end_offset:
            return 0
        offset = max(offset, self.start_offset)
        return self._bytes_before[-1] - self._position(self._index(offset), offset)

    def offset_at(self, timestamp_us: int) -> int:
        """Find the first offset that was made at this time or later; the end if none was.

        Producers' clocks differ and retries come late, so timestamps may go back and forth.
        """
        index = self._timestamps.find(self._batches, self._head, timestamp_us)
        if index == len(self._batches):
            return self.end_offset
        return self._bases[index] + self._batches[index].first_at(timestamp_us)

    def offset_at_append_time(self, time_us: int) -> int:
        """Find the first offset that was appended at this time or later; the end if none was."""
        index = self._append_times.find(self._batches, self._head, time_us)
        return self._bases[index]

    def ranges(self, start: int, end: int) -> list[Range]:
        """Split a range of offsets where appended batches meet; what is not there is left out.

        An event about records never spans two appended batches, so that it has one append time.
        """
        start, end = max(start, self.start_offset), min(end, self.end_offset)
        return [
            (piece.base_offset, piece.count, piece.bytes, piece.append_time_us)
            for piece in self._between(self._index(start), start, end)
        ]

    def truncate_before(self, offset: int) -> None:
        """Drop everything below this offset; a batch that spans it is cut."""
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        head = self._index(offset)
        self._batches[self._head : head] = [_GONE] * (head - self._head)
        self._head = head
        if self._bases[head] < offset:
            self._bytes_before[head] = self._position(head, offset)
            self._batches[head] = self._batches[head][offset - self._bases[head] :]
            self._bases[head] = offset
        if head > len(self._batches) - head:
            self._close_gap()

    def _close_gap(self) -> None:
        del self._batches[: self._head]
        del self._bases[: self._head]
        del self._bytes_before[: self._head]
        self._timestamps.drop(self._head)
        self._append_times.drop(self._head)
        self._head = 0

    def _index(self, offset: int) -> int:
        """Where the batch is that has this offset; behind the last one for the end."""
        return bisect_right(self._bases, offset, self._head) - 1

    # Below, `index` is where the batch with the first offset is: found once by who calls.

    def _position(self, index: int, offset: int) -> int:
        """How many bytes are before this offset, dropped ones included."""
        skipped = offset - self._bases[index]
        before = self._bytes_before[index]
        return before + self._batches[index][:skipped].bytes if skipped else before

    def _reach(self, index: int, offset: int, max_bytes: int) -> int:
        """How far so many bytes go: to where a batch ends, or else into the first one."""
        limit = self._position(index, offset) + max_bytes
        full = bisect_right(self._bytes_before, limit, index) - 1
        if full > index:
            return self._bases[full]
        first = self._batches[index][offset - self._bases[index] :]
        return offset + max(1, first.fitting(max_bytes))

    def _between(self, index: int, start: int, end: int) -> list[Batch]:
        """List the records of a range, batch by batch, the first and the last cut to fit."""
        if start >= end:
            return []
        last = bisect_left(self._bases, end, index) - 1
        batches = self._batches[index : last + 1]
        if end < self._bases[last + 1]:
            batches[-1] = batches[-1][: end - self._bases[last]]
        if start > self._bases[index]:
            batches[0] = batches[0][start - self._bases[index] :]
        return batches


class _Latest:
    """The latest time up to each batch, which only rises: bisection finds who first reaches one.

    It is brought up to date by who asks, as few ever look anything up by time.
    """

    def __init__(self, time_of: Callable[[Batch], int]) -> None:
        self._time_of = time_of
        self._latest: list[int] = []

    def find(self, batches: Sequence[Batch], head: int, time_us: int) -> int:
        """Find the first batch from `head` on that reaches a time; the end if none does."""
        latest = self._latest
        if head < len(latest) and latest[head] != self._time_of(batches[head]):
            del latest[head:]  # something later was dropped before it, and must not count
        latest += [0] * (head - len(latest))
        known = latest.pop() if len(latest) > head else None
        new = batches[len(latest) if known is None else len(latest) + 1 :]
        latest += accumulate(map(self._time_of, new), max, initial=known)
        return bisect_left(latest, time_us, head)

    def drop(self, count: int) -> None:
        """Forget the first ones."""
        del self._latest[:count]
