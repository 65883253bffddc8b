"""Slots of records, and the load of slots and keys."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError
from wavetank.strategies.routing import share_slots
from wavetank.strategies.slots import (
    SLOTS,
    HotKeys,
    SlotLoad,
    keyless_slot,
    slot_of,
    slots_of,
)
from wavetank.strategies.workload import ZipfKeys

keys = st.one_of(st.binary(), st.text(), st.integers())
offsets = st.integers(0, 2**40)


# Slots of records


def murmur3(data: bytes) -> int:
    """Compute 32-bit MurmurHash3 with seed 0, step by step."""

    def rotated(word: int, by: int) -> int:
        return (word << by | word >> (32 - by)) & 0xFFFFFFFF

    def scrambled(word: int) -> int:
        return rotated(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    result = 0
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        result ^= scrambled(int.from_bytes(data[start : start + 4], "little"))
        result = (rotated(result, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    result ^= scrambled(int.from_bytes(data[whole:], "little"))
    result ^= len(data)
    for shift, multiplier in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        result = (result ^ result >> shift) * multiplier & 0xFFFFFFFF
    return result


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65\x87", 0xF55B516B),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21", 0x72661CF4),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_a_slot_is_the_low_half_of_the_published_hash(data: bytes, hashed: int) -> None:
    assert murmur3(data) == hashed
    assert slot_of(data) == hashed & 0xFFFF


@given(st.binary(max_size=40))
def test_a_slot_is_the_low_half_of_the_hash_computed_step_by_step(data: bytes) -> None:
    assert slot_of(data) == murmur3(data) & 0xFFFF


@given(st.text(), st.integers())
def test_text_is_hashed_as_utf_8_and_a_number_as_its_decimals(text: str, number: int) -> None:
    assert slot_of(text) == slot_of(text.encode())
    assert slot_of(number) == slot_of(str(number))


@given(st.lists(st.none() | keys), offsets)
def test_a_tuple_of_keys_has_the_slots_of_each(several: list[Any], first: int) -> None:
    found = slots_of(tuple(several), len(several), first)
    assert found.dtype == np.uint16
    assert found.tolist() == [
        keyless_slot(first + index) if key is None else slot_of(key)
        for index, key in enumerate(several)
    ]


@given(
    st.lists(st.integers(0, 20_000) | st.integers(-(2**63), 2**63 - 1)),
    st.sampled_from([np.int64, np.int32, np.uint64, np.uint8]),
)
def test_an_array_of_numbers_has_the_slots_of_each(many: list[int], dtype: type) -> None:
    column = np.array(many, np.int64).astype(dtype)
    found = slots_of(column, len(many), 5)
    assert found.dtype == np.uint16
    assert found.tolist() == [slot_of(key) for key in column.tolist()]


def test_numbers_of_every_length_have_the_slots_of_each() -> None:
    edges = sorted({10**n + step for n in range(8) for step in (-1, 0, 1)})
    assert slots_of(np.array(edges), len(edges), 0).tolist() == [slot_of(key) for key in edges]
    alone = [slots_of(np.array([key]), 1, 0).item() for key in edges]
    assert alone == [slot_of(key) for key in edges]


@given(st.integers(-300, 300) | st.integers(-(2**70), 2**70), st.integers(-7, 7).filter(bool))
def test_a_range_of_keys_has_the_slots_of_each(start: int, step: int) -> None:
    column = range(start, start + 20 * step, step)
    assert slots_of(column, 20, 5).tolist() == [slot_of(key) for key in column]


def test_an_array_of_texts_has_the_slots_of_each() -> None:
    assert slots_of(np.array(["a", "bc"]), 2, 0).tolist() == [slot_of("a"), slot_of("bc")]


@given(keys, st.integers(0, 20))
def test_records_that_share_a_key_share_its_slot(key: int | str | bytes, count: int) -> None:
    found = slots_of(key, count, 7)
    assert found.dtype == np.uint16
    assert found.tolist() == [slot_of(key)] * count


@given(offsets, st.integers(0, 200))
def test_records_without_keys_have_the_slots_of_their_offsets(first: int, count: int) -> None:
    found = slots_of(None, count, first)
    assert found.dtype == np.uint16
    assert found.tolist() == [keyless_slot(first + index) for index in range(count)]


def test_records_without_keys_use_every_slot_once_before_any_again() -> None:
    assert (np.bincount(slots_of(None, SLOTS, 123_456), minlength=SLOTS) == 1).all()


@given(offsets, st.integers(1, 60), st.integers(1, 2_000))
def test_records_without_keys_spread_over_members_even_in_small_batches(
    first: int, members: int, count: int
) -> None:
    owners = share_slots([str(number) for number in range(members)])
    got = np.bincount(owners[slots_of(None, count, first)], minlength=members)
    assert abs(got - count / members).max() < 9


@pytest.mark.parametrize("column", [(), range(0), np.empty(0, np.int64)])
def test_an_empty_column_has_no_slots(column: Any) -> None:
    assert slots_of(column, 0, 0).tolist() == []


@pytest.mark.parametrize("column", [("a",), range(3), np.arange(3)])
def test_a_column_of_the_wrong_length_is_refused(column: Any) -> None:
    with pytest.raises(BadValueError, match=rf"keys: got {len(column)} items, expected 2"):
        slots_of(column, 2, 0)


@pytest.mark.parametrize("column", [1.5, True, (1.5,), np.array([1.5]), ["a"]])
def test_an_invalid_key_is_refused(column: Any) -> None:
    with pytest.raises(BadValueError, match="expected bytes, a text or a whole number"):
        slots_of(column, 1, 0)


# Load


def test_the_load_of_a_slot_counts_its_records_and_decays() -> None:
    meter = SlotLoad()
    meter.add(np.array([3, 5, 3, SLOTS - 1], np.uint16))
    meter.decay(0.5)
    meter.add(np.array([3], np.uint16))
    assert {slot: meter.loads[slot] for slot in np.flatnonzero(meter.loads).tolist()} == {
        3: 2.0,
        5: 0.5,
        SLOTS - 1: 0.5,
    }


def test_a_slot_with_almost_no_load_left_is_idle() -> None:
    meter = SlotLoad()
    meter.add(np.array([3], np.uint16))
    for _ in range(7):
        meter.decay(0.5)
    assert not meter.loads.any()


@pytest.mark.parametrize("factor", [-0.1, 1.1, float("nan")])
def test_an_invalid_decay_factor_is_refused(factor: float) -> None:
    with pytest.raises(BadValueError, match="factor = "):
        SlotLoad().decay(factor)


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[Any, int, list[Any]]:
    """Draw a column of keys, its count, and the keys as a plain list."""
    cells = draw(st.lists(st.integers(0, 12), max_size=30))
    if draw(st.booleans()):
        several = draw(st.integers(0, 100))
        return 7 * several, several, [7 * several] * several
    form = draw(st.sampled_from(["tuple", "texts", "holes", "array", "range", "shared", "none"]))
    count = len(cells)
    first = cells[0] if cells else 0
    columns: dict[str, tuple[Any, list[Any]]] = {
        "tuple": (tuple(cells), cells),
        "texts": (tuple(map(str, cells)), [str(cell) for cell in cells]),
        "holes": (
            tuple(cell if cell % 3 else None for cell in cells),
            [cell for cell in cells if cell % 3],
        ),
        "array": (np.array(cells, np.int64), cells),
        "range": (range(first, first + count), list(range(first, first + count))),
        "shared": (first, [first] * count),
        "none": (None, []),
    }
    column, plain = columns[form]
    return column, count, plain


@given(st.lists(key_columns(), max_size=12), st.integers(1, 6))
def test_every_frequent_key_is_found_and_counted_within_the_bounds(
    columns: list[tuple[Any, int, list[Any]]], capacity: int
) -> None:
    hot = HotKeys(capacity)
    exact: Counter[Any] = Counter()
    for column, count, plain in columns:
        hot.add(column, count)
        exact.update(plain)
    total = exact.total()
    assert hot.total == total
    assert hot.missed * (capacity + 1) <= total
    found = {key: counted for key, counted, _ in hot.top(1_000)}
    assert len(found) <= 2 * capacity
    for key, true in exact.items():
        assert true - hot.missed <= found.get(key, 0) <= true
        assert key in found or true * capacity <= total
    assert set(found) <= set(exact)
    assert all(share == counted / total for _, counted, share in hot.top(1_000))


def test_few_keys_are_counted_exactly_and_equal_ones_ranked_by_first_appearance() -> None:
    hot = HotKeys(10)
    hot.add(("b", "a", None, "c", "c"), 5)
    hot.add(np.array([7, 7, 7, 7]), 4)
    assert hot.top(3) == [(7, 4, 0.5), ("c", 2, 0.25), ("b", 1, 0.125)]
    assert type(hot.top(1)[0][0]) is int


def test_forgetting_hot_keys_reduces_other_counts_by_at_most_the_bound() -> None:
    hot = HotKeys(1)
    for key, count in (("a", 100), ("b", 99), ("c", 1), ("d", 99), ("e", 1)):
        hot.add(key, count)
    assert hot.total == 300
    assert hot.missed == 100
    assert hot.top(2) == [("d", 98, 98 / 300)]


def test_cold_keys_hardly_reduce_the_counts_of_hot_ones() -> None:
    hot = HotKeys(6)
    hot.add(tuple(range(4)) * 100 + tuple(range(4, 13)), 409)
    assert [(key, count) for key, count, _ in hot.top(9)] == [(key, 99) for key in range(4)]
    assert hot.missed == 1


def test_the_hottest_zipf_keys_are_found_among_a_hundred_thousand() -> None:
    hot = HotKeys(500)
    random = np.random.default_rng(1)
    exact = np.zeros(100_000, np.int64)
    for _ in range(40):
        drawn = ZipfKeys(100_000).draw(5_000, random)
        hot.add(drawn, len(drawn))
        exact += np.bincount(drawn, minlength=len(exact))
    assert [key for key, _, _ in hot.top(5)] == [0, 1, 2, 3, 4]
    for key, counted, _ in hot.top(5):
        assert exact[key] - hot.missed <= counted <= exact[key]
    assert hot.missed <= hot.total / 500


def test_there_are_no_hot_keys_without_keys_or_records() -> None:
    hot = HotKeys()
    hot.add(None, 1_000)
    hot.add((None, None), 2)
    hot.add("nobody's", 0)
    assert hot.top(5) == []


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_an_invalid_capacity_is_refused(capacity: Any) -> None:
    with pytest.raises(BadValueError, match="capacity = "):
        HotKeys(capacity)
