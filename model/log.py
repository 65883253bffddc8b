"""A partition's log: batches one after the other, found by offset and by time.

The log gives each record the next offset and never skips, but compaction takes records out and
leaves gaps, where others keep their offsets. An offset in a gap is as good as any: reading goes on
with the next record there is. What may lie behind a partition is a `Storage`; `MemoryLog` is the
one that forgets everything when its broker crashes.

Where a read begins and ends is found by bisection, never by a walk, so a thousand batches of one
record are read nearly as fast as one of a thousand. Three lists run in parallel: the batches, their
base offsets and the bytes before each, the latter two with an item more for the end. What retention
drops leaves empty places at their front, removed once they are more than the rest: dropping stays
cheap however long the log is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final, Protocol

import attrs

from .batch import Batch
from .compaction import Gaps, compacted
from .errors import BadValueError

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
    """The first offset that may be read; equal to `end_offset` if all was dropped."""
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

    def count_between(self, start: int, end: int) -> int:
        """Count the records in a range of offsets."""

    def offset_at(self, timestamp_us: int) -> int:
        """Find the first offset that was made at this time or later; the end if none was."""

    def offset_at_append_time(self, time_us: int) -> int:
        """Find the first offset that was appended at this time or later; the end if none was."""

    def offset_for_bytes(self, max_bytes: int) -> int:
        """Find the lowest offset from which on there are at most so many bytes."""

    def pieces(self, start: int, end: int) -> list[Batch]:
        """Split a range of offsets where appended batches meet, and where records are missing."""

    def truncate_before(self, offset: int) -> None:
        """Drop everything below this offset."""

    def compact(self, up_to: int, tombstones_before_us: int | None = None) -> list[Batch]:
        """Drop records below `up_to` that a later one of their key replaces; give what went."""


@attrs.frozen
class Snapshot:
    """A log as it was: handed to the next leader of its partition, by reference."""

    start_offset: int
    """The first offset that may be read."""
    end_offset: int
    """The offset that the next record gets, whether or not the last ones are still there."""
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
        self._lay_out([])

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "MemoryLog":
        """Continue a log where it was handed over."""
        log = cls(snapshot.start_offset)
        log.end_offset = snapshot.end_offset
        log.high_watermark = snapshot.high_watermark
        log._lay_out(list(snapshot.batches))
        return log

    def snapshot(self) -> Snapshot:
        """Keep what the log has now, whatever becomes of it."""
        batches = tuple(self._batches[self._head :])
        return Snapshot(self.start_offset, self.end_offset, self.high_watermark, batches)

    def _lay_out(self, batches: list[Batch]) -> None:
        """Hold these batches and no others, between the start and the end as they are."""
        self._batches = batches
        self._bases = [*(batch.base_offset for batch in batches), self.end_offset]
        self._bytes_before = list(accumulate((batch.bytes for batch in batches), initial=0))
        self._head = 0
        self._timestamps = _Latest(attrgetter("latest_us"))
        self._append_times = _Latest(attrgetter("append_time_us"))
        there = sum(batch.count for batch in batches)
        dense = there == self.end_offset - self.start_offset
        self._gaps = None if dense else Gaps(batches, self.start_offset, self.end_offset)

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
        gaps, batches = self._gaps, self._batches
        if gaps is None and max_records is None and up_to is None and batches:
            newest = batches[-1]
            if offset == newest.base_offset and newest.bytes <= max_bytes:
                return (newest,)  # What a reader that keeps up asks for each time.
        end = self.end_offset
        if up_to is not None and up_to < end:
            end = up_to
        if gaps is not None:
            offset = gaps.skip(offset)
        if max_records is not None:
            beyond = offset + max_records if gaps is None else gaps.after(offset, max_records)
            end = min(end, beyond)
        if offset >= end:
            return ()
        index = self._index(offset)
        if self._bytes_before[-1] - self._bytes_before[index] > max_bytes:
            end = min(end, self._reach(index, offset, max_bytes))
        return tuple(self._between(index, offset, end))

    def available_bytes(self, offset: int) -> int:
        """How much there is to read from this offset on, or from the start if that is later."""
        if offset >= self.end_offset:
            return 0
        offset = self._existing(max(offset, self.start_offset))
        return self._bytes_before[-1] - self._position(self._index(offset), offset)

    def count_between(self, start: int, end: int) -> int:
        """Count the records in a range of offsets: how far behind is who is at its start."""
        start, end = max(start, self.start_offset), min(end, self.end_offset)
        if start >= end:
            return 0
        return end - start if self._gaps is None else self._gaps.rank(end) - self._gaps.rank(start)

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

    def offset_for_bytes(self, max_bytes: int) -> int:
        """Find the lowest offset from which on there are at most so many bytes.

        For retention, which drops whole batches only and never the newest, as Kafka keeps its
        active segment; the start if there is nothing to drop.
        """
        wanted = self._bytes_before[-1] - max_bytes
        index = bisect_left(self._bytes_before, wanted, self._head)
        index = min(index, len(self._batches) - 1)
        return self._bases[index] if index > self._head else self.start_offset

    def pieces(self, start: int, end: int) -> list[Batch]:
        """Split a range of offsets where appended batches meet; what is not there is left out.

        An event about records never spans two appended batches, so that it has one append time,
        nor a gap, so that its count tells its offsets.
        """
        start = self._existing(max(start, self.start_offset))
        return self._between(self._index(start), start, min(end, self.end_offset))

    def truncate_before(self, offset: int) -> None:
        """Drop everything below this offset; a batch that spans it is cut."""
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        offset = self._existing(offset)
        head = self._index(offset)
        self._batches[self._head : head] = [_GONE] * (head - self._head)
        self._head = head
        if self._bases[head] < offset:
            self._bytes_before[head] = self._position(head, offset)
            self._batches[head] = self._batches[head][offset - self._bases[head] :]
            self._bases[head] = offset
        if head > len(self._batches) - head:
            self._remove_empty_places()

    def compact(self, up_to: int, tombstones_before_us: int | None = None) -> list[Batch]:
        """Drop records below `up_to` that a later one of their key replaces; give what went.

        The later one may be anywhere in the log. A record without a key stays. A tombstone, which
        says None where values are said, goes even if it is the last of its key, once it was
        appended before a time. Neither the start nor the end of the log moves.
        """
        kept, gone = compacted(self._batches[self._head :], up_to, tombstones_before_us)
        if gone:
            self._lay_out(kept)
        return gone

    def _remove_empty_places(self) -> None:
        del self._batches[: self._head]
        del self._bases[: self._head]
        del self._bytes_before[: self._head]
        self._timestamps.drop(self._head)
        self._append_times.drop(self._head)
        self._head = 0

    def _existing(self, offset: int) -> int:
        """Give the first offset from this one on that has a record; the end if none has."""
        return offset if self._gaps is None else self._gaps.skip(offset)

    def _index(self, offset: int) -> int:
        """Where the batch is that has this offset; behind the last one for the end."""
        return bisect_right(self._bases, offset, self._head) - 1

    # Below, `index` is where the batch with the first offset is, and there is a record at that
    # offset: found once by who calls.

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
        skipped, stop = start - self._bases[index], end - self._bases[last]
        if index == last and (skipped or stop < batches[0].count):
            return [batches[0][skipped:stop]]
        if stop < batches[-1].count:
            batches[-1] = batches[-1][:stop]
        if skipped:
            batches[0] = batches[0][skipped:]
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
