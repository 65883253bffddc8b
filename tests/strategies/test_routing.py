"""Owners of slots: first assignment, changes of members, balancing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavetank.model.errors import BadValueError
from wavetank.strategies.routing import Owners, reassign, rebalance, share_slots
from wavetank.strategies.slots import (
    SLOTS,
    SlotLoad,
    slots_of,
)
from wavetank.strategies.workload import ZipfKeys

keys = st.one_of(st.binary(), st.text(), st.integers())


# Assignment


def names(count: int) -> list[str]:
    return [f"consumer-{number}" for number in range(count)]


def held(owners: Owners, members: int, loads: Any = None) -> Any:
    return np.bincount(owners, loads, members)


def even_split(slots: int, members: int) -> Owners:
    return (np.arange(slots) * members // slots).astype(np.int16)


@given(st.integers(1, 300))
def test_slots_are_assigned_in_even_ranges(count: int) -> None:
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
def test_invalid_members_are_refused(members: list[str], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        share_slots(members)
    with pytest.raises(BadValueError, match=message):
        reassign(share_slots(["a"]), ["a"], members)


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Draw members before and after: some stay, some leave, some are new, in any order."""
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
    """Return for each slot its new owner, if that is another member than before."""
    names_of = [(old[was], new[now]) for was, now in zip(before, after, strict=True)]
    return [now if was != now else None for was, now in names_of]


@given(changes(), st.data())
def test_a_slot_moves_only_from_a_member_that_left_or_to_a_new_one(
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
    """Return the fewest moves after which the numbers of slots differ by at most one."""
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
def test_a_new_member_gets_its_fair_share_of_an_uneven_group(
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
            assert counts[new.index(old[was])] >= most - 1, (
                "taken from a member with fewer than the most slots"
            )


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
def test_slots_of_members_that_left_go_to_the_least_loaded(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    """No slot that a member received could make it and another member more even."""
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
def test_a_new_member_gets_its_fair_share_of_light_slots_by_load(
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
def test_a_new_member_never_becomes_heavier_than_the_donor_was(
    change: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    """Whatever the weights of slots, a new member never raises the highest load."""
    old, new = change
    new = [*old, *(name for name in new if name not in old)]
    before = data.draw(owned(len(old)))
    loads = loads_of(data, len(before))
    after = reassign(before, old, new, loads)
    assert held(after, len(new), loads).max() <= held(before, len(old), loads).max()


@pytest.mark.parametrize("beside", [0.0, 1.0])
def test_a_new_member_beside_one_huge_slot_gets_as_much_as_the_others(beside: float) -> None:
    """A slot that cannot be divided does not count, so lightly loaded members keep their slots."""
    loads = np.ones(800)
    loads[:100] = beside
    loads[0] = 5_000.0
    now = held(reassign(even_split(800, 8), names(8), names(9), loads), 9, loads)
    assert now[0] == 5_000.0
    assert now[1:].max() - now[1:].min() <= 1


def test_a_new_member_beside_one_that_received_a_huge_slot_gets_a_fair_share_of_the_rest() -> None:
    before = np.repeat([0, 1, 2, 3], [1, 100, 20, 20]).astype(np.int16)
    loads = np.ones(141)
    loads[0] = 5_000.0
    after = reassign(before, names(4), [*names(4)[1:], "first", "second"], loads)
    assert held(after, 5, loads).tolist() == [65.0, 20.0, 20.0, 5_000.0, 35.0]


def test_a_new_member_leaves_the_donors_even() -> None:
    before = np.repeat([0, 1], [100, 80]).astype(np.int16)
    assert held(reassign(before, names(3), names(4)), 4).tolist() == [67, 68, 0, 45]


def test_a_new_member_also_gets_its_fair_share_of_idle_slots() -> None:
    """Idle slots may get keys later, and the group should be balanced then."""
    loads = np.where(np.arange(800) % 4 == 0, 10.0, 0.0)
    after = reassign(even_split(800, 3), names(3), names(4), loads)
    assert held(after[loads == 0], 4).tolist() == [150, 150, 150, 150]
    assert held(after[loads > 0], 4).tolist() == [50, 50, 50, 50]


def test_no_slot_moves_when_members_are_only_reordered() -> None:
    before = share_slots(["a", "b", "c"])
    after = reassign(before, ["a", "b", "c"], ["c", "a", "b"], np.arange(SLOTS, dtype=float))
    assert moved_to(before, ["a", "b", "c"], after, ["c", "a", "b"]) == [None] * SLOTS


# Balancing


def overloaded_that_could_be_helped(
    owners: Owners, members: int, loads: Any, tolerance: float
) -> list[tuple[int, int]]:
    """List every (slot, receiver) whose move would lower the higher load of the two members."""
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
def test_after_balancing_no_single_move_lowers_an_overloaded_member(
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
def test_a_member_still_overloaded_has_one_slot_or_little_more_than_the_least_loaded(
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
def test_a_member_within_the_bound_gives_up_no_slot(
    members: int, tolerance: float, data: st.DataObject
) -> None:
    """With light slots, for which no receiver becomes overloaded. Idle slots never move."""
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
def test_balancing_stops_after_max_moves_without_making_anything_worse(
    members: int, max_moves: int, data: st.DataObject
) -> None:
    before = data.draw(owned(members))
    loads = loads_of(data, len(before))
    after = rebalance(before, members, loads, 0.0, max_moves)
    assert (after != before).sum() <= max_moves
    assert held(after, members, loads).max() <= held(before, members, loads).max()


@given(st.integers(2, 12), st.integers(0, 2**32))
def test_few_slots_move_because_the_heaviest_that_fit_are_chosen(members: int, seed: int) -> None:
    """At most a few more than twice the number needed if slots could be divided."""
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


def test_no_more_slots_move_than_the_tolerance_requires() -> None:
    before = np.repeat([0, 1, 2, 3], [130, 90, 90, 90]).astype(np.int16)
    after = rebalance(before, 4, np.ones(400), 0.1)
    assert held(after, 4)[0] == 110
    assert (after != before).sum() == 20


def test_no_slot_moves_that_is_heavier_than_the_overload() -> None:
    before = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5], np.int16)
    loads = np.array([5.0, 4.0, 1.0, 1.0, 1.0, *[5.5] * 8, 4.0])
    after = rebalance(before, 6, loads, 0.1)
    assert np.flatnonzero(after != before).tolist() == [2]
    assert after[2] == 5


def test_a_member_exactly_at_the_bound_gives_up_no_slot() -> None:
    """Also with loads that are rounded when they become weights."""
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


def test_two_heavy_slots_are_separated() -> None:
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
def test_tiny_and_huge_loads_are_balanced_like_others(tail: float) -> None:
    before = np.zeros(64, np.int16)
    after = rebalance(before, 4, np.full(64, tail), 0.0)
    assert held(after, 4).tolist() == [16, 16, 16, 16]


@pytest.mark.parametrize(("exponent", "members"), [(0.7, 8), (1.0, 8), (1.3, 8), (1.0, 50)])
@pytest.mark.parametrize("seed", range(3))
def test_skewed_keys_are_balanced_as_far_as_the_hottest_slot_allows(
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


def test_invalid_loads_and_limits_are_refused_with_their_name() -> None:
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


@given(
    st.lists(st.floats(0, 100), min_size=20, max_size=60),
    st.lists(st.floats(0, 500), min_size=2, max_size=5),
)
def test_load_elsewhere_counts_and_does_not_move(
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


def test_a_member_with_much_load_elsewhere_gets_little_here() -> None:
    owners = share_slots(["a", "b", "c"])
    loads, beside = np.ones(len(owners)), np.array([len(owners) / 2, 0, 0])
    moved = rebalance(owners, 3, loads, elsewhere=beside)
    totals = np.bincount(moved, loads, 3) + beside
    assert totals.max() <= 1.1 * totals.mean() + 1
    assert np.bincount(moved)[0] < 0.1 * len(owners)
