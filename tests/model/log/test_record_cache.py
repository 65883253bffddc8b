"""Which records of a log stay in memory, compared with a plain list of batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.log.batch import Batch, unloaded_batch
from wavetank.model.log.log import MemoryLog
from wavetank.model.log.record_cache import RecordCache


def batch_of(count: int, size: int) -> Batch:
    return Batch.of("shop", 0, range(count), timestamps_us=0, sizes=size)


def log_of(*counts: int, size: int = 10) -> tuple[MemoryLog, list[Batch]]:
    log = MemoryLog()
    return log, [log.append(batch_of(count, size), 0, 0) for count in counts]


def loaded(log: MemoryLog) -> list[int]:
    """The first offsets of the batches that are in memory."""
    batches = log.whole_batches(log.start_offset, log.end_offset)
    return [batch.base_offset for batch in batches if batch.is_loaded]


def test_the_newest_records_stay_in_memory() -> None:
    log, _ = log_of(2, 2, 2, 2)
    RecordCache(log, 45).evict()
    assert loaded(log) == [4, 6]


def test_the_newest_batch_stays_however_large_it_is() -> None:
    log, _ = log_of(1, 50)
    RecordCache(log, 0).evict()
    assert loaded(log) == [1]


def test_records_in_use_stay_in_memory() -> None:
    log, _ = log_of(2, 2, 2, 2)
    cache = RecordCache(log, 0)
    cache.evict(in_use=[(3, 4)])
    assert loaded(log) == [2, 6]
    cache.evict()
    assert loaded(log) == [6]


def test_a_batch_that_is_put_back_is_in_the_log_as_long_as_the_log_has_it() -> None:
    log, batches = log_of(2, 2, 2)
    cache = RecordCache(log, 0)
    cache.evict()
    log.truncate_before(3)
    cache.put(batches[0])
    cache.put(batches[1])
    assert [batch.base_offset for batch in log.whole_batches(0, 9)] == [3, 4]
    assert [record.value for record in log.whole_batches(3, 4)[0].records("", 0)] == [1]


def test_a_batch_is_needed_only_if_an_offset_divides_it() -> None:
    log, batches = log_of(2, 2, 2)
    for batch in batches[:2]:
        log.replace(located(batch))
    cache = RecordCache(log, 0)
    assert cache.missing_around([0, 2, 4, 5, 6]) == []
    assert [batch.base_offset for batch in cache.missing_around([3, 3, 1])] == [2, 0]


def test_no_batch_is_needed_whose_sizes_are_known() -> None:
    log, _ = log_of(2, 2, 2)
    cache = RecordCache(log, 0)
    cache.evict()
    assert cache.missing_around([1, 3]) == []


def located(batch: Batch) -> Batch:
    """The batch as it is found in a file: only its header was read."""
    return unloaded_batch(
        batch.producer, batch.instance, batch.sequence, batch.count, batch.bytes,
        batch.base_offset, batch.append_time_us, batch.epoch, batch.producer_epoch,
    )  # fmt: skip


def test_a_batch_without_its_records_knows_their_sizes() -> None:
    whole = Batch.of("shop", 0, "abcd", timestamps_us=0, sizes=[7, 1, 2, 900]).stamped(4, 0, 0)
    batch = whole[1:]
    part = batch.unloaded()[1:]
    assert (part.base_offset, part.count, part.bytes) == (6, 2, 902)
    assert batch.unloaded().bytes == 903
    assert not part.is_loaded
    with pytest.raises(AssertionError, match="on the disk"):
        part.records("orders", 0)


def test_the_size_of_a_part_is_estimated_if_only_the_header_was_read() -> None:
    batch = Batch.of("shop", 0, "abc", timestamps_us=0, sizes=[1, 2, 9]).stamped(4, 0, 0)
    part = located(batch)[1:]
    assert (part.base_offset, part.count, part.bytes) == (5, 2, 8)


def test_what_was_cut_off_is_forgotten_and_does_not_replace_what_has_its_offsets_now() -> None:
    log, _ = log_of(2, 2, 2)
    cache = RecordCache(log, 20)
    cache.evict()
    log.truncate_after(2)
    cache.truncated()
    batch = log.append(batch_of(2, 10), 0, 1)
    cache.add(batch)
    assert cache.complete_from == 2
    cache.evict()
    assert log.whole_batches(2, 4) == [batch]


counts = st.lists(st.integers(1, 4), min_size=1, max_size=8)


@given(counts, st.data())
def test_nothing_is_lost_by_eviction_and_little_is_kept(
    sizes: list[int], data: st.DataObject
) -> None:
    log, batches = log_of(*sizes)
    limit = data.draw(st.integers(0, 200))
    end = sum(sizes)
    window = sorted((data.draw(st.integers(0, end)), data.draw(st.integers(0, end))))
    cache = RecordCache(log, limit)
    for _ in range(data.draw(st.integers(0, 4))):
        cache.evict([(window[0], window[1])])
        there = set(loaded(log))
        in_use = {
            each.base_offset
            for each in batches
            if each.base_offset < window[1] and window[0] < each.base_offset + each.count
        }
        assert in_use <= there
        rest = [each for each in batches if each.base_offset in there - in_use]
        assert sum(each.bytes for each in rest[:-1]) <= limit
        start = data.draw(st.integers(0, end))
        stop = data.draw(st.integers(start, end))
        wanted = [
            each.base_offset
            for each in batches
            if start < stop and each.base_offset < stop and start < each.base_offset + each.count
        ]
        missing = cache.missing(start, stop)
        assert [each.base_offset for each in missing] == [w for w in wanted if w not in there]
        for each in missing:
            cache.put(next(b for b in batches if b.base_offset == each.base_offset))
        assert not cache.missing(start, stop)
        read = log.read(start, max_bytes=2**40, up_to=stop)
        assert [value for batch in read for value in batch.values] == [
            value for batch in batches for value, offset in
            zip(batch.values, range(batch.base_offset, end), strict=False)
            if start <= offset < stop
        ]  # fmt: skip
