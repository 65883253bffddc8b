"""Which slot a record has, who owns it, and how busy slots and keys are."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError
from wavetank.strategies.routing import Owners, reassign, rebalance, share_slots
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


# Records to slots


def murmur3(data: bytes) -> int:
    """32-bit MurmurHash3 with seed 0, as its author describes it."""

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
def test_a_slot_is_the_low_half_of_the_hash_worked_out_by_hand(data: bytes) -> None:
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


def test_records_without_keys_have_every_slot_once_in_each_round() -> None:
    assert (np.bincount(slots_of(None, SLOTS, 123_456), minlength=SLOTS) == 1).all()


@given(offsets, st.integers(1, 60), st.integers(1, 2_000))
def test_records_without_keys_spread_over_members_even_in_small_batches(
    first: int, members: int, count: int
) -> None:
    owners = share_slots([str(number) for number in range(members)])
    got = np.bincount(owners[slots_of(None, count, first)], minlength=members)
    assert abs(got - count / members).max() < 9


@pytest.mark.parametrize("column", [(), range(0), np.empty(0, np.int64)])
def test_no_records_have_no_slots(column: Any) -> None:
    assert slots_of(column, 0, 0).tolist() == []


@pytest.mark.parametrize("column", [("a",), range(3), np.arange(3)])
def test_a_column_of_another_length_is_refused(column: Any) -> None:
    with pytest.raises(BadValueError, match=rf"keys: got {len(column)} items, expected 2"):
        slots_of(column, 2, 0)


@pytest.mark.parametrize("column", [1.5, True, (1.5,), np.array([1.5]), ["a"]])
def test_what_cannot_be_a_key_is_refused_by_name(column: Any) -> None:
    with pytest.raises(BadValueError, match="expected bytes, a text or a whole number"):
        slots_of(column, 1, 0)


# Sharing out


def names(count: int) -> list[str]:
    return [f"consumer-{number}" for number in range(count)]


def held(owners: Owners, members: int, loads: Any = None) -> Any:
    return np.bincount(owners, loads, members)


def even_split(slots: int, members: int) -> Owners:
    return (np.arange(slots) * members // slots).astype(np.int16)


@given(st.integers(1, 300))
def test_slots_are_shared_out_in_even_ranges(count: int) -> None:
    owners = share_slots(names(count))
    assert owners.dtype == np.int16
    assert owners.shape == (SLOTS,)
    assert (np.diff(owners) >= 0).all()
    counts = held(owners, count)
    assert len(counts) == count
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(
    ("members", "message"),
    [([], "got 0, expected 1 to 32767"), (["a", "b", "a"], "member 'a': got 2 of that name")],
)
def test_members_that_cannot_be_are_refused(members: list[str], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        share_slots(members)
    with pytest.raises(BadValueError, match=message):
        reassign(share_slots(["a"]), ["a"], members)


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Members before and after: some stay, some leave, some are new, in any order."""
    old = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True))
    new = draw(st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=9, unique=True))
    return old, new


@st.composite
def owned(draw: st.DrawFn, members: int) -> Owners:
    several = st.lists(st.integers(0, members - 1), min_size=1, max_size=40)
    return np.array(draw(several), np.int16)


WEIGHTS = st.integers(0, 9) | st.integers(0, 200)


def loads_of(data: st.DataObject, slots: int, weights: st.SearchStrategy[int] = WEIGHTS) -> Any:
    cells = data.draw(st.lists(weights, min_size=slots, max_size=slots))
    return np.array(cells, np.float64)


def moved_to(before: Owners, old: list[str], after: Owners, new: list[str]) -> list[str | None]:
    """For each slot, the name of who has it now, if that is somebody else than before."""
    names_of = [(old[was], new[now]) for was, now in zip(before, after, strict=True)]
    return [now if was != now else None for was, now in names_of]


@given(changes(), st.data())
def test_a_slot_moves_only_from_who_left_or_to_who_is_new(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    old, new = change
    before = data.draw(owned(len(old)))
    loads = data.draw(st.none() | st.just(loads_of(data, len(before))))
    kept = before.copy()
    after = reassign(before, old, new, loads)
    assert after.dtype == np.int16
    assert after.shape == before.shape
    assert ((after >= 0) & (after < len(new))).all()
    for was, now in zip(before, moved_to(before, old, after, new), strict=True):
        if old[was] not in new:
            assert now is not None
        else:
            assert now is None or now not in old
    assert (before == kept).all()
    assert (after == reassign(before, old, new, loads)).all()


def fewest_moves(before: Owners, old: list[str], new: list[str]) -> int:
    """How many slots must move at least until none has over one more than another."""
    has = sorted((int((before == old.index(name)).sum()) if name in old else 0) for name in new)
    share, more = divmod(len(before), len(new))
    targets = [share] * (len(new) - more) + [share + 1] * more
    return len(before) - sum(map(min, has, targets))


@given(changes(), st.integers(1, 300), st.randoms(use_true_random=False))
def test_an_even_group_stays_even_with_the_fewest_moves(
    change: tuple[list[str], list[str]], slots: int, random: Any
) -> None:
    old, new = change
    shuffled = even_split(slots, len(old)).tolist()
    random.shuffle(shuffled)
    before = np.array(shuffled, np.int16)
    after = reassign(before, old, new)
    counts = held(after, len(new))
    assert counts.max() - counts.min() <= 1
    moves = sum(now is not None for now in moved_to(before, old, after, new))
    assert moves == fewest_moves(before, old, new)


@given(changes(), st.data())
def test_a_newcomer_gets_its_fair_share_of_an_uneven_group(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    old, new = change
    before = data.draw(owned(len(old)))
    after = reassign(before, old, new)
    counts = held(after, len(new))
    for name, count in zip(new, counts, strict=True):
        if name not in old:
            assert len(before) // len(new) <= count <= -(-len(before) // len(new))
    most = max((counts[new.index(name)] for name in old if name in new), default=0)
    for was, now in zip(before, moved_to(before, old, after, new), strict=True):
        if now is not None and old[was] in new:
            assert counts[new.index(old[was])] >= most - 1, "taken from one who had less than most"


@given(st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_all_slots_stay_even_through_joins_and_leaves(one: int, other: int) -> None:
    owners = share_slots(names(one))
    for old, new in ((one, other), (other, one)):
        following = reassign(owners, names(old), names(new))
        counts = held(following, new)
        assert counts.max() - counts.min() <= 1
        moves = int((following != owners).sum())
        assert moves == fewest_moves(owners, names(old), names(new))
        owners = following


@given(changes(), st.data())
def test_what_is_left_goes_to_who_has_least(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    """Nobody who took an orphan could have left it to another and both be more even."""
    old, new = change
    new = [name for name in new if name in old] or old[:1]
    before = data.draw(owned(len(old)))
    loads = loads_of(data, len(before))
    after = reassign(before, old, new, loads)
    now = held(after, len(new), loads)
    for slot, taker in enumerate(moved_to(before, old, after, new)):
        if taker is not None and loads[slot]:
            assert now[new.index(taker)] - loads[slot] <= now.min()
    idle = loads == 0
    if idle.any():
        counts = held(after[idle], len(new))
        for slot, taker in enumerate(moved_to(before, old, after, new)):
            if taker is not None and idle[slot]:
                assert counts[new.index(taker)] - 1 <= counts.min()


@given(changes(), st.integers(0, 2**32))
def test_a_newcomer_gets_its_fair_share_of_light_slots_by_load(
    change: tuple[list[str], list[str]], seed: int
) -> None:
    old, new = change
    random = np.random.default_rng(seed)
    before = random.integers(len(old), size=2_000).astype(np.int16)
    loads = random.exponential(size=2_000)
    after = reassign(before, old, new, loads)
    now = held(after, len(new), loads)
    survivors = [place for place, name in enumerate(new) if name in old]
    for place, name in enumerate(new):
        if name not in old:
            assert now[place] >= now.mean() - loads.max()
            assert now[place] <= now.mean() + loads.max()
    was = held(before, len(old), loads)
    for place in survivors:
        assert now[place] <= max(was[old.index(new[place])], now.mean() + loads.max())


@given(changes(), st.data())
def test_no_newcomer_takes_what_makes_it_heavier_than_the_giver_was(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    """With slots as heavy as one likes, the heaviest member never gets heavier by a newcomer."""
    old, new = change
    new = [*old, *(name for name in new if name not in old)]
    before = data.draw(owned(len(old)))
    loads = loads_of(data, len(before))
    after = reassign(before, old, new, loads)
    assert held(after, len(new), loads).max() <= held(before, len(old), loads).max()


@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_a_newcomer_beside_one_huge_slot_gets_as_much_as_the_others(beside: float) -> None:
    """What cannot be shared does not count: those who have little must not be drained for it."""
    loads = np.ones(800)
    loads[:100] = beside
    loads[0] = 5_000.0
    now = held(reassign(even_split(800, 8), names(8), names(9), loads), 9, loads)
    assert now[0] == 5_000.0
    assert now[1:].max() - now[1:].min() <= 1


def test_a_newcomer_beside_one_that_was_dealt_a_huge_slot_gets_a_fair_share_of_the_rest() -> None:
    before = np.repeat([0, 1, 2, 3], [1, 100, 20, 20]).astype(np.int16)
    loads = np.ones(141)
    loads[0] = 5_000.0
    after = reassign(before, names(4), [*names(4)[1:], "first", "second"], loads)
    assert held(after, 5, loads).tolist() == [65.0, 20.0, 20.0, 5_000.0, 35.0]


def test_a_newcomer_leaves_those_it_takes_from_even() -> None:
    before = np.repeat([0, 1], [100, 80]).astype(np.int16)
    assert held(reassign(before, names(3), names(4)), 4).tolist() == [67, 68, 0, 45]


def test_a_newcomer_gets_its_fair_share_of_idle_slots_too() -> None:
    """They carry nothing today; tomorrow's keys are to find the group even."""
    loads = np.where(np.arange(800) % 4 == 0, 10.0, 0.0)
    after = reassign(even_split(800, 3), names(3), names(4), loads)
    assert held(after[loads == 0], 4).tolist() == [150, 150, 150, 150]
    assert held(after[loads > 0], 4).tolist() == [50, 50, 50, 50]


def test_nothing_moves_when_members_only_change_places() -> None:
    before = share_slots(["a", "b", "c"])
    after = reassign(before, ["a", "b", "c"], ["c", "a", "b"], np.arange(SLOTS, dtype=float))
    assert moved_to(before, ["a", "b", "c"], after, ["c", "a", "b"]) == [None] * SLOTS


# Balancing


def overloaded_that_could_be_helped(
    owners: Owners, members: int, loads: Any, tolerance: float
) -> list[tuple[int, int]]:
    """Every (slot, taker) that would leave the more loaded of the two members less loaded."""
    now = held(owners, members, loads)
    bound = (1 + tolerance) * loads.sum() / members
    return [
        (slot, taker)
        for slot, giver in enumerate(owners.tolist())
        for taker in range(members)
        if loads[slot] and now[giver] > bound * (1 + 1e-6)
        if now[taker] + loads[slot] < now[giver] * (1 - 1e-6)
    ]


TOLERANCES = st.sampled_from([0.0, 0.1, 0.5])
MEMBERS = st.integers(1, 6)


@given(MEMBERS, TOLERANCES, st.data())
def test_when_it_is_done_no_single_move_lowers_an_overloaded_member(
    members: int, tolerance: float, data: st.DataObject
) -> None:
    before = data.draw(owned(members))
    loads = loads_of(data, len(before))
    kept = before.copy()
    after = rebalance(before, members, loads, tolerance)
    assert after.dtype == np.int16
    assert after.shape == before.shape
    assert ((after >= 0) & (after < members)).all()
    assert overloaded_that_could_be_helped(after, members, loads, tolerance) == []
    assert held(after, members, loads).max() <= held(before, members, loads).max()
    assert (before == kept).all()
    assert (after == rebalance(before, members, loads, tolerance)).all()
    assert (after == rebalance(after, members, loads, tolerance)).all()


@given(MEMBERS, TOLERANCES, st.data())
def test_who_is_still_overloaded_has_one_slot_or_little_more_than_the_least(
    members: int, tolerance: float, data: st.DataObject
) -> None:
    before = data.draw(owned(members))
    loads = loads_of(data, len(before))
    after = rebalance(before, members, loads, tolerance)
    now = held(after, members, loads)
    for member in np.flatnonzero(now > (1 + tolerance) * now.mean() * (1 + 1e-6)):
        loaded = loads[(after == member) & (loads > 0)]
        assert len(loaded) == 1 or now[member] <= (now.min() + loaded.min()) * (1 + 1e-6)


@given(MEMBERS, TOLERANCES, st.data())
def test_who_is_within_the_bound_gives_nothing_up(
    members: int, tolerance: float, data: st.DataObject
) -> None:
    """At least with light slots, where nobody who takes becomes overloaded; and idle ones stay."""
    before = data.draw(owned(members))
    loads = loads_of(data, len(before), st.integers(0, 3))
    was = held(before, members, loads)
    after = rebalance(before, members, loads, tolerance)
    moved = after != before
    assert not moved[loads == 0].any()
    if was.max() <= (1 + tolerance) * was.mean():
        assert not moved.any()
    if loads.max() <= tolerance * was.mean():
        assert set(before[moved]) <= set(np.flatnonzero(was > (1 + tolerance) * was.mean()))


@given(MEMBERS, st.integers(0, 5), st.data())
def test_it_stops_after_so_many_moves_and_has_made_nothing_worse(
    members: int, max_moves: int, data: st.DataObject
) -> None:
    before = data.draw(owned(members))
    loads = loads_of(data, len(before))
    after = rebalance(before, members, loads, 0.0, max_moves)
    assert (after != before).sum() <= max_moves
    assert held(after, members, loads).max() <= held(before, members, loads).max()


@given(st.integers(2, 12), st.integers(0, 2**32))
def test_few_slots_move_for_they_are_the_heaviest_that_fit(members: int, seed: int) -> None:
    """Never more than twice what one would need who could cut slots to measure, and a few."""
    random = np.random.default_rng(seed)
    before = random.integers(members, size=3_000).astype(np.int16)
    loads = random.exponential(size=3_000)
    loads[before == 0] *= 4
    after = rebalance(before, members, loads)
    was = held(before, members, loads)
    bound = 1.1 * was.mean()
    assert held(after, members, loads).max() <= bound * (1 + 1e-6)
    needed = 0
    for member in np.flatnonzero(was > bound):
        heaviest = np.sort(loads[before == member])[::-1]
        needed += int(np.searchsorted(np.cumsum(heaviest), was[member] - bound)) + 1
    assert (after != before).sum() <= 2 * needed + 2 * members


def test_no_more_moves_than_the_tolerance_asks_for() -> None:
    before = np.repeat([0, 1, 2, 3], [130, 90, 90, 90]).astype(np.int16)
    after = rebalance(before, 4, np.ones(400), 0.1)
    assert held(after, 4)[0] == 110
    assert (after != before).sum() == 20


def test_no_heavier_slot_moves_than_what_is_too_much() -> None:
    before = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5], np.int16)
    loads = np.array([5.0, 4.0, 1.0, 1.0, 1.0, *[5.5] * 8, 4.0])
    after = rebalance(before, 6, loads, 0.1)
    assert np.flatnonzero(after != before).tolist() == [2]
    assert after[2] == 5


def test_who_is_just_at_the_bound_gives_nothing_up() -> None:
    """Whatever becomes of loads that are no whole part of the sum."""
    before = np.array([0, 0, 0, 1, 1, 2, 2, 3, 3, 4], np.int16)
    loads = np.array([1.0, *[3.0] * 9])
    assert held(before, 6, loads).max() == 1.5 * loads.sum() / 6
    assert (rebalance(before, 6, loads, 0.5) == before).all()


def test_a_slot_heavier_than_the_mean_stays_alone() -> None:
    before = even_split(64, 4)
    loads = np.ones(64)
    loads[3] = 100.0
    after = rebalance(before, 4, loads)
    assert after[3] == 0
    assert held(after, 4).tolist()[0] == 1
    assert held(after, 4, loads).max() == 100.0
    assert held(after, 4)[1:].tolist() == [21, 21, 21]


def test_two_heavy_slots_part() -> None:
    before = even_split(64, 4)
    loads = np.ones(64)
    loads[3] = loads[5] = 100.0
    after = rebalance(before, 4, loads)
    assert after[3] != after[5]
    assert sorted(held(after, 4, loads).tolist()) == [31.0, 31.0, 100.0, 100.0]


@pytest.mark.parametrize("loads", [np.zeros(64), np.ones(64)])
def test_a_balanced_group_stays_as_it_is(loads: Any) -> None:
    before = even_split(64, 4)
    assert (rebalance(before, 4, loads, 0.0) == before).all()


@pytest.mark.parametrize("tail", [1e-300, 1e300])
def test_tiny_and_huge_loads_are_shared_like_any(tail: float) -> None:
    before = np.zeros(64, np.int16)
    after = rebalance(before, 4, np.full(64, tail), 0.0)
    assert held(after, 4).tolist() == [16, 16, 16, 16]


@pytest.mark.parametrize(("exponent", "members"), [(0.7, 8), (1.0, 8), (1.3, 8), (1.0, 50)])
@pytest.mark.parametrize("seed", range(3))
def test_skewed_keys_are_balanced_as_far_as_the_hottest_slot_lets(
    exponent: float, members: int, seed: int
) -> None:
    drawn = ZipfKeys(100_000, exponent).draw(300_000, np.random.default_rng(seed))
    meter = SlotLoad()
    meter.add(slots_of(drawn, len(drawn), 0))
    before = share_slots(names(members))
    after = rebalance(before, members, meter.loads)
    mean = len(drawn) / members
    hottest = np.bincount(drawn).max() / mean
    was, now = (held(each, members, meter.loads).max() / mean for each in (before, after))
    assert was > max(1.1, hottest) or exponent == 0.7
    assert now <= max(1.1, hottest * 1.02) + 1e-6  # a slot may have a few cold keys besides
    assert (after != before).mean() < 0.1


def test_bad_loads_and_limits_are_refused_by_name() -> None:
    owners = even_split(4, 2)
    for loads, message in (
        (np.zeros(5), r"loads: got shape \(5,\), expected \(4,\)"),
        (np.array([1.0, -1.0, 0.0, 0.0]), "loads: got -1.0 to 1.0, expected zero or more"),
        (np.array([1.0, np.nan, 0.0, 0.0]), "loads: got nan"),
        (np.array([1.0, np.inf, 0.0, 0.0]), "loads: got 0.0 to inf"),
    ):
        with pytest.raises(BadValueError, match=message):
            rebalance(owners, 2, loads)
        with pytest.raises(BadValueError, match=message):
            reassign(owners, ["a", "b"], ["a"], loads)
    with pytest.raises(BadValueError, match=r"tolerance = -0.1: expected"):
        rebalance(owners, 2, np.ones(4), -0.1)
    with pytest.raises(BadValueError, match="max_moves = -1: expected"):
        rebalance(owners, 2, np.ones(4), max_moves=-1)
    with pytest.raises(BadValueError, match="owners: got 0 to 1, expected 0 to 0"):
        rebalance(owners, 1, np.ones(4))
    with pytest.raises(BadValueError, match="owners: got 0 to 1, expected 0 to 0"):
        reassign(owners, ["a"], ["a"])


# How busy slots and keys are


def test_the_load_of_a_slot_is_its_records_and_decays() -> None:
    meter = SlotLoad()
    meter.add(np.array([3, 5, 3, SLOTS - 1], np.uint16))
    meter.decay(0.5)
    meter.add(np.array([3], np.uint16))
    assert {slot: meter.loads[slot] for slot in np.flatnonzero(meter.loads).tolist()} == {
        3: 2.0,
        5: 0.5,
        SLOTS - 1: 0.5,
    }


def test_a_slot_whose_load_has_all_but_gone_is_idle_again() -> None:
    meter = SlotLoad()
    meter.add(np.array([3], np.uint16))
    for _ in range(7):
        meter.decay(0.5)
    assert not meter.loads.any()


@pytest.mark.parametrize("factor", [-0.1, 1.1, float("nan")])
def test_a_load_cannot_decay_by_such_a_factor(factor: float) -> None:
    with pytest.raises(BadValueError, match="factor = "):
        SlotLoad().decay(factor)


@st.composite
def key_columns(draw: st.DrawFn) -> tuple[Any, int, list[Any]]:
    """A column of keys, its count, and the keys as a plain list."""
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


def test_few_keys_are_counted_exactly_and_ranked_first_seen_first_if_equal() -> None:
    hot = HotKeys(10)
    hot.add(("b", "a", None, "c", "c"), 5)
    hot.add(np.array([7, 7, 7, 7]), 4)
    assert hot.top(3) == [(7, 4, 0.5), ("c", 2, 0.25), ("b", 1, 0.125)]
    assert type(hot.top(1)[0][0]) is int


def test_hot_keys_that_are_forgotten_cost_the_others_no_more_than_their_share() -> None:
    hot = HotKeys(1)
    for key, count in (("a", 100), ("b", 99), ("c", 1), ("d", 99), ("e", 1)):
        hot.add(key, count)
    assert hot.total == 300
    assert hot.missed == 100
    assert hot.top(2) == [("d", 98, 98 / 300)]


def test_cold_keys_cost_hot_ones_next_to_nothing() -> None:
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


def test_nothing_is_hot_in_load_without_keys_or_records() -> None:
    hot = HotKeys()
    hot.add(None, 1_000)
    hot.add((None, None), 2)
    hot.add("nobody's", 0)
    assert hot.top(5) == []


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True])
def test_a_capacity_that_holds_nothing_is_refused(capacity: Any) -> None:
    with pytest.raises(BadValueError, match="capacity = "):
        HotKeys(capacity)


@given(
    st.lists(st.floats(0, 100), min_size=20, max_size=60),
    st.lists(st.floats(0, 500), min_size=2, max_size=5),
)
def test_what_members_have_elsewhere_counts_and_stays_there(
    loads: list[float], elsewhere: list[float]
) -> None:
    members, weights = len(elsewhere), np.array(loads)
    beside = np.array(elsewhere)
    owners = (np.arange(len(loads)) % members).astype(np.int16)
    moved = rebalance(owners, members, weights, elsewhere=beside)

    def totals(whose: Any) -> Any:
        return np.bincount(whose, weights, members) + beside

    before, after = totals(owners), totals(moved)
    assert after.max() <= before.max() * (1 + 1e-6) + 1e-6
    assert after.sum() == pytest.approx(before.sum())
    if before.max() <= 1.1 * before.mean():
        assert (moved == owners).all()


def test_who_has_much_elsewhere_gets_little_here() -> None:
    owners = share_slots(["a", "b", "c"])
    loads = np.ones(len(owners))
    moved = rebalance(owners, 3, loads, elsewhere=np.array([2 * len(owners), 0.0, 0.0]))
    shares = np.bincount(moved, minlength=3) / len(owners)
    assert shares[0] < 0.02
    assert max(shares) <= 1  # nobody has more here than the mean of all that there is
