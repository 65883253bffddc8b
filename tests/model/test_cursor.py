"""A cursor against one that keeps its records one by one, and the laws it must obey."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from plain_cursor import PlainCursor

from wavetank.model.cursor import (
    AVAILABLE,
    CONDEMNED,
    DONE,
    FLYING,
    NOBODY,
    SLOTS,
    WAITING,
    Cursor,
    Offsets,
)
from wavetank.model.spans import Span

FOREVER_US = 10**15
SOME_SLOTS = [0, 1, 2, 300, SLOTS - 1]


def offsets_of(spans: Iterable[Span]) -> list[int]:
    """All that is in some ranges, one by one, in their order."""
    return [offset for start, end in spans for offset in range(start, end)]


def array(offsets: Iterable[int]) -> Offsets:
    return np.array(list(offsets), np.int64)


# Histories


class Step(NamedTuple):
    """Something to be done to a cursor, in numbers that mean something in whatever state it is."""

    kind: str
    member: str
    first: int
    count: int
    pattern: int
    delay_us: int
    passed_us: int


KINDS = ["number", *["look_at"] * 2, *["give"] * 4, *["ack", "ack_all", "nack"] * 2, "release"]
KINDS += ["lose", *["expire"] * 2, "drop", "condemned", "condemn_again", "copy"]

STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        member=st.sampled_from("abcd"),
        first=st.integers(0, 99),
        count=st.integers(0, 50),
        pattern=st.integers(0, 255),
        delay_us=st.integers(-1, 50),
        passed_us=st.integers(0, 5),
    ),
    min_size=30,
    max_size=80,
)
LOOK_AT_SOME = Step("look_at", "a", 0, 20, 0, 0, 0)
LIMITS = st.sampled_from([0, 1, 2, 3])
PHASES = set(Phase) - {Phase.explain}
"""Explaining runs each line of a long history under a tracer, which takes minutes."""
BEGINNINGS = st.sampled_from([0, 5, 60, 2**40])

Call: TypeAlias = tuple[str, tuple[Any, ...]]


def calls(step: Step, cursor: Cursor, now_us: int) -> Iterator[Call]:
    """What a step is for a cursor: calls, of which each is to be made before the next is asked."""
    member, start, end = step.member, *some_range(step, cursor)
    then_us = now_us + step.delay_us
    match step.kind:
        case "look_at":
            yield "look_at", (cursor.next + step.count, *some_slots(step, cursor))
        case "give":
            yield "number", (member,)
            if len(offsets := some_available(step, cursor)):
                yield "give", (member, offsets, then_us)
        case "ack" | "release":
            yield step.kind, (somebody(step, cursor), start, end)
        case "ack_all":
            ends = range(start, max(start + 1, end), 1 + step.pattern % 5)
            yield "ack_all", (somebody(step, cursor), [(edge, edge + 1) for edge in ends])
        case "nack":
            yield "nack", (somebody(step, cursor), start, end, then_us, now_us)
        case "drop":
            start = min(start, cursor.next) if cursor.keyed else start
            yield "drop", (start, min(end, start + step.count // 2 - 2))
        case "number":
            yield "number", (member,)
        case "lose":
            yield "lose", (somebody(step, cursor), now_us)
        case "expire":
            yield "expire", (now_us,)
        case "condemned" | "condemn_again":
            yield step.kind, ()


def some_range(step: Step, cursor: Cursor) -> Span:
    """The whole window, or a range that may be beside it, empty or the wrong way round."""
    assert cursor.committed is not None
    if step.pattern % 3 == 0:
        return cursor.committed, cursor.next
    start = cursor.committed - 3 + step.first % (cursor.next - cursor.committed + 6)
    return start, start - 2 + step.count


def some_slots(step: Step, cursor: Cursor) -> tuple[npt.NDArray[np.uint16], ...]:
    if not cursor.keyed or step.pattern < 32:
        return ()
    some = [SOME_SLOTS[(step.first + i * step.pattern) % 7 % 5] for i in range(step.count)]
    return (np.array(some, np.uint16),)


def some_available(step: Step, cursor: Cursor) -> Offsets:
    """Any of what is available; where there are keys, of slots that nobody else has."""
    offsets = cursor.available_offsets()
    if cursor.keyed:
        holders = cursor.slot_holders(cursor.slots(offsets))
        offsets = offsets[(holders == NOBODY) | (holders == cursor.number(step.member))]
    if step.pattern == 0 or not len(offsets):
        return offsets
    offsets = offsets[step.first % len(offsets) :][: step.count + 1]
    chosen = [step.pattern >> index % 8 & 1 for index in range(len(offsets))]
    return offsets[np.array(chosen, np.bool_)]


def somebody(step: Step, cursor: Cursor) -> str:
    """Mostly a member that has something, but perhaps one that has nothing or never came."""
    busy = [member for member, count in cursor.in_flight.items() if count]
    if busy and step.first % 5:
        return busy[step.count % len(busy)]
    return step.member if step.first % 10 else "stranger"


# One by one


def same_answers(name: str, found: Any, expected: Any) -> None:
    """Compare what a cursor has answered with what a plain one has, which does not make runs."""
    match name:
        case "ack" | "ack_all" | "nack" | "release" | "lose" | "drop":
            assert offsets_of(found) == expected
            assert all(start < end for start, end in found)
            assert all(a[1] < b[0] for a, b in pairwise(found))
        case "expire":
            late = [(member, offset) for member, *span in found for offset in range(*span)]
            assert sorted(late) == sorted(expected)
            assert all(start < end for _, start, end in found)
        case "condemned":
            assert sorted(offsets_of(found)) == sorted(expected)
        case _:
            assert found == expected


def same_states(cursor: Cursor, plain: PlainCursor) -> None:
    assert (cursor.committed, cursor.next) == (plain.committed, plain.next)
    for offset, record in plain.records.items():
        assert cursor.state(offset) == record.state
        if offset >= plain.committed:
            assert cursor.deliveries(offset) == record.deliveries
    assert cursor.state(plain.begin - 1) == DONE
    assert cursor.state(plain.next) == AVAILABLE


def same_counts(cursor: Cursor, plain: PlainCursor) -> None:
    available = plain.in_state(AVAILABLE)
    assert cursor.available_offsets().tolist() == available
    assert cursor.available_offsets(in_order=True).tolist() == plain.before_all_blocked()
    assert cursor.available == len(available)
    assert cursor.blocked == len(plain.in_state(WAITING, CONDEMNED))
    in_flight = Counter(plain.records[offset].holder for offset in plain.in_state(FLYING))
    assert cursor.in_flight == {member: in_flight[member] for member in plain.numbers}


def same_due(cursor: Cursor, plain: PlainCursor) -> None:
    """A cursor may be asked to expire too early, but not for nothing when it is through."""
    due_us = cursor.next_due_us()
    real = [plain.records[offset].due_us for offset in plain.in_state(WAITING, FLYING)]
    if real:
        assert due_us is not None
        assert due_us <= min(real)
    if plain.committed == plain.next:
        assert due_us is None


def same_slots(cursor: Cursor, plain: PlainCursor) -> None:
    window = array(range(plain.committed, plain.next))
    slots = [plain.records[offset].slot for offset in window.tolist()]
    assert cursor.slots(window).tolist() == slots
    held = plain.slot_holders()
    holders = [plain.numbers.get(held.get(slot, ""), NOBODY) for slot in SOME_SLOTS]
    assert cursor.slot_holders(np.array(SOME_SLOTS, np.uint16)).tolist() == holders
    blocked = {plain.records[offset].slot for offset in plain.in_state(WAITING, CONDEMNED)}
    assert np.flatnonzero(cursor.blocked_slots()).tolist() == sorted(blocked)


def compare(cursor: Cursor, plain: PlainCursor) -> None:
    same_states(cursor, plain)
    same_counts(cursor, plain)
    same_due(cursor, plain)
    if cursor.keyed:
        same_slots(cursor, plain)


@pytest.mark.parametrize("keyed", [False, True])
@settings(max_examples=120, phases=PHASES)
@given(LIMITS, BEGINNINGS, STEPS)
def test_a_cursor_and_its_copies_are_as_good_as_ones_that_keep_records_one_by_one(
    keyed: bool, max_deliveries: int, begin: int, steps: list[Step]
) -> None:
    cursor = Cursor(max_deliveries, keyed=keyed)
    cursor.begin(begin)
    pairs = [(cursor, PlainCursor(max_deliveries, begin))]
    now_us = 0
    for step in steps:
        now_us += step.passed_us
        cursor, plain = pairs[step.first % len(pairs)]
        if step.kind == "copy":
            pairs = [*pairs, (cursor.copy(), plain.copy())][-3:]
        for name, args in calls(step, cursor, now_us):
            same_answers(name, getattr(cursor, name)(*args), getattr(plain, name)(*args))
        for each_cursor, each_plain in pairs:
            compare(each_cursor, each_plain)


# Laws


def play(
    steps: list[Step], max_deliveries: int = 0, *, keyed: bool = False
) -> Iterator[tuple[Cursor, str, tuple[Any, ...], Any]]:
    """Live a history; each call with its answer, and the cursor to which it has happened.

    Where it is copied, the history goes on with the copy while the first one comes to ruin.
    """
    cursor = Cursor(max_deliveries, keyed=keyed)
    cursor.begin(7)
    now_us = 0
    for step in steps:
        now_us += step.passed_us
        for name, args in calls(step, cursor, now_us):
            yield cursor, name, args, getattr(cursor, name)(*args)
        if step.kind == "copy":
            cursor, old = cursor.copy(), cursor
            for member in list(old.in_flight):
                old.lose(member, FOREVER_US)
            old.drop(old.next - 1, old.next + 5)


def holders(cursor: Cursor) -> dict[int, list[str]]:
    """Who has each record in flight, as they find out who acknowledge all there is."""
    found: dict[int, list[str]] = {}
    for member in cursor.in_flight:
        for offset in offsets_of(cursor.copy().ack(member, 0, cursor.next)):
            found.setdefault(offset, []).append(member)
    return found


def given_back(name: str, answer: Any) -> list[int]:
    """What is not in flight any more after a call, among others."""
    match name:
        case "ack" | "ack_all" | "nack" | "release" | "lose" | "drop":
            return offsets_of(answer)
        case "expire":
            return offsets_of((start, end) for _, start, end in answer)
        case _:
            return []


laws = settings(max_examples=50, phases=PHASES)


@laws
@given(LIMITS, STEPS)
def test_no_record_is_forgotten(max_deliveries: int, steps: list[Step]) -> None:
    for cursor, *_ in play(steps, max_deliveries):
        assert cursor.committed is not None
        window = range(cursor.committed, cursor.next)
        states = Counter(cursor.state(offset) for offset in window)
        assert states[AVAILABLE] == cursor.available
        assert states[FLYING] == sum(cursor.in_flight.values())
        assert states[WAITING] + states[CONDEMNED] == cursor.blocked
        assert not window or cursor.state(window[0]) != DONE


@laws
@given(LIMITS, st.booleans(), STEPS)
def test_a_group_that_takes_and_acknowledges_everything_gets_to_the_end(
    max_deliveries: int, keyed: bool, steps: list[Step]
) -> None:
    *_, (cursor, *_) = play([LOOK_AT_SOME, *steps], max_deliveries, keyed=keyed)
    cursor.expire(FOREVER_US)
    cursor.condemn_again()
    for start, end in cursor.condemned():
        cursor.drop(start, end)
    if len(offsets := cursor.available_offsets()):
        cursor.give("last", offsets, FOREVER_US)
        cursor.ack("last", int(offsets[0]), cursor.next)
    assert cursor.committed == cursor.next
    assert (cursor.available, cursor.blocked, sum(cursor.in_flight.values())) == (0, 0, 0)
    assert cursor.next_due_us() is None
    if keyed:
        every = np.arange(SLOTS).astype(np.uint16)
        assert (cursor.slot_holders(every) == NOBODY).all()
        assert not cursor.blocked_slots().any()


@laws
@given(LIMITS, STEPS)
def test_no_record_is_done_twice(max_deliveries: int, steps: list[Step]) -> None:
    done: Counter[int] = Counter()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name in ("ack", "ack_all", "drop"):
            done.update(offsets_of(answer))
        assert all(times == 1 for times in done.values())
        assert all(cursor.state(offset) == DONE for offset in done)


@laws
@given(LIMITS, st.booleans(), STEPS)
def test_no_record_is_in_flight_at_two_members(
    max_deliveries: int, keyed: bool, steps: list[Step]
) -> None:
    expected: dict[int, list[str]] = {}
    for cursor, name, args, answer in play(steps, max_deliveries, keyed=keyed):
        for offset in given_back(name, answer):
            expected.pop(offset, None)
        if name == "give":
            assert not expected.keys() & set(args[1].tolist())
            expected |= {offset: [args[0]] for offset in args[1].tolist()}
        assert holders(cursor) == expected


@laws
@given(LIMITS, STEPS)
def test_retries_are_the_times_that_a_record_was_given_without_being_released(
    max_deliveries: int, steps: list[Step]
) -> None:
    times: Counter[int] = Counter()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name == "give":
            for start, end, retries in answer:
                assert {times[offset] for offset in range(start, end)} == {retries}
                times.update(range(start, end))
        elif name == "release":
            times.subtract(offsets_of(answer))
        assert cursor.committed is not None
        for offset in range(cursor.committed, cursor.next):
            assert cursor.deliveries(offset) == times[offset]
        if max_deliveries:
            assert all(count <= max_deliveries for count in times.values())


@laws
@given(LIMITS, STEPS)
def test_the_committed_offset_never_falls_nor_does_anything_below_it_come_back(
    max_deliveries: int, steps: list[Step]
) -> None:
    before = 0
    for cursor, name, args, _ in play(steps, max_deliveries):
        assert cursor.committed is not None
        assert before <= cursor.committed <= cursor.next
        if name == "give":
            assert args[1][0] >= before
        before = cursor.committed


@laws
@given(st.sampled_from([1, 2, 3]), STEPS)
def test_a_condemned_record_is_listed_once_until_all_are_listed_again(
    max_deliveries: int, steps: list[Step]
) -> None:
    listed: set[int] = set()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name == "condemned":
            found = offsets_of(answer)
            assert len(found) == len(set(found))
            assert not listed & set(found)
            listed |= set(found)
            condemned = {o for o in range(7, cursor.next) if cursor.state(o) == CONDEMNED}
            assert set(found) <= condemned <= listed
        elif name == "condemn_again":
            listed.clear()


def flying(*, keyed: bool = False, max_deliveries: int = 0) -> Cursor:
    """A cursor of ten records, all of them at a member `a` until the time 100."""
    cursor = Cursor(max_deliveries, keyed=keyed)
    cursor.begin(0)
    cursor.look_at(10, np.arange(10).astype(np.uint16) if keyed else None)
    cursor.give("a", array(range(10)), 100)
    return cursor


@pytest.mark.parametrize("given_on", [False, True])
@pytest.mark.parametrize(
    "end",
    [
        lambda cursor: cursor.expire(100),
        lambda cursor: cursor.lose("a", 50),
        lambda cursor: cursor.release("a", 0, 10),
        lambda cursor: cursor.nack("a", 0, 10, 50, 50),
        lambda cursor: cursor.nack("a", 0, 10, 90, 50),
    ],
    ids=["late", "lost", "released", "refused", "refused for a while"],
)
def test_what_a_member_says_of_a_record_that_it_has_lost_counts_for_nothing(
    end: Any, given_on: bool
) -> None:
    cursor = flying()
    end(cursor)
    cursor.expire(99)
    if given_on:
        cursor.give("b", array(range(10)), 200)
    deliveries = cursor.deliveries(4)
    assert cursor.ack("a", 0, 10) == []
    assert cursor.nack("a", 0, 10, 300, 100) == []
    assert cursor.release("a", 0, 10) == []
    assert cursor.committed == 0
    assert cursor.state(4) == (FLYING if given_on else AVAILABLE)
    assert cursor.deliveries(4) == deliveries
    if given_on:
        assert cursor.ack("b", 0, 10) == [(0, 10)]


def test_a_record_that_comes_again_to_the_same_member_is_late_by_its_new_deadline() -> None:
    cursor = flying()
    cursor.nack("a", 3, 5, 40, 40)
    cursor.give("a", array([3, 4]), 140)
    assert cursor.expire(100) == [("a", 0, 3), ("a", 5, 10)]
    assert cursor.expire(139) == []
    assert cursor.next_due_us() == 140
    assert cursor.expire(140) == [("a", 3, 5)]


@pytest.mark.parametrize("keyed", [False, True])
def test_the_number_of_a_lost_member_goes_to_the_next_who_gets_nothing_else_of_it(
    keyed: bool,
) -> None:
    cursor = flying(keyed=keyed)
    assert cursor.number("b") == 1
    assert cursor.lose("a", 10) == [(0, 10)]
    cursor.give("b", array(range(5)), 200)
    assert cursor.number("c") == 0
    assert cursor.in_flight == {"b": 5, "c": 0}
    assert cursor.ack("c", 0, 10) == []
    cursor.give("c", array(range(5, 10)), 200)
    assert cursor.number("a") == 2
    assert cursor.lose("a", 10) == []
    if keyed:
        slots = np.arange(11).astype(np.uint16)
        assert cursor.slot_holders(slots).tolist() == [1] * 5 + [0] * 5 + [NOBODY]
    assert cursor.ack("c", 0, 10) == [(5, 10)]
    assert cursor.ack("b", 0, 10) == [(0, 5)]


def test_a_record_that_is_dropped_before_anybody_buries_it_is_not_listed() -> None:
    cursor = flying(max_deliveries=1)
    cursor.nack("a", 0, 10, 50, 50)
    assert cursor.drop(0, 4) == [(0, 4)]
    assert cursor.drop(6, 7) == [(6, 7)]
    assert cursor.condemned() == [(4, 6), (7, 10)]
    assert cursor.condemned() == []


def test_dropping_nothing_beyond_what_was_looked_at_looks_at_nothing() -> None:
    cursor = flying()
    assert cursor.drop(20, 20) == cursor.drop(30, 20) == []
    assert (cursor.next, cursor.available) == (10, 0)


def test_dropping_what_nobody_has_looked_at_leaves_what_is_before_it_available() -> None:
    cursor = flying()
    assert cursor.drop(12, 14) == [(12, 14)]
    assert cursor.available_offsets().tolist() == [10, 11]
    cursor.ack("a", 0, 10)
    assert cursor.drop(10, 12) == [(10, 12)]
    assert cursor.committed == cursor.next == 14


def test_a_record_that_nobody_can_handle_is_counted_beyond_what_small_numbers_hold() -> None:
    cursor = Cursor()
    cursor.begin(0)
    cursor.look_at(1)
    for _ in range(2**16):
        cursor.give("a", array([0]), 100)
        cursor.nack("a", 0, 1, 0, 0)
    assert cursor.give("a", array([0]), 100) == [(0, 1, 2**16)]


# A Kafka group


def test_a_committed_position_leaves_nothing_to_be_given_out() -> None:
    cursor = Cursor()
    assert cursor.claim("a", 1)
    assert cursor.committed is None
    assert [cursor.commit(offset) for offset in (5, 3, 200)] == [0, 5, 5]
    assert (cursor.committed, cursor.next, cursor.available) == (200, 200, 0)
    assert [cursor.state(offset) for offset in (0, 199, 200)] == [DONE, DONE, AVAILABLE]
    assert cursor.available_offsets().tolist() == []


def test_a_claim_moves_no_position_and_a_refused_one_no_owner() -> None:
    cursor = Cursor()
    cursor.claim("a", 3)
    cursor.commit(9)
    assert not cursor.claim("b", 3)
    assert not cursor.claim("a", 2)
    assert cursor.may_act("a", 3)
    assert cursor.claim("b", 4)
    assert cursor.committed == 9


def test_copies_have_the_same_owner_and_position_and_then_their_own() -> None:
    cursor = Cursor()
    cursor.claim("a", 3)
    cursor.commit(9)
    twin = cursor.copy()
    assert twin.may_act("a", 3)
    assert twin.claim("b", 4)
    assert (twin.commit(20), cursor.commit(12)) == (9, 9)
    assert (twin.committed, cursor.committed) == (20, 12)
    assert cursor.may_act("a", 3)
    assert not twin.may_act("a", 4)
