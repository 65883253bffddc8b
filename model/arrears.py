"""What groups have still to consume, followed along the event log without a row of Python.

For each partition it is known which records were appended when, and for each reader of it (a
group, or a subscriber of a broadcast) which of them are done. Records are counted by rank, their
place in the order of appending: unlike offsets ranks have no gaps, so that a range of offsets that
never was does not look like one that was missed.

Rows come in order, many at a time. Between two rows that move a position by themselves (a reader
joins, a log is lost), all that happened is worked out at once, for every second that ended
meanwhile: how many records were done, and up to where all of them.

The log does not say which records compaction removes. So a group that acknowledges record by
record and comes to a topic that has been compacted before is taken to owe these as well.
"""

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from . import kinds
from .durations import SECOND_US
from .events import Event
from .series import Ints, Series

APPENDED: Final = 0
DELIVERED: Final = 1
ACKNOWLEDGED: Final = 2
OTHERWISE_DONE: Final = 3
"""Dead-lettered, archived or lost: the group is not to consume it any more."""
MARK: Final = 4
"""A row that moves positions by itself: there is an event for it."""

THIN_US: Final = 10 * SECOND_US
"""Of what all readers have consumed, an append time is kept for so long a time at least."""

_NONE: Final[Ints] = np.zeros(0, np.int64)


@attrs.frozen
class Rows:
    """Rows of one partition, in order, as columns."""

    clock_us: Ints
    """Never goes back."""
    role: npt.NDArray[np.int8]
    reader: npt.NDArray[np.int32]
    """The number of a reader; -1 for none."""
    base: Ints
    count: Ints
    append_us: Ints
    commits: npt.NDArray[np.bool_]
    """Whether an acknowledgement is a commit of a position."""
    counted: Ints
    """Of each row the records that count, to be filled in: a first commit acknowledges also what
    its group never had to consume."""


@attrs.define(eq=False)
class Arrears:
    """How far behind a reader is in all partitions, and what it got again."""

    records: Series = attrs.Factory(Series)
    age_us: Series = attrs.Factory(Series)
    partitions: int = 0
    redelivered: int = 0
    lost: int = 0


class Appends:
    """The batches of a partition: at which offset and rank each begins, and when it came."""

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
        """Give the ranks of offsets; where nothing was appended, that of what comes next."""
        if not self._size:
            return np.zeros(len(offsets), np.int64)
        base, rank, count, _ = self._columns[:, : self._size]
        place = np.maximum(np.searchsorted(base, offsets, "right") - 1, 0)
        inside: Ints = rank[place] + np.clip(offsets - base[place], 0, count[place])
        return inside

    def times_us(self, ranks: Ints) -> Ints:
        """Say when the records of these ranks were appended."""
        if not self._size:
            return np.zeros(len(ranks), np.int64)
        _, rank, _, time_us = self._columns[:, : self._size]
        times: Ints = time_us[np.searchsorted(rank, ranks, "right") - 1]
        return times

    def thin(self, up_to: int) -> None:
        """Keep less of what is below a rank: one entry for batches that came at about a time."""
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


class Reader:
    """A reader's position in a partition."""

    def __init__(self, rank: int) -> None:
        self.joined = True
        """Whether it has a position: one that is forgotten is owed nothing."""
        self.reach = rank
        """All records before this rank are done."""
        self.starts = self.ends = _NONE
        """What else is done: ranges of ranks, in order and apart."""
        self.commits = False
        """Whether it commits positions, or acknowledges records in any order."""
        self.delivered = 0
        """Where what has been delivered ends."""

    def beyond(self) -> int:
        """How many records are done behind one that is not."""
        return int((self.ends - self.starts).sum())

    def move(self, rank: int) -> None:
        """Take all before a rank as done."""
        if rank > self.reach:
            left = self.ends > rank
            self.reach, self.starts, self.ends = rank, self.starts[left], self.ends[left]
            if len(self.starts) and self.starts[0] <= rank:
                self.reach = int(self.ends[0])
                self.starts, self.ends = self.starts[1:], self.ends[1:]

    def begin(self, rank: int) -> None:
        """Have a position again, after one that was forgotten."""
        self.joined = True
        self.reach, self.starts, self.ends = rank, _NONE, _NONE

    def finish(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Take ranges as done, one after the other.

        Gives up to where all is done and how much is done beyond, first as it is and then after
        each range; and how many records of each range had not been done.
        """
        if not len(starts):
            return np.array([self.reach]), np.array([self.beyond()]), _NONE
        return self._commit(starts, ends) if self.commits else self._settle(starts, ends)

    def _commit(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Move the position to where each range ends, never back."""
        reach = np.maximum.accumulate(np.concatenate(([self.reach], ends)))
        self.reach = int(reach[-1])
        new = np.maximum(ends - np.maximum(starts, reach[:-1]), 0)
        return reach, np.zeros(len(reach), np.int64), new

    def _settle(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """Put ranges to those that are done beyond the position, and move it as far as it goes.

        In the order of ranks, all up to the end of a range is done as soon as the last of the
        ranges up to there has come.
        """
        starts = np.maximum(starts, self.reach)
        ends = np.maximum(ends, starts)
        new = ends - starts
        done = self.reach + self.beyond() + np.concatenate(([0], new.cumsum()))
        came = np.concatenate((np.full(len(self.starts), -1), np.arange(len(starts))))
        starts = np.concatenate((self.starts, starts))
        order = np.argsort(starts, kind="stable")
        came, starts = came[order], starts[order]
        ends = np.maximum.accumulate(np.concatenate((self.ends, ends))[order])
        gaps = starts > np.concatenate(([self.reach], ends[:-1]))
        whole = int(gaps.argmax()) if gaps.any() else len(gaps)
        known = np.concatenate(([self.reach], ends[:whole]))
        since = np.maximum.accumulate(came[:whole])
        reach = known[np.searchsorted(since, np.arange(-1, len(new)), "right")]
        heads = np.flatnonzero(gaps[whole:]) + whole
        self.reach, self.starts = int(known[-1]), starts[heads]
        self.ends = ends[np.append(heads[1:], len(ends)) - 1] if len(heads) else _NONE
        return reach, done - reach, new

    def again(self, base: Ints, count: Ints) -> int:
        """Count what is delivered though something later has been; for who commits."""
        top = np.maximum.accumulate(np.concatenate(([self.delivered], base + count)))
        self.delivered = int(top[-1])
        return int(np.clip(top[:-1] - base, 0, count).sum()) if self.commits else 0


class Ledger:
    """A partition: what was appended, and who has consumed what of it."""

    def __init__(self, arrears: Sequence[Arrears]) -> None:
        """Begin with nothing; `arrears` are those of all readers, by number."""
        self._arrears = arrears
        self._appends = Appends()
        self._end = 0
        """How many records were appended."""
        self._second = 0
        """The first second of which it is not known how far behind readers were at its end."""
        self._readers: dict[int, Reader] = {}

    def follow(self, rows: Rows, marks: Sequence[Event]) -> None:
        """Take in what happened; `marks` are the events of the rows that are marks."""
        fresh = np.flatnonzero(rows.role == APPENDED)
        ends = np.zeros(len(rows.role) + 1, np.int64)
        ends[fresh + 1] = rows.count[fresh]
        ends = self._end + ends.cumsum()
        self._appends.extend(
            rows.base[fresh], ends[fresh], rows.count[fresh], rows.append_us[fresh]
        )
        start = 0
        places = np.flatnonzero(rows.role == MARK).tolist()
        for place, event in zip(places, marks, strict=True):
            self._pass(rows, start, place, ends, int(rows.clock_us[place]))
            self._heed(event, int(rows.reader[place]), int(ends[place]))
            start = place + 1
        self._pass(rows, start, len(rows.role), ends, int(rows.clock_us[-1]))
        self._end = int(ends[-1])

    def catch_up(self, now_us: int) -> None:
        """Work out how far behind readers were at each second up to now, with no more rows."""
        self._pass(_NO_ROWS, 0, 0, np.array([self._end]), now_us)

    def behind(self, now_us: int) -> dict[int, tuple[int, int]]:
        """How far behind each reader is now, in records and µs."""
        found = {}
        for number, reader in self._readers.items():
            owed = self._end - reader.reach - reader.beyond() if reader.joined else 0
            oldest_us = self._appends.times_us(np.array([reader.reach]))[0] if owed else now_us
            found[number] = owed, max(0, now_us - int(oldest_us))
        return found

    def thin(self) -> None:
        """Keep less of what all readers have consumed."""
        reaches = [reader.reach for reader in self._readers.values() if reader.joined]
        self._appends.thin(min(reaches, default=self._end))

    def _pass(self, rows: Rows, start: int, stop: int, ends: Ints, until_us: int) -> None:
        """Follow rows between two marks, and all seconds that end until a time.

        `ends` says how many records were appended before each row.
        """
        instants = np.arange(self._second + 1, until_us // SECOND_US + 1) * SECOND_US
        if start == stop and not len(instants):
            return
        part = slice(start, stop)
        before = np.searchsorted(rows.clock_us[part], instants, "left")
        for number, reader in self._readers.items():
            if not reader.joined:
                continue
            arrears = self._arrears[number]
            mine = np.flatnonzero(rows.reader[part] == number) + start
            role = rows.role[mine]
            got = mine[role == DELIVERED]
            done = mine[role != DELIVERED]
            reader.commits = reader.commits or bool(rows.commits[done].any())
            if len(got):
                arrears.redelivered += reader.again(rows.base[got], rows.count[got])
            starts = self._appends.ranks(rows.base[done])
            reach, beyond, new = reader.finish(starts, starts + rows.count[done])
            rows.counted[done] = new
            if len(instants):
                past = np.searchsorted(done, before + start, "left")
                owed = ends[before + start] - reach[past] - beyond[past]
                age_us = instants - self._appends.times_us(reach[past])
                arrears.records.add_from(self._second, owed)
                arrears.age_us.raise_from(self._second, np.where(owed > 0, age_us, 0))
        self._second += len(instants)

    def _heed(self, event: Event, number: int, end: int) -> None:
        """Move positions as an event says by itself, when so many records were appended."""
        reader = self._readers.get(number)
        if event.kind == kinds.LOST:
            for each, behind in self._readers.items():
                if behind.joined:
                    self._arrears[each].lost += end - behind.reach - behind.beyond()
                    behind.move(end)
        elif event.kind == kinds.SUBSCRIPTION_REMOVED:
            if reader is not None:
                reader.joined = False
        elif event.base_offset is not None:
            rank = min(end, int(self._appends.ranks(np.array([event.base_offset]))[0]))
            if reader is None:
                reader = self._readers[number] = Reader(rank)
                self._arrears[number].partitions += 1
            elif reader.joined:
                reader.move(rank)
            else:
                reader.begin(rank)
            reader.commits = reader.commits or event.kind == kinds.OFFSET_RESET


_NO_ROWS: Final = Rows(
    _NONE, np.zeros(0, np.int8), np.zeros(0, np.int32), _NONE, _NONE, _NONE,
    np.zeros(0, np.bool_), _NONE,
)  # fmt: skip
