"""Batches compared with lists of records, for all forms of columns."""

import tracemalloc
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError
from wavetank.model.log.batch import Batch
from wavetank.model.log.record import NOT_IDEMPOTENT, NOWHERE, Record

HEADERS = st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=2)), max_size=2)


@st.composite
def columns(draw: st.DrawFn, count: int, lowest: int = -5) -> tuple[Any, list[int]]:
    """Draw a column of ints in one of its forms, and its value for each record."""
    first = draw(st.integers(lowest, 9))
    step = draw(st.integers(1, 3))
    cells = draw(st.lists(st.integers(lowest, 9), min_size=count, max_size=count))
    spread = range(first, first + step * count, step)
    return draw(
        st.sampled_from(
            [
                (first, [first] * count),
                (tuple(cells), cells),
                (list(cells), cells),
                (np.array(cells, np.int64), cells),
                (np.array(cells, np.int16), cells),
                (spread, list(spread)),
            ]
        )
    )


@st.composite
def batches(draw: st.DrawFn, most: int = 9) -> tuple[Batch, list[Record]]:
    """Draw a batch, appended or not, and its records."""
    count = draw(st.integers(0, most))
    keys, key = draw(st.one_of(columns(count), st.just((None, [None] * count))))
    values, value = draw(st.one_of(columns(count), st.just((None, [None] * count))))
    timestamps, timestamp = draw(columns(count))
    sizes, size = draw(columns(count, 0))
    headers = draw(st.none() | st.lists(HEADERS, min_size=count, max_size=count))
    sequence = draw(st.integers(0, 99))
    batch = Batch(
        "shop", sequence, count, keys=keys, values=values, headers=headers,
        timestamps_us=timestamps, sizes=sizes,
    )  # fmt: skip
    base, time_us = NOWHERE, NOWHERE
    if appended := draw(st.booleans()):
        base, time_us = draw(st.integers(0, 99)), draw(st.integers(0, 99))
        batch = batch.stamped(base, time_us, 3)
    records = [
        Record(
            "orders", 2, base + i if appended else base, timestamp[i], key[i], value[i], "shop",
            sequence + i, size[i], time_us, tuple(headers[i]) if headers else (), instance="shop",
        )
        for i in range(count)
    ]  # fmt: skip
    return batch, records


def sent(count: int = 3, **kwargs: Any) -> Batch:
    return Batch("shop", 0, count, **({"timestamps_us": 0, "sizes": 1} | kwargs))


# Records


@given(batches())
def test_a_batch_makes_the_records_of_its_columns(case: tuple[Batch, list[Record]]) -> None:
    batch, records = case
    assert len(batch) == batch.count == len(records)
    assert batch.records("orders", 2) == records
    assert [batch.record(i, "orders", 2) for i in range(len(batch))] == records


def test_a_record_of_arrays_holds_plain_python_values() -> None:
    numbers = np.arange(4)
    batch = sent(4, keys=numbers, values=numbers / 2, timestamps_us=numbers, sizes=numbers)
    for record in [*batch.records("orders", 0), batch.record(1, "orders", 0)]:
        cells = (record.key, record.value, record.timestamp_us, record.size)
        assert list(map(type, cells)) == [int, float, int, int]


def test_the_id_of_a_record_is_its_producer_and_sequence_number() -> None:
    again = sent(3).numbered(40, "shop#2")
    assert again.record(2, "orders", 0).id == ("shop#2", "orders", 0, 42)
    assert [record.id for record in again[1:].records("orders", 7)] == [
        ("shop#2", "orders", 7, 41),
        ("shop#2", "orders", 7, 42),
    ]


def test_an_index_out_of_range_is_refused() -> None:
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"record {index} of a batch of 3"):
            sent(3).record(index, "orders", 0)


def test_a_batch_of_values_has_one_record_for_each_value() -> None:
    batch = Batch.of("shop", 7, [(1, 2), None], keys=["a", "b"], timestamps_us=[5, 6], sizes=8)
    cells = [(r.sequence, r.key, r.value, r.timestamp_us, r.size) for r in batch.records("t", 0)]
    assert cells == [(7, "a", (1, 2), 5, 8), (8, "b", None, 6, 8)]


def test_a_value_that_is_no_column_is_shared_by_all_records() -> None:
    class Point(NamedTuple):
        x: int
        y: int

    for value in (Point(1, 2), "abc", b"abc", {"id": 1}):
        assert [record.value for record in sent(2, values=value).records("t", 0)] == [value] * 2


# Sizes and times


@given(batches(), st.integers(0, 60), st.integers(-6, 40))
def test_sizes_and_times_are_those_of_the_records(
    case: tuple[Batch, list[Record]], max_bytes: int, time_us: int
) -> None:
    batch, records = case
    assert batch.bytes == sum(record.size for record in records)
    totals = accumulate(record.size for record in records)
    assert batch.fitting(max_bytes) == sum(total <= max_bytes for total in totals)
    late = [i for i, record in enumerate(records) if record.timestamp_us >= time_us]
    assert batch.first_at(time_us) == (late[0] if late else len(records))
    if records:
        assert batch.latest_us == max(record.timestamp_us for record in records)


def test_stamping_changes_only_offset_append_time_and_epochs() -> None:
    batch = sent(2, keys=("a", "b"), sizes=[3, 4])
    stamped = batch.stamped(40, 99, 5, 7)
    assert (batch.base_offset, batch.append_time_us, batch.epoch) == (NOWHERE,) * 3
    assert batch.producer_epoch == batch.stamped(40, 99, 5).producer_epoch == NOT_IDEMPOTENT
    assert (stamped.base_offset, stamped.append_time_us, stamped.epoch) == (40, 99, 5)
    assert stamped.producer_epoch == 7
    assert (stamped.sequence, stamped.count, stamped.bytes) == (0, 2, 7)
    assert stamped.keys is batch.keys


def test_all_that_is_made_of_a_stamped_batch_keeps_its_epochs() -> None:
    batch = sent(3, sizes=[3, 4, 5]).stamped(40, 99, 5, 7)
    unloaded = batch.unloaded()
    made = [batch[1:], batch.part(0, 2), batch.numbered(9, "shop#2"), unloaded, unloaded[1:]]
    made.append(unloaded.loaded(lambda: (None, None, None, 0, 1)))
    assert {(each.epoch, each.producer_epoch) for each in made} == {(5, 7)}


# Slices


@given(batches(), st.data())
def test_slices_of_batches_equal_slices_of_lists(
    case: tuple[Batch, list[Record]], data: st.DataObject
) -> None:
    batch, records = case
    for _ in range(3):
        part = slice(*data.draw(st.tuples(*[st.none() | st.integers(-12, 12)] * 2)))
        batch, records = batch[part], records[part]
        assert batch.records("orders", 2) == records
        assert batch.bytes == sum(record.size for record in records)


def test_a_slice_copies_nothing() -> None:
    size = 100_000
    batch = sent(size, keys=tuple(range(size)), values=range(size), sizes=np.arange(size))
    tracemalloc.start()
    try:
        parts = [batch[i : size - i][1:-1] for i in range(10)]
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert np.shares_memory(parts[5].sizes, batch.sizes)  # type: ignore[arg-type]
    assert parts[9].keys == tuple(range(10, size - 10))


def test_an_index_or_a_step_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a slice"):
        sent(3)[1]  # type: ignore[index]
    with pytest.raises(BadValueError, match="step 2: expected consecutive"):
        sent(3)[::2]


# Splitting


@given(batches(), st.sampled_from([1, 3, 70_000]), st.data())
def test_splitting_gives_each_partition_its_records_in_order(
    case: tuple[Batch, list[Record]], partitions: int, data: st.DataObject
) -> None:
    batch, records = case[0].stamped(NOWHERE, NOWHERE, NOWHERE), case[1]
    some = st.sampled_from([0, partitions // 2, partitions - 1])
    numbers = data.draw(st.lists(some, min_size=len(batch), max_size=len(batch)))
    pieces = batch.split_by(np.array(numbers, np.int64), partitions)

    expected: dict[int, list[Record]] = {}
    for number, record in zip(numbers, records, strict=True):
        expected.setdefault(number, []).append(record)
    assert list(pieces) == sorted(expected)
    sequence = batch.sequence
    for number, piece in pieces.items():
        for got, record in zip(piece.records("orders", 2), expected[number], strict=True):
            plain = record._replace(offset=NOWHERE, append_time_us=NOWHERE, sequence=sequence)
            assert got == plain
            sequence += 1
        assert piece.bytes == sum(record.size for record in expected[number])


def test_a_batch_for_one_partition_is_not_copied() -> None:
    batch = sent(3)
    assert batch.split_by(np.full(3, 5), 8) == {5: batch}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 1], "expected 3 ints"),
        ([0.0, 1.0, 2.0], "expected 3 ints"),
        ([0, 1, 4], "got 0 to 4, expected 0 to 3"),
        ([-1, 1, 2], "got -1 to 2, expected 0 to 3"),
    ],
)
def test_invalid_partition_numbers_are_refused(numbers: list[Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        sent(3).split_by(np.array(numbers), 4)


# Immutability


def test_changing_a_list_or_an_array_later_does_not_change_the_batch() -> None:
    keys, values, sizes = ["a", "b"], np.array([1, 2]), np.array([3, 4])
    headers = [[["trace", b"1"]], []]
    under = np.array([5, 6])
    times = under.view()
    times.flags.writeable = False
    batch = sent(
        2, keys=keys, values=values, sizes=sizes, headers=headers, timestamps_us=times
    )  # fmt: skip
    before = batch.records("t", 0)
    keys[0] = "x"
    headers[0][0][1] = b"2"
    values[:] = sizes[:] = under[:] = 99
    assert batch.records("t", 0) == before
    assert batch.bytes == 7
    assert before[0].headers == (("trace", b"1"),)


def test_columns_are_read_only() -> None:
    numbers = np.arange(6)
    batch = sent(6, keys=numbers, values=range(6), timestamps_us=[1] * 6, sizes=numbers)
    split = batch.split_by(numbers % 2, 2)[0]
    for column in (batch.keys, batch.timestamps_us, batch[2:].sizes, split.keys, split.values):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 9
        with pytest.raises(ValueError, match="WRITEABLE"):
            column.flags.writeable = True


def test_a_read_only_array_is_not_copied() -> None:
    numbers = np.arange(3)
    numbers.flags.writeable = False
    for column in (numbers, numbers[::-1], np.frombuffer(b"abc", np.uint8)):
        assert np.shares_memory(sent(3, keys=column).keys, column)


def test_a_batch_and_a_record_cannot_be_changed() -> None:
    batch = sent(3)
    for thing, name in ((batch, "count"), (batch, "new"), (batch.record(0, "t", 0), "offset")):
        with pytest.raises(AttributeError):
            setattr(thing, name, 1)
        with pytest.raises(AttributeError):
            delattr(thing, name)


# Errors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keys": ("a",)}, "column keys: got 1 items, expected 3"),
        ({"values": np.zeros((3, 1))}, r"column values: got shape \(3, 1\)"),
        ({"headers": [()]}, "column headers: got 1 items, expected 3"),
        ({"sizes": (1, 2)}, "column sizes: got 2 items, expected 3"),
        ({"sizes": -1}, "column sizes: got -1, expected zero or more"),
        ({"sizes": [1, -2, 3]}, "column sizes: got -2, expected zero or more"),
        ({"sizes": np.ones(3)}, "column sizes: got array.*expected ints"),
        ({"sizes": None}, "column sizes: got None, expected ints"),
        ({"timestamps_us": 1.5}, "column timestamps_us: got 1.5, expected ints"),
        ({"timestamps_us": (1, 2.5, 3)}, "column timestamps_us: got .*expected ints"),
        ({"timestamps_us": (1, 2, 2**63)}, "column timestamps_us: got .*expected ints"),
    ],
)
def test_an_invalid_column_is_refused_with_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        sent(3, **given)


def test_the_repr_of_a_batch_is_short_and_has_no_address() -> None:
    batch = sent(10_000, keys=range(10_000)).stamped(40, 1, 1)
    assert repr(batch) == "Batch('shop', sequence=0, count=10000, bytes=10000, base_offset=40)"
