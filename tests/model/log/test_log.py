"""The log in memory compared with a plain list of records, for all its operations."""

import gc
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wavetank.model.errors import BadValueError
from wavetank.model.log.batch import Batch
from wavetank.model.log.log import MemoryLog, OffsetOutOfRangeError
from wavetank.model.log.record import Record

TIMES = st.integers(-5, 30)
SIZES = st.integers(0, 30)
KEYS = st.integers(0, 7)
NUMBERS = st.integers(0, 99)
NEWER = st.sampled_from([0, 0, 1, 2])


@st.composite
def columns(draw: st.DrawFn, count: int, ints: st.SearchStrategy[int]) -> Any:
    """Draw ints in one of the forms of a column."""
    cells = draw(st.lists(ints, min_size=count, max_size=count))
    return draw(
        st.sampled_from(
            [cells[0], tuple(cells), np.array(cells), range(cells[0], cells[0] + count)]
        )
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Draw a batch that may be a slice of another, or appended elsewhere before."""
    count = draw(st.integers(1, 6))
    perhaps = st.lists(st.none() | KEYS, min_size=count, max_size=count)
    batch = Batch(
        "shop", draw(st.integers(0, 9)), count,
        keys=draw(st.none() | columns(count, KEYS) | perhaps),
        values=draw(st.none() | columns(count, NUMBERS) | perhaps),
        timestamps_us=draw(columns(count, TIMES)), sizes=draw(columns(count, SIZES)),
    )  # fmt: skip
    batch = batch[draw(st.integers(0, count - 1)) :]
    return batch.stamped(7, 7, 7) if draw(st.booleans()) else batch


def records_of(found: tuple[Batch, ...]) -> list[Record]:
    return [record for batch in found for record in batch.records("orders", 0)]


class LogAndList(RuleBasedStateMachine):
    """Applies the same operations to a log and to a list of (number of the batch, record).

    Compaction cuts batches into pieces; each remaining piece gets a new number.
    """

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.log = MemoryLog(start)
        self.start = self.end = start
        self.kept: list[tuple[int, Record]] = []
        self.tombstones: set[int] = set()
        self.appended = 0
        self.high = start
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = []
        self.epoch_of: dict[int, int] = {}

    def offsets(self, data: st.DataObject) -> int:
        """Draw an offset of the log, or its end."""
        return data.draw(st.integers(self.start, self.end))

    def from_offset(self, offset: int) -> list[tuple[int, Record]]:
        return [(number, record) for number, record in self.kept if record.offset >= offset]

    @rule(several=st.lists(st.tuples(batches(), TIMES, NEWER), min_size=1, max_size=9))
    def append(self, several: list[tuple[Batch, int, int]]) -> None:
        for batch, now_us, newer in several:
            self.epoch += newer
            stamped = self.log.append(batch, now_us, self.epoch)
            assert (stamped.base_offset, stamped.append_time_us) == (self.end, now_us)
            assert (stamped.epoch, stamped.sequence) == (self.epoch, batch.sequence)
            self.added(batch, now_us)
            self.high = self.end

    @rule(several=st.lists(st.tuples(batches(), TIMES, NEWER, st.integers(0, 3)), max_size=9))
    def add_what_another_replica_has(self, several: list[tuple[Batch, int, int, int]]) -> None:
        for batch, now_us, newer, gap in several:
            self.epoch += newer
            self.end += gap
            self.log.add(batch.stamped(self.end, now_us, self.epoch))
            self.added(batch, now_us)

    def added(self, batch: Batch, now_us: int) -> None:
        """Add a batch to the list."""
        self.begun()
        for record in batch.records("orders", 0):
            placed = record._replace(offset=self.end, append_time_us=now_us)
            self.kept.append((self.appended, placed))
            if batch.values is not None and record.value is None:
                self.tombstones.add(self.end)
            self.epoch_of[self.end] = self.epoch
            self.end += 1
        self.appended += 1

    def begun(self) -> None:
        """Begin the present epoch at the end of the list, if it is new there."""
        if all(epoch != self.epoch for epoch, _ in self.epochs):
            self.epochs = [row for row in self.epochs if row[1] < self.end]
            self.epochs.append((self.epoch, self.end))

    @rule(newer=NEWER)
    def begin_an_epoch(self, newer: int) -> None:
        self.epoch += newer
        self.log.begin_epoch(self.epoch)
        self.begun()

    @rule(asked=st.integers(-1, 60))
    def look_up_the_end_of_an_epoch(self, asked: int) -> None:
        known = [epoch for epoch, _ in self.epochs if epoch <= asked]
        later = [start for epoch, start in self.epochs if epoch > asked]
        expected = (known[-1] if known else -1, later[0] if later else self.end)
        assert self.log.end_of_epoch(asked) == expected

    @rule(data=st.data())
    def move_the_high_watermark(self, data: st.DataObject) -> None:
        ends = {record.offset + 1 for _, record in self.kept}
        inside = {b.offset for (n, _), (m, b) in pairwise(self.kept) if n == m}
        places = sorted(({self.high, self.end} | ends) - inside)
        self.high = data.draw(st.sampled_from([place for place in places if place >= self.high]))
        self.log.high_watermark = self.high

    @rule(
        data=st.data(),
        max_bytes=st.integers(0, 200),
        max_records=st.none() | st.integers(0, 15),
        beyond=st.none() | st.integers(-3, 15),
    )
    def read(
        self, data: st.DataObject, max_bytes: int, max_records: int | None, beyond: int | None
    ) -> None:
        offset = self.offsets(data)
        up_to = None if beyond is None else offset + beyond
        limits = {"max_bytes": max_bytes, "max_records": max_records, "up_to": up_to}
        found = self.log.read(offset, **limits)  # type: ignore[arg-type]
        assert records_of(found) == self.expected_read(offset, max_bytes, max_records, up_to)
        assert all(batch.count for batch in found)
        assert len(found) == len({self.number_at(batch.base_offset) for batch in found})

    def number_at(self, offset: int) -> int:
        return next(number for number, record in self.kept if record.offset == offset)

    def expected_read(
        self, offset: int, max_bytes: int, max_records: int | None, up_to: int | None
    ) -> list[Record]:
        expected: list[Record] = []
        for _, group in groupby(self.from_offset(offset), lambda pair: pair[0]):
            whole = [record for _, record in group]
            totals = list(accumulate(record.size for record in whole))
            if totals[-1] > max_bytes:
                if not expected:
                    expected = whole[: max(1, sum(total <= max_bytes for total in totals))]
                break
            expected += whole
            max_bytes -= totals[-1]
        if up_to is not None:
            expected = [record for record in expected if record.offset < up_to]
        return expected[:max_records]

    @rule(offset=st.integers(0, 200))
    def read_out_of_range(self, offset: int) -> None:
        if not self.start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                self.log.read(offset, max_bytes=1)
            error = caught.value
            found = (error.offset, error.start_offset, error.end_offset)
            assert found == (offset, self.start, self.end)

    @rule(offset=st.integers(0, 200))
    def ask_for_available_bytes(self, offset: int) -> None:
        found = self.from_offset(offset)
        expected = sum(record.size for _, record in found if record.offset < self.high)
        assert self.log.available_bytes(offset) == expected

    @rule(start=st.integers(0, 200), end=st.integers(0, 200))
    def count_a_range(self, start: int, end: int) -> None:
        expected = sum(start <= record.offset < end for _, record in self.kept)
        assert self.log.count_between(start, end) == expected

    @rule(max_bytes=st.integers(-1, 300))
    def look_up_the_offset_for_a_size(self, max_bytes: int) -> None:
        expected = self.start
        while (inside := self.from_offset(expected)) and inside[-1][0] != inside[0][0]:
            if sum(record.size for _, record in inside) <= max_bytes:
                break
            expected = next(record.offset for number, record in inside if number != inside[0][0])
        assert self.log.offset_for_bytes(max_bytes) == expected

    @rule(time_us=st.integers(-1, 40))
    def look_up_a_timestamp(self, time_us: int) -> None:
        late = [record.offset for _, record in self.kept if record.timestamp_us >= time_us]
        assert self.log.offset_at(time_us) == (late[0] if late else self.end)

    @rule(time_us=st.integers(-1, 40))
    def look_up_an_append_time(self, time_us: int) -> None:
        late = [record.offset for _, record in self.kept if record.append_time_us >= time_us]
        assert self.log.offset_at_append_time(time_us) == (late[0] if late else self.end)

    @rule(start=st.integers(0, 200), end=st.integers(0, 200))
    def split_a_range(self, start: int, end: int) -> None:
        expected = []
        inside = [pair for pair in self.kept if start <= pair[1].offset < end]
        for _, group in groupby(inside, lambda pair: pair[0]):
            records = [record for _, record in group]
            size = sum(record.size for record in records)
            first = records[0]
            expected.append((first.offset, len(records), size, first.append_time_us))
        pieces = self.log.pieces(start, end)
        found = [(each.base_offset, each.count, each.bytes, each.append_time_us) for each in pieces]
        assert found == expected

    @rule(further=st.integers(1, 12))
    def truncate(self, further: int) -> None:
        offset = min(self.start + further, self.end)
        self.log.truncate_before(offset)
        self.kept = self.from_offset(offset)
        self.start = offset
        self.high = max(self.high, offset)
        before = [(epoch, offset) for epoch, start in self.epochs if start <= offset]
        self.epochs = before[-1:] + [row for row in self.epochs if row[1] > offset]

    @rule(data=st.data(), back=st.integers(-2, 12))
    def truncate_the_end(self, data: st.DataObject, back: int) -> None:
        offset = max(0, self.end - back)
        removed = records_of(tuple(self.log.truncate_after(offset)))
        if offset > self.start and (found := self.from_offset(offset)):
            whole = [record.offset for number, record in self.kept if number == found[0][0]]
            offset = min(offset, whole[0])
        offset = min(offset, self.end)
        assert removed == [record for _, record in self.from_offset(offset)]
        self.ended(offset)

    @rule(offset=st.integers(0, 200))
    def start_over(self, offset: int) -> None:
        removed = records_of(tuple(self.log.start_over(offset)))
        assert removed == [record for _, record in self.kept]
        self.ended(self.start)
        self.start = self.end = self.high = offset

    def ended(self, offset: int) -> None:
        """Let the list end at an offset."""
        self.kept = [pair for pair in self.kept if pair[1].offset < offset]
        self.tombstones = {each for each in self.tombstones if each < offset}
        self.epochs = [row for row in self.epochs if row[1] < offset]
        self.epoch = max((epoch for epoch, _ in self.epochs), default=0)
        self.start = min(self.start, offset)
        self.end, self.high = offset, min(self.high, offset)

    @rule(further=st.integers(-1, 60), tombstones_before_us=st.none() | TIMES)
    def compact(self, further: int, tombstones_before_us: int | None) -> None:
        up_to = self.start + further
        gone = records_of(tuple(self.log.compact(up_to, tombstones_before_us)))
        expected = self.replaced(up_to)
        if tombstones_before_us is not None:
            expected |= {
                record.offset
                for _, record in self.kept
                if record.offset in self.tombstones and record.offset < min(up_to, self.high)
                if record.key is not None and record.append_time_us < tombstones_before_us
            }
        assert gone == [record for _, record in self.kept if record.offset in expected]
        self.keep([pair for pair in self.kept if pair[1].offset not in expected])

    def replaced(self, up_to: int) -> set[int]:
        safe = [record for _, record in self.kept if record.offset < self.high]
        last = {record.key: record.offset for record in safe}
        offsets = {record.offset for record in safe if record.key is not None}
        return {offset for offset in offsets - set(last.values()) if offset < up_to}

    def keep(self, pairs: list[tuple[int, Record]]) -> None:
        """Number the runs of records that were appended together and have no gap."""
        runs = groupby(enumerate(pairs), lambda item: (item[1][0], item[1][1].offset - item[0]))
        self.kept = []
        for _, run in runs:
            self.kept += [(self.appended, record) for _, (_, record) in run]
            self.appended += 1

    @rule()
    def truncate_below_the_start(self) -> None:
        self.log.truncate_before(self.start - 1)

    @rule()
    def truncate_beyond_the_end(self) -> None:
        with pytest.raises(OffsetOutOfRangeError):
            self.log.truncate_before(self.end + 1)

    @rule()
    def hand_over(self) -> None:
        snapshot = self.log.snapshot()
        self.log.append(Batch("late", 0, 1, timestamps_us=99, sizes=99), 99, 0)
        self.log.truncate_before(self.log.end_offset)
        self.log = MemoryLog.from_snapshot(snapshot)

    @invariant()
    def start_and_end_equal_those_of_the_list(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.high_watermark == self.high

    @invariant()
    def each_record_is_before_the_end_of_its_epoch(self) -> None:
        assert self.log.epochs == self.epochs
        assert self.log.last_epoch == (self.epochs[-1][0] if self.epochs else -1)
        for _, record in self.kept:
            epoch, end = self.log.end_of_epoch(self.epoch_of[record.offset])
            assert epoch == self.epoch_of[record.offset]
            assert record.offset < end


LogAndList.TestCase.settings = settings(deadline=None, max_examples=80, stateful_step_count=40)
TestLogAgainstList = LogAndList.TestCase


def filled(*counts: int, size: int = 10) -> MemoryLog:
    log = MemoryLog()
    for now_us, count in enumerate(counts):
        log.append(Batch("shop", 0, count, timestamps_us=now_us, sizes=size), now_us, 0)
    return log


def spans(found: tuple[Batch, ...]) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.count) for batch in found]


def test_a_read_begins_at_its_offset_and_ends_at_the_end_of_a_batch() -> None:
    log = filled(5, 5, 5)
    assert spans(log.read(3, max_bytes=100)) == [(3, 2), (5, 5)]
    assert spans(log.read(3, max_bytes=1_000, max_records=4)) == [(3, 2), (5, 2)]
    assert spans(log.read(3, max_bytes=1_000, up_to=4)) == [(3, 1)]
    assert log.read(15, max_bytes=100) == ()


def test_the_first_batch_is_cut_when_it_is_larger_than_max_bytes() -> None:
    log = filled(5, 5)
    assert spans(log.read(1, max_bytes=35)) == [(1, 3)]
    assert spans(log.read(1, max_bytes=1)) == [(1, 1)]


def test_whole_batches_are_returned_without_a_copy() -> None:
    log = MemoryLog()
    batches = [
        log.append(Batch("shop", 0, 2, timestamps_us=0, sizes=1), now_us, 0) for now_us in range(3)
    ]
    assert all(a is b for a, b in zip(log.read(0, max_bytes=99), batches, strict=True))


def test_an_offset_out_of_range_is_refused_with_the_range() -> None:
    log = filled(5, 5)
    log.truncate_before(4)
    for offset in (3, 11):
        with pytest.raises(BadValueError, match=f"offset = {offset}: expected 4 to 10"):
            log.read(offset, max_bytes=1)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(BadValueError, match="expected at least one record"):
        MemoryLog().append(Batch("shop", 0, 0, timestamps_us=0, sizes=0), 0, 0)


def test_a_dropped_batch_does_not_affect_searches_by_time() -> None:
    log = MemoryLog()
    for timestamp_us in (50, 10, 10, 20):
        log.append(Batch("shop", 0, 1, timestamps_us=timestamp_us, sizes=1), 0, 0)
    assert log.offset_at(20) == 0
    log.truncate_before(1)
    assert log.offset_at(20) == 3


def test_the_memory_of_dropped_batches_is_freed_at_once() -> None:
    class Payload:
        pass

    log = MemoryLog()
    for number in range(100):
        batch = Batch("shop", number, 1, values=Payload(), timestamps_us=0, sizes=1)
        log.append(batch, 0, 0)
    del batch
    for kept in (90, 60, 1, 0):
        log.truncate_before(100 - kept)
        gc.collect()
        assert sum(type(thing) is Payload for thing in gc.get_objects()) == kept


def test_a_log_ends_where_the_batch_began_in_which_it_was_cut_off() -> None:
    log = filled(2, 3, 2)
    assert spans(tuple(log.truncate_after(4))) == [(2, 3), (5, 2)]
    assert (log.end_offset, log.high_watermark) == (2, 2)


def test_a_log_that_was_cut_off_gives_the_same_answers_as_one_that_never_was_longer() -> None:
    log, other = filled(1, 1, 1), filled(1, 1, 1)
    log.append(Batch("shop", 0, 1, timestamps_us=50, sizes=1), 50, 1)
    assert log.offset_at(40) == log.offset_at_append_time(40) == 3
    log.truncate_after(3)
    for each in (log, other):
        each.append(Batch("shop", 0, 1, timestamps_us=7, sizes=1), 7, 2)
        assert (each.offset_at(6), each.offset_at_append_time(6)) == (3, 3)
        assert (each.offset_at(40), each.offset_at_append_time(40)) == (4, 4)
    assert log.epochs == other.epochs == [(0, 0), (2, 3)]


def test_an_epoch_that_has_begun_gets_no_second_row_with_its_first_batch() -> None:
    log = filled(2)
    log.begin_epoch(4)
    assert log.end_of_epoch(4) == (4, 2)
    log.append(Batch("shop", 0, 1, timestamps_us=0, sizes=1), 9, 4)
    assert log.epochs == [(0, 0), (4, 2)]


def test_an_epoch_without_records_is_forgotten_when_the_log_is_cut_off_at_its_end() -> None:
    log = filled(2)
    log.begin_epoch(4)
    assert log.truncate_after(2) == []
    assert log.epochs == [(0, 0)]


def test_the_end_of_an_unknown_epoch_is_that_of_the_one_before() -> None:
    log = MemoryLog(10)
    for epoch in (3, 5, 5, 8):
        log.append(Batch("shop", 0, 1, timestamps_us=0, sizes=1), 0, epoch)
    found = [log.end_of_epoch(epoch) for epoch in (2, 3, 4, 5, 7, 8, 9)]
    assert found == [(-1, 10), (3, 11), (3, 11), (5, 13), (5, 13), (8, 14), (8, 14)]


def test_a_snapshot_shares_its_batches_with_the_log() -> None:
    log = filled(2, 3)
    snapshot = log.snapshot()
    again = MemoryLog.from_snapshot(snapshot)
    pairs = zip(log.read(0, max_bytes=99), again.read(0, max_bytes=99), strict=True)
    assert all(a is b for a, b in pairs)
    with pytest.raises(AttributeError):
        snapshot.start_offset = 1  # type: ignore[misc]


@pytest.mark.parametrize(("max_bytes", "end"), [(0, 2), (1, 2), (5, 2), (6, 4), (7, 5), (99, 5)])
def test_whole_batches_that_fit_are_found_and_at_least_one(max_bytes: int, end: int) -> None:
    log = MemoryLog()
    for count, size in ((2, 2), (2, 1), (1, 1)):
        log.append(Batch("p", 0, count, timestamps_us=0, sizes=size), 0, 0)
    assert log.end_of_batches(0, max_bytes) == end
