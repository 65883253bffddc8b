"""Tracks consumer-group lag from the event log, vectorised.

For each partition it is known when each batch was appended, and for each reader of it (a group, or
with broadcast delivery a consumer) which records are done. Records are counted by rank, their
position in the order of appending. Unlike offsets, ranks have no gaps, so an offset that no record
ever had does not count as lag.

Rows come in order, many at a time. Some rows change a reader's position explicitly: a reader joins,
its position is reset, a log is lost. The rows between two of them are processed at once. For every
second that ended meanwhile this gives the number of records done, and the rank up to which all
records are done.

The same is known of records delivered. It gives the records that still wait for their delivery, and
the delivery gaps: times in which records waited and none of the partition was delivered.

The event log does not say which records compaction removes. A group that acknowledges record by
record and begins with a topic that was compacted before is assumed to have these in its lag, too.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from ..durations import SECOND_US
from ..events import kinds
from ..events.schema import Event
from .outages import LongestOutages, PartitionKey
from .series import Ints, Series
from .summary import Outage

APPENDED: Final = 0
DELIVERED: Final = 1
ACKNOWLEDGED: Final = 2
DISCARDED: Final = 3
"""Dead-lettered, archived or lost to a group: the group will not consume it any more."""
POSITION_CHANGE: Final = 4
"""Changes a position explicitly; its event is passed along with the rows."""

THIN_US: Final = 10 * SECOND_US
"""Batches that all readers have consumed are merged if they were appended within this time."""

_NONE: Final[Ints] = np.zeros(0, np.int64)


@attrs.frozen
class Rows:
    """Rows of one partition, in order, as columns."""

    clock_us: Ints
    """Time of the event; never decreases."""
    role: npt.NDArray[np.int8]
    """One of the constants above."""
    reader: npt.NDArray[np.int32]
    """Number of the reader; -1 for none."""
    base: Ints
    """First offset of the range."""
    count: Ints
    """Number of records in the range."""
    append_us: Ints
    """Time of the append."""
    commits: npt.NDArray[np.bool_]
    """Whether an acknowledgement is a commit of an offset."""
    counted: Ints
    """Number of records that count as acknowledged, filled in by `PartitionLag.follow`. The first
    commit of a group also covers records that the group never had to consume."""


@attrs.define(eq=False)
class ReaderLag:
    """The lag of a reader over all partitions."""

    records: Series = attrs.Factory(Series)
    """Lag in records at the end of each second."""
    age_us: Series = attrs.Factory(Series)
    """Lag in µs at the end of each second."""
    partitions: int = 0
    """Number of partitions in which it has had a position."""
    redelivered: int = 0
    """Records delivered again, in a group that commits offsets."""
    lost: int = 0
    """Records that it had still to consume when the log was lost."""
    gaps: LongestOutages = attrs.Factory(LongestOutages)
    """Delivery gaps that have ended."""


@attrs.frozen
class WaitingRecords:
    """Records that wait, by the time of their append."""

    append_us: Ints
    """Times of appends."""
    count: Ints
    """Number of records for each of these times."""


class AppendedBatches:
    """The batches of a partition: first offset, first rank, count and append time of each."""

    def __init__(self) -> None:
        self._columns = np.zeros((4, 256), np.int64)
        self._size = 0
        self._thinned = 0

    def extend(self, base: Ints, rank: Ints, count: Ints, time_us: Ints) -> None:
        """Add batches."""
        size = self._size + len(base)
        if size > self._columns.shape[1]:
            self._columns = np.pad(self._columns, ((0, 0), (0, 2 * size)))
        self._columns[:, self._size : size] = base, rank, count, time_us
        self._size = size

    def ranks(self, offsets: Ints) -> Ints:
        """Return the ranks of offsets. In a gap, that is the rank of the next record."""
        if not self._size:
            return np.zeros(len(offsets), np.int64)
        base, rank, count, _ = self._columns[:, : self._size]
        batch = np.maximum(np.searchsorted(base, offsets, "right") - 1, 0)
        inside: Ints = rank[batch] + np.clip(offsets - base[batch], 0, count[batch])
        return inside

    def times_us(self, ranks: Ints) -> Ints:
        """Return the append times of the records with these ranks."""
        if not self._size:
            return np.zeros(len(ranks), np.int64)
        _, rank, _, time_us = self._columns[:, : self._size]
        times: Ints = time_us[np.searchsorted(rank, ranks, "right") - 1]
        return times

    def missing_from(self, known: "RankSet") -> WaitingRecords:
        """Return the records that are not in a set."""
        _, rank, count, time_us = self._columns[:, : self._size]
        missing = known.missing_before(rank + count) - known.missing_before(rank)
        some = np.flatnonzero(missing)
        return WaitingRecords(time_us[some], missing[some])

    def thin(self, up_to: int) -> None:
        """Merge batches below a rank that were appended within THIN_US of each other."""
        first = self._thinned
        base, rank, count, time_us = self._columns[:, : self._size]
        last = int(np.searchsorted(rank + count, up_to, "right"))
        if last - first < 2:
            return
        part = slice(first, last)
        slot, ends = time_us[part] // THIN_US, base[part] + count[part]
        begins = np.ones(last - first, np.bool_)
        begins[1:] = (slot[1:] != slot[:-1]) | (base[part][1:] != ends[:-1])
        heads = np.flatnonzero(begins)
        kept = self._columns[:, part][:, heads]
        kept[2] = np.add.reduceat(count[part], heads)
        rest = self._columns[:, last : self._size]
        self._columns = np.concatenate([self._columns[:, :first], kept, rest], axis=1)
        self._size = self._columns.shape[1]
        self._thinned = first + len(heads)


class RankSet:
    """A set of records: all before a rank, and ranges beyond it."""

    def __init__(self, rank: int) -> None:
        self.reach = rank
        """All records before this rank are in the set."""
        self.starts = self.ends = _NONE
        """Ranges of ranks beyond `reach` that are in the set; sorted, with gaps between them."""

    def beyond(self) -> int:
        """Count the records beyond `reach`."""
        return int((self.ends - self.starts).sum())

    def missing_before(self, ranks: Ints) -> Ints:
        """Count for each rank the records before it that are not in the set."""
        missing = np.maximum(ranks - self.reach, 0)
        if not len(self.starts):
            return missing
        ranges = np.searchsorted(self.starts, ranks, "left")
        sizes = np.concatenate(([0], (self.ends - self.starts).cumsum()))
        last_end = np.concatenate(([0], self.ends))[ranges]
        excess = np.maximum(last_end - ranks, 0) * (ranges > 0)
        found: Ints = missing - sizes[ranges] + excess
        return found

    def move(self, rank: int) -> None:
        """Add all records before a rank."""
        if rank > self.reach:
            left = self.ends > rank
            self.reach, self.starts, self.ends = rank, self.starts[left], self.ends[left]
            if len(self.starts) and self.starts[0] <= rank:
                self.reach = int(self.ends[0])
                self.starts, self.ends = self.starts[1:], self.ends[1:]

    def add_up_to(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Add all records before the end of each range, one range after the other.

        Return `reach` and `beyond`, before the first and after each range, and the number of
        records of each range that were not in the set.
        """
        reach = np.maximum.accumulate(np.concatenate(([self.reach], ends)))
        self.reach = int(reach[-1])
        new = np.maximum(ends - np.maximum(starts, reach[:-1]), 0)
        return reach, np.zeros(len(reach), np.int64), new

    def add(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Add ranges, one after the other; return the same as `add_up_to`.

        The ranges must not overlap. In the order of ranks, all records up to the end of a range are
        in the set as soon as the latest of the ranges up to there has arrived.
        """
        if not len(starts):
            return np.array([self.reach]), np.array([self.beyond()]), _NONE
        starts = np.maximum(starts, self.reach)
        ends = np.maximum(ends, starts)
        new = ends - starts
        known_count = self.reach + self.beyond() + np.concatenate(([0], new.cumsum()))
        arrived = np.concatenate((np.full(len(self.starts), -1), np.arange(len(starts))))
        starts = np.concatenate((self.starts, starts))
        order = np.argsort(starts, kind="stable")
        arrived, starts = arrived[order], starts[order]
        ends = np.maximum.accumulate(np.concatenate((self.ends, ends))[order])
        gaps = starts > np.concatenate(([self.reach], ends[:-1]))
        contiguous = int(gaps.argmax()) if gaps.any() else len(gaps)
        known = np.concatenate(([self.reach], ends[:contiguous]))
        since = np.maximum.accumulate(arrived[:contiguous])
        reach = known[np.searchsorted(since, np.arange(-1, len(new)), "right")]
        heads = np.flatnonzero(gaps[contiguous:]) + contiguous
        self.reach, self.starts = int(known[-1]), starts[heads]
        self.ends = ends[np.append(heads[1:], len(ends)) - 1] if len(heads) else _NONE
        return reach, known_count - reach, new

    def cover(self, starts: Ints, ends: Ints) -> Ints:
        """Add ranges that may overlap, one after the other.

        Return `reach`, before the first and after each range. The ranges are cut into pieces at all
        their bounds; `reach` is the start of the first piece that no range so far has covered.
        """
        starts = np.maximum(np.concatenate((self.starts, starts)), self.reach)
        ends = np.maximum(np.concatenate((self.ends, ends)), starts)
        arrived = np.arange(len(starts)) - len(self.starts)
        cuts = np.unique(np.concatenate(([self.reach], starts, ends)))
        first, last = np.searchsorted(cuts, starts), np.searchsorted(cuts, ends)
        size = last - first
        pieces = np.repeat(first - size.cumsum() + size, size) + np.arange(size.sum())
        never = len(starts)
        covered = np.full(len(cuts), never)
        np.minimum.at(covered, pieces, np.repeat(np.maximum(arrived, -1), size))
        all_covered = np.maximum.accumulate(covered)
        reach: Ints = cuts[np.searchsorted(all_covered, np.arange(-1, arrived[-1] + 1), "right")]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], covered < never, [0]))))
        begin, end = cuts[edges[::2]], cuts[edges[1::2]]
        beyond = begin > reach[-1]
        self.reach, self.starts, self.ends = int(reach[-1]), begin[beyond], end[beyond]
        return reach


class ReaderPosition:
    """The position of a reader in a partition."""

    def __init__(self, rank: int, now_us: int) -> None:
        self.joined = True
        """Whether it has a position. The position of a removed subscription is forgotten."""
        self.done = RankSet(rank)
        """Records that are done."""
        self.received = RankSet(rank)
        """Records that were delivered, or are done without."""
        self.commits = False
        """Whether it commits offsets; otherwise it acknowledges records in any order."""
        self.delivered = 0
        """Offset after the last delivered record."""
        self.last_us = now_us
        """Time of the last delivery, or of the position's beginning."""

    def move(self, rank: int) -> None:
        """Mark all records before a rank as done."""
        self.done.move(rank)
        self.received.move(rank)

    def begin(self, rank: int) -> None:
        """Set a new position after the old one was forgotten."""
        self.joined = True
        self.done, self.received = RankSet(rank), RankSet(rank)

    def finish(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Mark ranges as done, one after the other, and return what `RankSet.add` does."""
        done = self.done
        return done.add_up_to(starts, ends) if self.commits else done.add(starts, ends)

    def receive(self, starts: Ints, ends: Ints) -> Ints:
        """Mark ranges as delivered; return up to which rank all are, before and after each."""
        received = self.received
        return received.add_up_to(starts, ends)[0] if self.commits else received.cover(starts, ends)

    def count_redelivered(self, base: Ints, count: Ints) -> Ints:
        """Count redelivered records in each range: those below the highest offset delivered before.

        Only for readers that commit offsets. With others, redelivery is marked in the event.
        """
        top = np.maximum.accumulate(np.concatenate(([self.delivered], base + count)))
        self.delivered = int(top[-1])
        return np.clip(top[:-1] - base, 0, count) if self.commits else np.zeros_like(count)


class PartitionLag:
    """Tracks the lag of all readers of one partition."""

    def __init__(self, key: PartitionKey, lags: Sequence[ReaderLag], warm_up_us: int = 0) -> None:
        """Begin an empty partition. `lags` has the lag of each reader, by its number."""
        self._key = key
        self._lags = lags
        self._warm_up_us = warm_up_us
        self._appends = AppendedBatches()
        self._end = 0
        """Number of records appended."""
        self._second = 0
        """The first second at whose end the lag has not been recorded yet."""
        self._readers: dict[int, ReaderPosition] = {}

    def follow(self, rows: Rows, changes: Sequence[Event]) -> None:
        """Process rows. `changes` are the events of the rows with the role POSITION_CHANGE."""
        fresh = np.flatnonzero(rows.role == APPENDED)
        ends = np.zeros(len(rows.role) + 1, np.int64)
        ends[fresh + 1] = rows.count[fresh]
        ends = self._end + ends.cumsum()
        self._appends.extend(
            rows.base[fresh], ends[fresh], rows.count[fresh], rows.append_us[fresh]
        )
        start = 0
        changed = np.flatnonzero(rows.role == POSITION_CHANGE).tolist()
        for row, event in zip(changed, changes, strict=True):
            self._process(rows, start, row, ends, int(rows.clock_us[row]))
            now_us = int(rows.clock_us[row])
            self._change_position(event, int(rows.reader[row]), int(ends[row]), now_us)
            start = row + 1
        self._process(rows, start, len(rows.role), ends, int(rows.clock_us[-1]))
        self._end = int(ends[-1])

    def catch_up(self, now_us: int) -> None:
        """Record the lag at the end of each second up to now, without further rows."""
        self._process(_NO_ROWS, 0, 0, np.array([self._end]), now_us)

    def behind(self, now_us: int) -> dict[int, tuple[int, int]]:
        """Return the present lag of each reader, in records and µs."""
        found = {}
        for number, reader in self._readers.items():
            done = reader.done
            remaining = self._end - done.reach - done.beyond() if reader.joined else 0
            oldest_us = self._appends.times_us(np.array([done.reach]))[0] if remaining else now_us
            found[number] = remaining, max(0, now_us - int(oldest_us))
        return found

    def waiting(self) -> Iterator[tuple[int, WaitingRecords, WaitingRecords]]:
        """Return the records that wait for delivery and for acknowledgement, for each reader."""
        for number, reader in self._readers.items():
            if reader.joined:
                undelivered = self._appends.missing_from(reader.received)
                yield number, undelivered, self._appends.missing_from(reader.done)

    def open_gaps(self, now_us: int) -> dict[int, Outage]:
        """Return the delivery gap of each reader that has one now."""
        found = {}
        for number, reader in self._readers.items():
            gap = self._open_gap(reader, self._end, now_us)
            if gap is not None:
                found[number] = gap
        return found

    def close_gaps(self, end: int, now_us: int) -> None:
        """End all delivery gaps; `end` is the number of records appended."""
        for number, reader in self._readers.items():
            self._close_gap(number, reader, end, now_us)

    def forget(self, now_us: int) -> None:
        """Record the lag and the gaps up to the partition's deletion."""
        self.catch_up(now_us)
        self.close_gaps(self._end, now_us)

    def thin(self) -> None:
        """Merge batches that all readers have consumed."""
        reaches = [reader.done.reach for reader in self._readers.values() if reader.joined]
        self._appends.thin(min(reaches, default=self._end))

    def _process(self, rows: Rows, start: int, stop: int, ends: Ints, until_us: int) -> None:
        """Process rows between two changes of positions, and all seconds that end by a time.

        `ends` is the number of records appended before each row.
        """
        instants = np.arange(self._second + 1, until_us // SECOND_US + 1) * SECOND_US
        if start == stop and not len(instants):
            return
        part = slice(start, stop)
        before = np.searchsorted(rows.clock_us[part], instants, "left")
        for number, reader in self._readers.items():
            if not reader.joined:
                continue
            lag = self._lags[number]
            mine = np.flatnonzero(rows.reader[part] == number) + start
            got = rows.role[mine] == DELIVERED
            done = mine[~got]
            reader.commits = reader.commits or bool(rows.commits[done].any())
            starts = self._appends.ranks(rows.base[mine])
            stops = starts + rows.count[mine]
            if len(mine):
                received = reader.receive(starts, stops)[:-1][got]
                self._count_delivered(reader, lag, rows, mine[got], received, ends)
            reach, beyond, new = reader.finish(starts[~got], stops[~got])
            rows.counted[done] = new
            if len(instants):
                past = np.searchsorted(done, before + start, "left")
                remaining = ends[before + start] - reach[past] - beyond[past]
                age_us = instants - self._appends.times_us(reach[past])
                lag.records.add_from(self._second, remaining)
                lag.age_us.raise_from(self._second, np.where(remaining > 0, age_us, 0))
        self._second += len(instants)

    def _count_delivered(
        self,
        reader: ReaderPosition,
        lag: ReaderLag,
        rows: Rows,
        got: npt.NDArray[np.intp],
        received: Ints,
        ends: Ints,
    ) -> None:
        """Count redelivered records and delivery gaps.

        `got` are the rows of deliveries, `received` the ranks up to which all records had been
        delivered before each.
        """
        if not len(got):
            return
        times_us = rows.clock_us[got]
        again = reader.count_redelivered(rows.base[got], rows.count[got])
        lag.redelivered += int(again[times_us >= self._warm_up_us].sum())
        before_us = np.concatenate(([reader.last_us], times_us[:-1]))
        reader.last_us = int(times_us[-1])
        # Most deliveries follow the last one closely: look up the others only.
        long = (times_us - before_us >= lag.gaps.shortest_us) & (received < ends[got])
        found = np.flatnonzero(long)
        if len(found):
            since_us = np.maximum(before_us[found], self._appends.times_us(received[found]))
            since_us = np.maximum(since_us, self._warm_up_us)
            lasted_us = times_us[found] - since_us
            for since, lasted in zip(since_us.tolist(), lasted_us.tolist(), strict=True):
                lag.gaps.add(Outage(since, lasted, *self._key))

    def _open_gap(self, reader: ReaderPosition, end: int, now_us: int) -> Outage | None:
        """Return the gap that lasts until now, if records wait."""
        if not reader.joined or reader.received.reach >= end:
            return None
        oldest_us = int(self._appends.times_us(np.array([reader.received.reach]))[0])
        since_us = max(reader.last_us, oldest_us, self._warm_up_us)
        return Outage(since_us, now_us - since_us, *self._key)

    def _close_gap(self, number: int, reader: ReaderPosition, end: int, now_us: int) -> None:
        gap = self._open_gap(reader, end, now_us)
        if gap is not None:
            self._lags[number].gaps.add(gap)
        reader.last_us = now_us

    def _change_position(self, event: Event, number: int, end: int, now_us: int) -> None:
        """Change positions as an event says. `end` is the number of records appended before it."""
        reader = self._readers.get(number)
        if event.kind == kinds.LOST:
            self.close_gaps(end, now_us)
            for each, behind in self._readers.items():
                if behind.joined:
                    self._lags[each].lost += end - behind.done.reach - behind.done.beyond()
                    behind.move(end)
        elif event.kind == kinds.SUBSCRIPTION_REMOVED:
            if reader is not None:
                self._close_gap(number, reader, end, now_us)
                reader.joined = False
        elif event.base_offset is not None:
            rank = min(end, int(self._appends.ranks(np.array([event.base_offset]))[0]))
            if reader is None:
                reader = self._readers[number] = ReaderPosition(rank, now_us)
                self._lags[number].partitions += 1
            elif reader.joined and event.kind != kinds.OFFSET_REWOUND:
                if rank > reader.received.reach:
                    self._close_gap(number, reader, end, now_us)
                reader.move(rank)
            else:
                reader.begin(rank)
                reader.last_us = now_us
            sets_offset = event.kind in (kinds.OFFSET_RESET, kinds.OFFSET_REWOUND)
            reader.commits = reader.commits or sets_offset


_NO_ROWS: Final = Rows(
    _NONE, np.zeros(0, np.int8), np.zeros(0, np.int32), _NONE, _NONE, _NONE,
    np.zeros(0, np.bool_), _NONE,
)  # fmt: skip
