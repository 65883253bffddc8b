"""The cursor: its state table, random histories against a plain cursor, and its invariants."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cursor_histories import (
    BEGINNINGS,
    FOREVER_US,
    LIMITS,
    LOOK_AT_SOME,
    PHASES,
    SOME_SLOTS,
    STEPS,
    Step,
    calls,
    copy_of,
    play,
)
from helpers.plain_cursor import PlainCursor
from wavetank.model.log.cursor import (
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    BACKOFF,
    DONE,
    NOBODY,
    SLOTS,
    TRANSITIONS,
    Cursor,
    Offsets,
    RecordEvent,
)
from wavetank.model.log.offset_ranges import OffsetRange


def offsets_of(spans: Iterable[OffsetRange]) -> list[int]:
    """List every offset of some ranges, in the order of the ranges."""
    return [offset for start, end in spans for offset in range(start, end)]


def array(offsets: Iterable[int]) -> Offsets:
    return np.array(list(offsets), np.int64)


# The table of states


class Transition(NamedTuple):
    """A transition as documented, and a call that makes it with the only record, at offset 0."""

    state: int
    event: RecordEvent
    target: int
    max_deliveries: int
    call: Callable[[Cursor], Any]


KIP_932 = [
    # A consumer fetches the record; the delivery count goes up.
    Transition(AVAILABLE, "acquire", ACQUIRED, 0, lambda c: c.acquire("a", array([0]), 100)),
    # The consumer accepts the record: Acknowledged.
    Transition(ACQUIRED, "acknowledge", DONE, 0, lambda c: c.ack("a", 0, 1)),
    # The consumer releases the record.
    Transition(ACQUIRED, "release", AVAILABLE, 0, lambda c: c.release("a", 0, 1)),
    # The acquisition lock times out, and the limit of deliveries has not been reached.
    Transition(ACQUIRED, "retry", AVAILABLE, 0, lambda c: c.expire(100)),
    # The log start offset moves beyond an available record: Archived.
    Transition(AVAILABLE, "archive", DONE, 0, lambda c: c.archive(0, 1)),
]

KIP_1191 = [
    # The limit of deliveries is reached: the record is written to the dead-letter topic ...
    Transition(ACQUIRED, "exhaust", ARCHIVING, 1, lambda c: c.expire(100)),
    # ... and then Archived.
    Transition(ARCHIVING, "archive", DONE, 1, lambda c: c.archive(0, 1)),
]

OURS = [
    # A negative acknowledgement may ask for a delay before the next delivery.
    Transition(ACQUIRED, "back off", BACKOFF, 0, lambda c: c.nack("a", 0, 1, 50, 20)),
    Transition(BACKOFF, "elapse", AVAILABLE, 0, lambda c: c.expire(50)),
    # The log start offset moves: Kafka keeps an acquired record until its lock ends, this cursor
    # archives it at once.
    Transition(ACQUIRED, "archive", DONE, 0, lambda c: c.archive(0, 1)),
    Transition(BACKOFF, "archive", DONE, 0, lambda c: c.archive(0, 1)),
]

DOCUMENTED = [*KIP_932, *KIP_1191, *OURS]


def with_record_in(state: int, max_deliveries: int) -> Cursor:
    """Make a cursor with one record, in the given state."""
    cursor = Cursor(max_deliveries)
    cursor.begin(0)
    cursor.extend(1)
    if state != AVAILABLE:
        cursor.acquire("a", array([0]), 100)
    if state in (BACKOFF, ARCHIVING):
        cursor.nack("a", 0, 1, 50, 20)
    assert cursor.state(0) == state
    return cursor


def test_the_table_holds_the_documented_transitions_and_no_others() -> None:
    documented = {(each.state, each.event): each.target for each in DOCUMENTED}
    table = {
        (state, event): target
        for state, events in TRANSITIONS.items()
        for event, target in events.items()
    }
    assert table == documented
    assert len(documented) == len(DOCUMENTED)


@pytest.mark.parametrize("transition", DOCUMENTED)
def test_a_cursor_makes_each_documented_transition(transition: Transition) -> None:
    cursor = with_record_in(transition.state, transition.max_deliveries)
    transition.call(cursor)
    assert cursor.state(0) == transition.target


@pytest.mark.parametrize("transition", DOCUMENTED)
def test_a_cursor_makes_no_transition_that_is_missing_in_the_table(
    transition: Transition, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = with_record_in(transition.state, transition.max_deliveries)
    monkeypatch.delitem(TRANSITIONS[transition.state], transition.event)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match=transition.event):
        transition.call(cursor)


# Random histories


# Comparison with the plain cursor


def same_answers(name: str, found: Any, expected: Any) -> None:
    """Compare the answers of both cursors; the plain one answers with offsets, not ranges."""
    match name:
        case "ack" | "ack_all" | "nack" | "release" | "remove_member" | "archive":
            assert offsets_of(found) == expected
            assert all(start < end for start, end in found)
            assert all(a[1] < b[0] for a, b in pairwise(found))
        case "expire":
            late = [(member, offset) for member, *span in found for offset in range(*span)]
            assert sorted(late) == sorted(expected)
            assert all(start < end for _, start, end in found)
        case "take_exhausted":
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
    assert cursor.available_offsets(in_order=True).tolist() == plain.before_first_blocked()
    assert cursor.available == len(available)
    assert cursor.blocked == len(plain.in_state(BACKOFF, ARCHIVING))
    in_flight = Counter(plain.records[offset].holder for offset in plain.in_state(ACQUIRED))
    assert cursor.in_flight == {member: in_flight[member] for member in plain.numbers}


def same_due(cursor: Cursor, plain: PlainCursor) -> None:
    """`next_due_us` may be too early, but not when every record is done."""
    due_us = cursor.next_due_us()
    deadlines = [plain.records[offset].due_us for offset in plain.in_state(BACKOFF, ACQUIRED)]
    if deadlines:
        assert due_us is not None
        assert due_us <= min(deadlines)
    if plain.committed == plain.next:
        assert due_us is None


def same_slots(cursor: Cursor, plain: PlainCursor) -> None:
    window = array(range(plain.committed, plain.next))
    slots = [plain.records[offset].slot for offset in window.tolist()]
    assert cursor.slots(window).tolist() == slots
    held = plain.slot_holders()
    holders = [plain.numbers.get(held.get(slot, ""), NOBODY) for slot in SOME_SLOTS]
    assert cursor.slot_holders(np.array(SOME_SLOTS, np.uint16)).tolist() == holders
    blocked = {plain.records[offset].slot for offset in plain.in_state(BACKOFF, ARCHIVING)}
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
def test_a_cursor_and_its_copies_answer_as_a_cursor_that_keeps_records_one_by_one(
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
            pairs = [*pairs, (copy_of(cursor), plain.copy())][-3:]
        for name, args in calls(step, cursor, now_us):
            same_answers(name, getattr(cursor, name)(*args), getattr(plain, name)(*args))
        for each_cursor, each_plain in pairs:
            compare(each_cursor, each_plain)


# Invariants


def holders(cursor: Cursor) -> dict[int, list[str]]:
    """Find the members that hold each record, by letting each acknowledge everything in a copy."""
    found: dict[int, list[str]] = {}
    for member in cursor.in_flight:
        for offset in offsets_of(copy_of(cursor).ack(member, 0, cursor.next)):
            found.setdefault(offset, []).append(member)
    return found


def given_back(name: str, answer: Any) -> list[int]:
    """List records that are certainly not in flight after a call."""
    match name:
        case "ack" | "ack_all" | "nack" | "release" | "remove_member" | "archive":
            return offsets_of(answer)
        case "expire":
            return offsets_of((start, end) for _, start, end in answer)
        case _:
            return []


invariant = settings(max_examples=50, phases=PHASES)


@invariant
@given(LIMITS, STEPS)
def test_each_record_of_the_window_is_counted_in_its_state(
    max_deliveries: int, steps: list[Step]
) -> None:
    for cursor, *_ in play(steps, max_deliveries):
        assert cursor.committed is not None
        window = range(cursor.committed, cursor.next)
        states = Counter(cursor.state(offset) for offset in window)
        assert states[AVAILABLE] == cursor.available
        assert states[ACQUIRED] == sum(cursor.in_flight.values())
        assert states[BACKOFF] + states[ARCHIVING] == cursor.blocked
        assert not window or cursor.state(window[0]) != DONE


@invariant
@given(LIMITS, st.booleans(), STEPS)
def test_a_group_that_acquires_and_acknowledges_everything_commits_the_end(
    max_deliveries: int, keyed: bool, steps: list[Step]
) -> None:
    *_, (cursor, *_) = play([LOOK_AT_SOME, *steps], max_deliveries, keyed=keyed)
    cursor.expire(FOREVER_US)
    cursor.relist_exhausted()
    for start, end in cursor.take_exhausted():
        cursor.archive(start, end)
    if len(offsets := cursor.available_offsets()):
        cursor.acquire("last", offsets, FOREVER_US)
        cursor.ack("last", int(offsets[0]), cursor.next)
    assert cursor.committed == cursor.next
    assert (cursor.available, cursor.blocked, sum(cursor.in_flight.values())) == (0, 0, 0)
    assert cursor.next_due_us() is None
    if keyed:
        every = np.arange(SLOTS).astype(np.uint16)
        assert (cursor.slot_holders(every) == NOBODY).all()
        assert not cursor.blocked_slots().any()


@invariant
@given(LIMITS, STEPS)
def test_no_record_becomes_done_twice(max_deliveries: int, steps: list[Step]) -> None:
    done: Counter[int] = Counter()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name in ("ack", "ack_all", "archive"):
            done.update(offsets_of(answer))
        assert all(times == 1 for times in done.values())
        assert all(cursor.state(offset) == DONE for offset in done)


@invariant
@given(LIMITS, st.booleans(), STEPS)
def test_no_record_is_acquired_by_two_members_at_once(
    max_deliveries: int, keyed: bool, steps: list[Step]
) -> None:
    expected: dict[int, list[str]] = {}
    for cursor, name, args, answer in play(steps, max_deliveries, keyed=keyed):
        for offset in given_back(name, answer):
            expected.pop(offset, None)
        if name == "acquire":
            assert not expected.keys() & set(args[1].tolist())
            expected |= {offset: [args[0]] for offset in args[1].tolist()}
        assert holders(cursor) == expected


@invariant
@given(LIMITS, STEPS)
def test_the_delivery_count_counts_acquisitions_that_were_not_released(
    max_deliveries: int, steps: list[Step]
) -> None:
    times: Counter[int] = Counter()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name == "acquire":
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


@invariant
@given(LIMITS, STEPS)
def test_the_committed_offset_never_falls_and_no_record_below_it_is_delivered_again(
    max_deliveries: int, steps: list[Step]
) -> None:
    before = 0
    for cursor, name, args, _ in play(steps, max_deliveries):
        assert cursor.committed is not None
        assert before <= cursor.committed <= cursor.next
        if name == "acquire":
            assert args[1][0] >= before
        before = cursor.committed


@invariant
@given(st.sampled_from([1, 2, 3]), STEPS)
def test_an_exhausted_record_is_listed_once_until_all_are_listed_again(
    max_deliveries: int, steps: list[Step]
) -> None:
    listed: set[int] = set()
    for cursor, name, _, answer in play(steps, max_deliveries):
        if name == "take_exhausted":
            found = offsets_of(answer)
            assert len(found) == len(set(found))
            assert not listed & set(found)
            listed |= set(found)
            archiving = {o for o in range(7, cursor.next) if cursor.state(o) == ARCHIVING}
            assert set(found) <= archiving <= listed
        elif name == "relist_exhausted":
            listed.clear()


def acquired(*, keyed: bool = False, max_deliveries: int = 0) -> Cursor:
    """Make a cursor of ten records, all acquired by member `a` until the time 100."""
    cursor = Cursor(max_deliveries, keyed=keyed)
    cursor.begin(0)
    cursor.extend(10, np.arange(10).astype(np.uint16) if keyed else None)
    cursor.acquire("a", array(range(10)), 100)
    return cursor


@pytest.mark.parametrize("acquired_again", [False, True])
@pytest.mark.parametrize(
    "end",
    [
        lambda cursor: cursor.expire(100),
        lambda cursor: cursor.remove_member("a", 50),
        lambda cursor: cursor.release("a", 0, 10),
        lambda cursor: cursor.nack("a", 0, 10, 50, 50),
        lambda cursor: cursor.nack("a", 0, 10, 90, 50),
    ],
    ids=["timed out", "member lost", "released", "nacked", "nacked with a delay"],
)
def test_a_member_cannot_settle_a_record_that_it_no_longer_holds(
    end: Any, acquired_again: bool
) -> None:
    cursor = acquired()
    end(cursor)
    cursor.expire(99)
    if acquired_again:
        cursor.acquire("b", array(range(10)), 200)
    deliveries = cursor.deliveries(4)
    assert cursor.ack("a", 0, 10) == []
    assert cursor.nack("a", 0, 10, 300, 100) == []
    assert cursor.release("a", 0, 10) == []
    assert cursor.committed == 0
    assert cursor.state(4) == (ACQUIRED if acquired_again else AVAILABLE)
    assert cursor.deliveries(4) == deliveries
    if acquired_again:
        assert cursor.ack("b", 0, 10) == [(0, 10)]


def test_a_record_acquired_again_by_the_same_member_has_a_new_deadline() -> None:
    cursor = acquired()
    cursor.nack("a", 3, 5, 40, 40)
    cursor.acquire("a", array([3, 4]), 140)
    assert cursor.expire(100) == [("a", 0, 3), ("a", 5, 10)]
    assert cursor.expire(139) == []
    assert cursor.next_due_us() == 140
    assert cursor.expire(140) == [("a", 3, 5)]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_new_member_that_reuses_a_number_does_not_hold_the_lost_members_records(
    keyed: bool,
) -> None:
    cursor = acquired(keyed=keyed)
    assert cursor.number("b") == 1
    assert cursor.remove_member("a", 10) == [(0, 10)]
    cursor.acquire("b", array(range(5)), 200)
    assert cursor.number("c") == 0
    assert cursor.in_flight == {"b": 5, "c": 0}
    assert cursor.ack("c", 0, 10) == []
    cursor.acquire("c", array(range(5, 10)), 200)
    assert cursor.number("a") == 2
    assert cursor.remove_member("a", 10) == []
    if keyed:
        slots = np.arange(11).astype(np.uint16)
        assert cursor.slot_holders(slots).tolist() == [1] * 5 + [0] * 5 + [NOBODY]
    assert cursor.ack("c", 0, 10) == [(5, 10)]
    assert cursor.ack("b", 0, 10) == [(0, 5)]


def test_a_dropped_record_is_not_listed_as_exhausted() -> None:
    cursor = acquired(max_deliveries=1)
    cursor.nack("a", 0, 10, 50, 50)
    assert cursor.archive(0, 4) == [(0, 4)]
    assert cursor.archive(6, 7) == [(6, 7)]
    assert cursor.take_exhausted() == [(4, 6), (7, 10)]
    assert cursor.take_exhausted() == []


def test_dropping_an_empty_range_does_not_extend_the_window() -> None:
    cursor = acquired()
    assert cursor.archive(20, 20) == cursor.archive(30, 20) == []
    assert (cursor.next, cursor.available) == (10, 0)


def test_dropping_a_range_beyond_the_window_leaves_the_records_before_it_available() -> None:
    cursor = acquired()
    assert cursor.archive(12, 14) == [(12, 14)]
    assert cursor.available_offsets().tolist() == [10, 11]
    cursor.ack("a", 0, 10)
    assert cursor.archive(10, 12) == [(10, 12)]
    assert cursor.committed == cursor.next == 14


def test_the_delivery_count_exceeds_sixteen_bits() -> None:
    cursor = Cursor()
    cursor.begin(0)
    cursor.extend(1)
    for _ in range(2**16):
        cursor.acquire("a", array([0]), 100)
        cursor.nack("a", 0, 1, 0, 0)
    assert cursor.acquire("a", array([0]), 100) == [(0, 1, 2**16)]


# Groups that commit offsets


def test_a_committed_offset_leaves_no_records_available() -> None:
    cursor = Cursor()
    assert cursor.claim("a", 1)
    assert cursor.committed is None
    assert [cursor.commit(offset) for offset in (5, 3, 200)] == [0, 5, 3]
    assert (cursor.committed, cursor.next, cursor.available) == (200, 200, 0)
    assert [cursor.state(offset) for offset in (0, 199, 200)] == [DONE, DONE, AVAILABLE]
    assert cursor.available_offsets().tolist() == []


def test_a_claim_keeps_the_committed_offset_and_a_refused_claim_keeps_the_owner() -> None:
    cursor = Cursor()
    cursor.claim("a", 3)
    cursor.commit(9)
    assert not cursor.claim("b", 3)
    assert not cursor.claim("a", 2)
    assert cursor.may_act("a", 3)
    assert cursor.claim("b", 4)
    assert cursor.committed == 9


def test_a_copy_starts_with_the_same_owner_and_offset_and_then_changes_alone() -> None:
    cursor = Cursor()
    cursor.claim("a", 3)
    cursor.commit(9)
    twin = copy_of(cursor)
    assert twin.may_act("a", 3)
    assert twin.claim("b", 4)
    assert (twin.commit(20), cursor.commit(12)) == (9, 9)
    assert (twin.committed, cursor.committed) == (20, 12)
    assert cursor.may_act("a", 3)
    assert not twin.may_act("a", 4)
