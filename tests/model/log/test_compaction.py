"""Compaction compared with a dict of keys, for all forms of keys, and readers of compacted logs."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wavetank as wt
from wavetank.model.errors import BadValueError
from wavetank.model.log.batch import Batch, Record
from wavetank.model.log.log import MemoryLog
from wavetank.model.topics import TopicPartition

HUGE = 2**63
LATER = 10**15
"""An append time after that of every record."""

INTS = st.sampled_from([0, 1, 2, 3, 70_000, -HUGE, HUGE - 1])
MIXED = st.sampled_from([None, 0, 1, 2, 2.0, True, 70_000, HUGE, "0", "a", b"a", (1, "a")])


@st.composite
def keys_of(draw: st.DrawFn, count: int) -> Any:
    """Draw keys in one of their forms; keys of different forms may be equal."""
    ints = draw(st.lists(INTS, min_size=count, max_size=count))
    small = [key % 5 for key in ints]
    mixed = draw(st.lists(MIXED, min_size=count, max_size=count))
    first = draw(st.sampled_from([0, 2, 69_999, HUGE - 1]))
    return draw(
        st.sampled_from(
            [
                None,
                "a",
                1,
                tuple(mixed),
                np.array(ints),
                np.array(small, np.int8),
                np.array(small, np.uint64),
                np.array([str(key) for key in small]),
                range(first, first + count),
            ]
        )
    )


@st.composite
def logs(draw: st.DrawFn) -> MemoryLog:
    """Draw a log of a few batches, some synthetic, some with values and tombstones."""
    log = MemoryLog(draw(st.integers(0, 3)))
    for now_us in draw(st.lists(st.integers(0, 9), max_size=8)):
        count = draw(st.integers(1, 6))
        values = st.lists(st.sampled_from([None, "x"]), min_size=count, max_size=count)
        batch = Batch(
            "shop", 0, count, keys=draw(keys_of(count)), values=draw(st.none() | values),
            timestamps_us=draw(st.integers(0, 9)), sizes=draw(st.integers(0, 9)),
        )  # fmt: skip
        log.append(batch, now_us, 0)
    return log


def batches_of(log: MemoryLog) -> tuple[Batch, ...]:
    return log.read(log.start_offset, max_bytes=10**9)


def records_of(batches: Any) -> list[Record]:
    return [record for batch in batches for record in batch.records("orders", 0)]


def offsets_of(batches: Any) -> list[int]:
    return [record.offset for record in records_of(batches)]


def tombstones_of(batches: Any) -> list[Record]:
    with_values = (batch for batch in batches if batch.values is not None)
    return [record for record in records_of(with_values) if record.value is None]


@given(logs(), st.integers(0, 50), st.none() | st.integers(0, 10))
def test_the_last_record_of_each_key_stays_and_others_below_the_limit_are_removed(
    log: MemoryLog, up_to: int, before_us: int | None
) -> None:
    records = records_of(batches_of(log))
    last = {record.key: record.offset for record in records}
    expired = [
        record.offset
        for record in tombstones_of(batches_of(log))
        if before_us is not None and record.append_time_us < before_us
    ]
    expected = [
        record
        for record in records
        if record.key is not None and record.offset < up_to
        if last[record.key] != record.offset or record.offset in expired
    ]
    assert records_of(log.compact(up_to, before_us)) == expected
    assert records_of(batches_of(log)) == [r for r in records if r not in expected]


@given(logs(), st.integers(0, 50))
def test_compaction_keeps_the_start_and_end_of_the_log(log: MemoryLog, up_to: int) -> None:
    before = (log.start_offset, log.end_offset, log.high_watermark)
    log.compact(up_to, LATER)
    assert (log.start_offset, log.end_offset, log.high_watermark) == before


@given(logs(), st.integers(0, 50), st.none() | st.integers(0, 10))
def test_a_second_compaction_removes_nothing(
    log: MemoryLog, up_to: int, before_us: int | None
) -> None:
    log.compact(up_to, before_us)
    assert log.compact(up_to, before_us) == []


@given(logs(), st.integers(0, 50))
def test_a_read_in_a_gap_returns_the_next_record(log: MemoryLog, up_to: int) -> None:
    log.compact(up_to, LATER)
    offsets = [log.start_offset - 1, *offsets_of(batches_of(log))]
    for before, offset in pairwise(offsets):
        for asked in range(before + 1, offset + 1):
            assert offsets_of(log.read(asked, max_bytes=99, max_records=1)) == [offset]
    for asked in range(offsets[-1] + 1, log.end_offset + 1):
        assert log.read(asked, max_bytes=99) == ()


@given(logs(), st.integers(0, 50), st.integers(0, 9), st.integers(0, 9))
def test_a_limited_read_counts_only_remaining_records(
    log: MemoryLog, up_to: int, max_records: int, further: int
) -> None:
    log.compact(up_to, LATER)
    offsets = offsets_of(batches_of(log))
    for asked in range(log.start_offset, log.end_offset + 1):
        there = [offset for offset in offsets if offset >= asked]
        found = log.read(asked, max_bytes=10**9, max_records=max_records)
        assert offsets_of(found) == there[:max_records]
        found = log.read(asked, max_bytes=10**9, up_to=asked + further)
        assert offsets_of(found) == [offset for offset in there if offset < asked + further]


@given(logs(), st.integers(0, 50), st.integers(1, 20))
def test_pieces_contain_exactly_the_remaining_records(
    log: MemoryLog, up_to: int, length: int
) -> None:
    log.compact(up_to, LATER)
    offsets = offsets_of(batches_of(log))
    for start in range(log.start_offset, log.end_offset):
        pieces = log.pieces(start, start + length)
        assert all(piece.count for piece in pieces)
        assert offsets_of(pieces) == [
            offset for offset in offsets if start <= offset < start + length
        ]


@given(logs(), st.integers(0, 50), st.integers(0, 10))
def test_removed_records_are_not_found_by_time(log: MemoryLog, up_to: int, time_us: int) -> None:
    log.offset_at_append_time(time_us)
    log.offset_at(time_us)
    log.compact(up_to, LATER)
    records = records_of(batches_of(log))
    appended = [record.offset for record in records if record.append_time_us >= time_us]
    assert log.offset_at_append_time(time_us) == (appended or [log.end_offset])[0]
    made = [record.offset for record in records if record.timestamp_us >= time_us]
    assert log.offset_at(time_us) == (made or [log.end_offset])[0]


@given(logs(), st.integers(0, 50), st.integers(-1, 50), st.integers(-1, 50))
def test_count_between_counts_the_remaining_records(
    log: MemoryLog, up_to: int, start: int, end: int
) -> None:
    log.compact(up_to, LATER)
    expected = sum(start <= offset < end for offset in offsets_of(batches_of(log)))
    assert log.count_between(start, end) == expected


@given(logs(), st.integers(0, 50), st.integers(0, 150))
def test_offset_for_bytes_keeps_as_many_batches_as_fit_and_at_least_the_newest(
    log: MemoryLog, up_to: int, max_bytes: int
) -> None:
    log.compact(up_to, LATER)
    offset = log.offset_for_bytes(max_bytes)
    bases = [batch.base_offset for batch in batches_of(log)]
    fitting = [base for base in bases if log.available_bytes(base) <= max_bytes]
    expected = fitting[0] if fitting else bases[-1] if bases else log.start_offset
    assert offset == (log.start_offset if expected in bases[:1] else expected)


def keyed(*batches: Any, values: Any = None) -> MemoryLog:
    """Make a log of batches with these keys, appended at 0, 1, …"""
    log = MemoryLog()
    for now_us, keys in enumerate(batches):
        batch = Batch("shop", 0, len(keys), keys=keys, values=values, timestamps_us=0, sizes=10)
        log.append(batch, now_us, 0)
    return log


def test_a_record_below_the_limit_is_replaced_by_one_above_it() -> None:
    log = keyed(("a", "b"), ("a", "c"), ("a", "b"))
    assert offsets_of(log.compact(2)) == [0, 1]
    assert offsets_of(batches_of(log)) == [2, 3, 4, 5]


def test_removed_records_are_returned_with_offsets_and_append_times() -> None:
    log = keyed((1, 2, 1), np.array([1, 2]))
    gone = log.compact(log.end_offset)
    assert [(b.base_offset, b.count, b.append_time_us) for b in gone] == [(0, 3, 0)]


def test_a_batch_that_loses_no_record_is_kept_and_others_are_sliced() -> None:
    keys = np.array([1, 2, 3, 1, 4])
    log = keyed(np.array([7, 8]), keys)
    first, second = batches_of(log)
    log.compact(log.end_offset)
    kept = batches_of(log)
    assert kept[0] is first
    assert [(batch.base_offset, batch.sequence, batch.count) for batch in kept[1:]] == [(3, 1, 4)]
    assert np.shares_memory(kept[1].keys, second.keys)


def test_records_on_both_sides_of_a_gap_become_separate_batches() -> None:
    log = keyed((1, 2, 3, 4, 2))
    log.compact(log.end_offset)
    assert [(batch.base_offset, batch.count) for batch in batches_of(log)] == [(0, 1), (2, 3)]
    assert [(piece.base_offset, piece.bytes) for piece in log.pieces(0, 5)] == [(0, 10), (2, 30)]


def test_records_without_a_key_stay() -> None:
    log = keyed((None, 1, None, 1))
    log.append(Batch("load", 0, 3, timestamps_us=0, sizes=1), 0, 0)
    assert offsets_of(log.compact(log.end_offset, LATER)) == [1]


def test_synthetic_records_are_not_tombstones() -> None:
    log = keyed((1, 2))
    assert log.compact(log.end_offset, LATER) == []


def test_a_tombstone_stays_until_its_retention_is_over() -> None:
    log = keyed((1,), (2,), values=(None,))
    assert log.compact(log.end_offset) == []
    assert log.compact(log.end_offset, 0) == []
    assert offsets_of(log.compact(log.end_offset, 1)) == [0]
    assert offsets_of(log.compact(1, LATER)) == []
    assert offsets_of(log.compact(2, LATER)) == [1]


def test_offsets_continue_after_the_last_records_were_removed() -> None:
    log = keyed((1, 2), values=(None, None))
    log.compact(log.end_offset, LATER)
    assert (log.start_offset, log.end_offset, log.available_bytes(0)) == (0, 2, 0)
    assert log.read(0, max_bytes=99) == ()
    log.append(Batch("shop", 0, 1, timestamps_us=0, sizes=1), 0, 0)
    assert offsets_of(log.read(0, max_bytes=99)) == [2]


def test_a_snapshot_keeps_the_end_offset_even_if_the_last_records_were_removed() -> None:
    log = keyed((1, 2), values=(None, None))
    log.compact(log.end_offset, LATER)
    again = MemoryLog.from_snapshot(log.snapshot())
    assert (again.start_offset, again.end_offset, again.count_between(0, 2)) == (0, 2, 0)


def test_a_log_truncated_inside_a_gap_begins_there() -> None:
    log = keyed((1, 2, 3), (1, 2))
    log.compact(log.end_offset)
    log.truncate_before(1)
    assert log.start_offset == 1
    assert offsets_of(log.read(1, max_bytes=99)) == [2, 3, 4]
    assert log.count_between(0, 5) == 3


def test_an_unhashable_key_is_refused_and_no_record_is_lost() -> None:
    log = keyed((1, 1), ([],))
    with pytest.raises(BadValueError, match="expected hashable"):
        log.compact(log.end_offset)
    assert offsets_of(batches_of(log)) == [0, 1, 2]


# Readers of a compacted log


class SelfCompacting(MemoryLog):
    """A log that is compacted before every read, so that its readers meet gaps everywhere."""

    def read(self, offset: int, **limits: Any) -> tuple[Batch, ...]:
        self.compact(self.end_offset, LATER)
        return super().read(offset, **limits)


@pytest.fixture
def compacting(monkeypatch: pytest.MonkeyPatch) -> Iterator[wt.Cluster]:
    """Make a cluster whose logs are compacted before every read."""
    monkeypatch.setattr("wavetank.actors.broker.partition.MemoryLog", SelfCompacting)
    with wt.Cluster.simulated(seed=7) as cluster:
        cluster.create_topic("orders")
        yield cluster


def send_all(cluster: wt.Cluster, name: str, *records: tuple[str, Any]) -> None:
    producer = cluster.producer(name)
    for key, value in records:
        producer.send("orders", value, key=key).get()


def test_a_consumer_continues_after_gaps(compacting: wt.Cluster) -> None:
    send_all(compacting, "shop", ("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None))
    consumer = compacting.group("g", ["orders"]).consumer("c")
    assert [record.offset for record in consumer.poll(timeout=1.0)] == [2, 3]
    assert len(consumer.poll(timeout=1.0)) == 0
    send_all(compacting, "again", ("d", None), ("e", 5))
    assert [record.offset for record in consumer.poll(timeout=1.0)] == [6]


def test_reading_a_partition_ends_at_a_gap_at_its_end(compacting: wt.Cluster) -> None:
    send_all(compacting, "shop", ("a", 1), ("b", 2), ("a", 3), ("c", 4), ("c", None))
    found = compacting.read(TopicPartition("orders", 0), 0, 5)
    assert [record.offset for record in found] == [1, 2]
    assert [record.offset for record in compacting.topic("orders").contents[0]] == [1, 2]


def test_reading_a_partition_stops_at_the_given_end(compacting: wt.Cluster) -> None:
    send_all(compacting, "shop", ("a", 1), ("b", 2), ("a", 3))
    compacting.producer("more").send_many("orders", range(9), partition=0).get()
    found = compacting.read(TopicPartition("orders", 0), 0, 2)
    assert [record.offset for record in found] == [1]
