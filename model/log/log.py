"""A partition's log: batches in order of their offsets, found by offset and by time.

The log gives each record the next offset. Compaction removes records and leaves gaps; the others
keep their offsets, and a read at an offset in a gap goes on with the next record. The log is kept
in memory: its records are lost when the broker crashes.

What is below the high watermark is on enough replicas, and is never cut off. The owner of the log
moves it; consumers, retention and compaction go no further. Replicas compare their logs by the
epochs of leaders: the log knows at which offset each of them begins (KIP-101, KIP-279).

The ends of a read are found by bisection, so a thousand batches of one record are read nearly as
fast as one batch of a thousand. Three lists run in parallel: the batches, their base offsets, and
the bytes before each; the last two have one more item for the end of the log. Retention replaces
batches at the front of the lists by an empty batch, and these are removed once they are more than
half of the list: this keeps the cost of retention low however long the log is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import Final

import attrs

from ..errors import BadValueError
from .batch import Batch
from .compaction import Gaps, compacted
from .record import NOWHERE

_GONE: Final = Batch("", 0, 0, timestamps_us=0, sizes=0)
"""Takes the place of a dropped batch, so that its memory is freed at once."""
_EPOCH: Final = itemgetter(0)
_START: Final = itemgetter(1)


class OffsetOutOfRangeError(BadValueError):
    """An offset is below the start or above the end of the log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset = {offset}: expected {start_offset} to {end_offset}")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


@attrs.frozen
class LogSnapshot:
    """The contents of a log, handed to the next leader of its partition."""

    start_offset: int
    """First offset that can be read."""
    end_offset: int
    """Offset that the next record will get; compaction may have removed the last records."""
    high_watermark: int
    """End of the records that consumers may read."""
    batches: tuple[Batch, ...]
    """All batches."""
    epochs: tuple[tuple[int, int], ...]
    """The epochs of leaders, each with its first offset."""


def epochs_of(batches: Iterable[Batch]) -> tuple[tuple[int, int], ...]:
    """Return the epochs of batches, each with its first offset."""
    starts: dict[int, int] = {}
    for batch in batches:
        starts.setdefault(batch.epoch, batch.base_offset)
    return tuple(starts.items())


class MemoryLog:
    """A log in memory."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        """First offset that can be read; equal to `end_offset` if all records were dropped."""
        self.end_offset = start_offset
        """Offset that the next record will get."""
        self.high_watermark = start_offset
        """End of the records that consumers may read, as they are fully replicated."""
        self.epochs: list[tuple[int, int]] = []
        """The epochs of leaders, each with its first offset; the last may have no records yet."""
        self.last_epoch = NOWHERE
        """The last of them."""
        self._lay_out([])

    @classmethod
    def from_snapshot(cls, snapshot: LogSnapshot) -> "MemoryLog":
        """Make a log with the contents of a snapshot."""
        log = cls(snapshot.start_offset)
        log.end_offset = snapshot.end_offset
        log.high_watermark = snapshot.high_watermark
        log._set_epochs(list(snapshot.epochs))
        log._lay_out(list(snapshot.batches))
        return log

    def snapshot(self) -> LogSnapshot:
        """Return the present contents of the log."""
        batches = tuple(self._batches[self._head :])
        return LogSnapshot(
            self.start_offset, self.end_offset, self.high_watermark, batches, tuple(self.epochs)
        )

    def _lay_out(self, batches: list[Batch]) -> None:
        """Make these the batches of the log. Its start and end stay."""
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
        """Append a batch of which no other replica needs a copy. Return it with its offsets."""
        if batch.count < 1:
            raise BadValueError(f"{batch!r}: expected at least one record to append")
        stamped = batch.stamped(self.end_offset, now_us, epoch)
        self.add(stamped)
        self.high_watermark = self.end_offset
        return stamped

    def add(self, batch: Batch) -> None:
        """Append a batch that has its offsets, from `end_offset` on.

        A batch of another replica may follow a gap, if that has compacted its log.
        """
        if batch.base_offset != self.end_offset:
            self._leave_gap(batch.base_offset)
        if batch.epoch > self.last_epoch:
            self.begin_epoch(batch.epoch)
        end_bytes = self._bytes_before[-1] + batch.bytes
        self.end_offset = batch.base_offset + batch.count
        self._batches.append(batch)
        self._bases.append(self.end_offset)
        self._bytes_before.append(end_bytes)

    def _leave_gap(self, end: int) -> None:
        """Let the next record be at an offset that is beyond the end."""
        assert end > self.end_offset, f"offset {end} is below the end of the log"
        if self._gaps is None:
            self._gaps = Gaps((), self.start_offset, self.start_offset)
        self._gaps.add(self.end_offset, end)
        self.end_offset = self._bases[-1] = end

    def read(
        self, offset: int, *, max_bytes: int, max_records: int | None = None,
        up_to: int | None = None,
    ) -> tuple[Batch, ...]:  # fmt: skip
        """Return the records from an offset on and below `up_to`, within the limits.

        As in Kafka, the first record is returned even if it exceeds `max_bytes`, as a consumer
        could not get past it otherwise. `max_bytes` cuts only the first batch, and ends before
        another that does not fit; the other limits hold exactly.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        gaps, batches = self._gaps, self._batches
        if gaps is None and max_records is None and up_to is None and batches:
            newest = batches[-1]
            if offset == newest.base_offset and newest.bytes <= max_bytes:
                return (newest,)  # A consumer without lag always reads the newest batch.
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
        """Return the size of the records that consumers may read from an offset on.

        They begin at the start of the log if that is later.
        """
        end = self.high_watermark
        if offset >= end:
            return 0
        before = self._bytes_before[-1] if end == self.end_offset else self._bytes_below(end)
        return before - self._bytes_below(max(offset, self.start_offset))

    def count_between(self, start: int, end: int) -> int:
        """Count the records in a range of offsets."""
        start, end = max(start, self.start_offset), min(end, self.end_offset)
        if start >= end:
            return 0
        return end - start if self._gaps is None else self._gaps.rank(end) - self._gaps.rank(start)

    def offset_at(self, timestamp_us: int) -> int:
        """Find the first record with this timestamp or a later one; the end offset if none has.

        Timestamps need not rise: the clocks of producers differ, and retries come late.
        """
        index = self._timestamps.find(self._batches, self._head, timestamp_us)
        if index == len(self._batches):
            return self.end_offset
        return self._bases[index] + self._batches[index].first_at(timestamp_us)

    def offset_at_append_time(self, time_us: int) -> int:
        """Find the first record appended at this time or later; the end offset if there is none."""
        index = self._append_times.find(self._batches, self._head, time_us)
        return self._bases[index]

    def offset_for_bytes(self, max_bytes: int) -> int:
        """Find the lowest offset from which on there are at most `max_bytes`; else the start.

        For retention, which drops only whole batches and never the newest, as Kafka keeps its
        active segment.
        """
        wanted = self._bytes_before[-1] - max_bytes
        index = bisect_left(self._bytes_before, wanted, self._head)
        index = min(index, len(self._batches) - 1)
        return self._bases[index] if index > self._head else self.start_offset

    def pieces(self, start: int, end: int) -> list[Batch]:
        """Split a range of offsets at the borders of appended batches and at gaps.

        An event about records never spans two appended batches, so that it has one append time, nor
        a gap, so that its offsets follow from its count.
        """
        start = self._existing(max(start, self.start_offset))
        return self._between(self._index(start), start, min(end, self.end_offset))

    def whole_batches(self, start: int, end: int) -> list[Batch]:
        """List the batches with records in a range of offsets, without cutting them."""
        start, end = self._existing(max(start, self.start_offset)), min(end, self.end_offset)
        if start >= end:
            return []
        return self._batches[self._index(start) : bisect_left(self._bases, end, self._head)]

    def replace(self, batch: Batch) -> None:
        """Put a batch in the place of the one with the same records, if that is still there."""
        end = batch.base_offset + batch.count
        if end <= self.start_offset or end > self.end_offset:
            return
        index = bisect_right(self._bases, end - 1, self._head) - 1
        known = self._batches[index]
        cut = known.base_offset - batch.base_offset  # the first batch may have been cut
        if known.base_offset + known.count == end and cut >= 0:
            self._batches[index] = batch.part(cut, batch.count) if cut else batch

    def reached_by(self, offset: int, max_bytes: int) -> int:
        """Return an offset that a read of `max_bytes` from an offset on does not go beyond."""
        offset = self._existing(offset)
        if offset >= self.end_offset:
            return self.end_offset
        index = self._index(offset)
        full = bisect_right(self._bytes_before, self._bytes_before[index] + max_bytes, index)
        return self._bases[min(full, len(self._bases) - 1)]

    def end_of_batches(self, offset: int, max_bytes: int) -> int:
        """Return the end of the whole batches from an offset on that fit; at least of the first."""
        index = self._index(self._existing(offset))
        full = bisect_right(self._bytes_before, self._bytes_before[index] + max_bytes, index) - 1
        return self._bases[max(full, index + 1)]

    def truncate_before(self, offset: int) -> None:
        """Drop the records below an offset; a batch that contains it is cut.

        Only what is fully replicated is dropped anywhere, so the high watermark is not below it.
        """
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        if self.epochs and self.epochs[0][1] < offset:
            begun = bisect_right(self.epochs, offset, key=_START) - 1
            self.epochs[: begun + 1] = [(self.epochs[begun][0], offset)]
        offset = self._existing(offset)
        head = self._index(offset)
        self._batches[self._head : head] = [_GONE] * (head - self._head)
        self._head = head
        if self._bases[head] < offset:
            self._bytes_before[head] = self._position(head, offset)
            self._batches[head] = self._batches[head][offset - self._bases[head] :]
            self._bases[head] = offset
        if head > len(self._batches) - head:
            self._remove_empty_batches()

    def truncate_after(self, offset: int) -> list[Batch]:
        """Drop the records from an offset on, as another leader does not have them. Return them.

        As in Kafka, only whole batches are dropped: one that contains the offset goes, too, and the
        log ends where that began. (Kafka's log would end at the offset, after a gap.) At an offset
        before the start the log begins anew. At the end or beyond there is nothing to drop, but an
        epoch without records is forgotten: the other leader may not have had it.
        """
        if offset <= self.start_offset:
            return self.start_over(offset)
        removed = self._cut_off(offset) if offset < self.end_offset else []
        self._set_epochs(self.epochs[: bisect_left(self.epochs, self.end_offset, key=_START)])
        return removed

    def _cut_off(self, offset: int) -> list[Batch]:
        index = self._index(self._existing(offset))
        end = self.end_offset = min(offset, self._bases[index])
        removed = self._batches[index:]
        del self._batches[index:]
        del self._bases[index:], self._bytes_before[index + 1 :]
        self._bases.append(end)
        self._timestamps.keep(index)
        self._append_times.keep(index)
        if self._gaps is not None:
            self._gaps.cut(end)
        self.high_watermark = min(self.high_watermark, end)
        return removed

    def start_over(self, offset: int) -> list[Batch]:
        """Drop everything, and begin at another offset. Return what there was."""
        removed = self._batches[self._head :]
        self.start_offset = self.end_offset = self.high_watermark = offset
        self._set_epochs([])
        self._lay_out([])
        return removed

    def begin_epoch(self, epoch: int) -> None:
        """Let the next records be those of a new leader, unless its epoch has begun already.

        An epoch that has no records is forgotten when the next one begins.
        """
        if epoch > self.last_epoch:
            if self.epochs and self.epochs[-1][1] == self.end_offset:
                self.epochs.pop()
            self.epochs.append((epoch, self.end_offset))
            self.last_epoch = epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the highest known epoch that is not above this one, and the offset after it.

        That is the start of the next known epoch, or the end of the log. If all known epochs are
        above this one, the epoch is NOWHERE and the offset is where they begin: what other replicas
        have of this epoch is before it, or not in this log.
        """
        index = bisect_right(self.epochs, epoch, key=_EPOCH)
        end = self.epochs[index][1] if index < len(self.epochs) else self.end_offset
        return (self.epochs[index - 1][0] if index else NOWHERE), end

    def _set_epochs(self, epochs: list[tuple[int, int]]) -> None:
        self.epochs = epochs
        self.last_epoch = epochs[-1][0] if epochs else NOWHERE

    def compact(self, up_to: int, tombstones_before_us: int | None = None) -> list[Batch]:
        """Drop records below `up_to` that a later record of their key replaces. Return them.

        The later record may be anywhere below the high watermark: a record that could be cut off
        replaces none. Records without a key stay. A tombstone, a record with the value `None`, is
        dropped even if it is the last of its key, once it was appended before
        `tombstones_before_us`. Neither the start nor the end of the log moves.
        """
        safe = self._index(self._existing(self.high_watermark))
        kept, gone = compacted(self._batches[self._head : safe], up_to, tombstones_before_us)
        if gone:
            self._lay_out(kept + self._batches[safe:])
        return gone

    def _remove_empty_batches(self) -> None:
        del self._batches[: self._head]
        del self._bases[: self._head]
        del self._bytes_before[: self._head]
        self._timestamps.drop(self._head)
        self._append_times.drop(self._head)
        self._head = 0

    def _existing(self, offset: int) -> int:
        """Return the first offset, from this one on, that has a record; the end if none has."""
        return offset if self._gaps is None else self._gaps.skip(offset)

    def _index(self, offset: int) -> int:
        """Return the index of the batch with an offset; for the end, the index after the last."""
        return bisect_right(self._bases, offset, self._head) - 1

    def _bytes_below(self, offset: int) -> int:
        """Return the number of bytes before an offset of the log, dropped ones included."""
        offset = self._existing(offset)
        return self._position(self._index(offset), offset)

    # Below, `index` is the index of the batch with the first offset, and that offset has a record:
    # the callers have looked it up.

    def _position(self, index: int, offset: int) -> int:
        """Return the number of bytes before an offset, dropped ones included."""
        skipped = offset - self._bases[index]
        before = self._bytes_before[index]
        return before + self._batches[index][:skipped].bytes if skipped else before

    def _reach(self, index: int, offset: int, max_bytes: int) -> int:
        """Return the end of a read of `max_bytes`: the end of a batch, or inside the first one."""
        limit = self._position(index, offset) + max_bytes
        full = bisect_right(self._bytes_before, limit, index) - 1
        if full > index:
            return self._bases[full]
        first = self._batches[index][offset - self._bases[index] :]
        return offset + max(1, first.fitting(max_bytes))

    def _between(self, index: int, start: int, end: int) -> list[Batch]:
        """List the batches of a range, with the first and the last cut to it."""
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
    """The running maximum of a time over the batches: bisection finds the first that reaches it.

    It is brought up to date only by a search, as searches by time are rare.
    """

    def __init__(self, time_of: Callable[[Batch], int]) -> None:
        self._time_of = time_of
        self._latest: list[int] = []

    def find(self, batches: Sequence[Batch], head: int, time_us: int) -> int:
        """Find the first batch, from `head` on, that reaches a time; the end if none does."""
        latest = self._latest
        if head < len(latest) and latest[head] != self._time_of(batches[head]):
            del latest[head:]  # a batch with a later time was dropped before it
        latest += [0] * (head - len(latest))
        known = latest.pop() if len(latest) > head else None
        new = batches[len(latest) if known is None else len(latest) + 1 :]
        latest += accumulate(map(self._time_of, new), max, initial=known)
        return bisect_left(latest, time_us, head)

    def drop(self, count: int) -> None:
        """Forget the first `count` batches."""
        del self._latest[:count]

    def keep(self, count: int) -> None:
        """Forget all but the first `count` batches."""
        del self._latest[count:]
