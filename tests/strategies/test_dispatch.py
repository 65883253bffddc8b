"""The dispatch strategies, checked with plain loops on cursors with a random history."""

from itertools import pairwise
from typing import NamedTuple

import attrs
import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wavetank.model.log.cursor import ACQUIRED, ARCHIVING, AVAILABLE, BACKOFF, SLOTS, Cursor
from wavetank.model.log.offset_ranges import ranges_of
from wavetank.strategies.dispatch import Portions, by_key, in_order, in_turn
from wavetank.strategies.routing import Owners

MEMBERS = ["a", "b", "c", "d"]
SOME_SLOTS = [0, 1, 2, 3, 500, SLOTS - 1]
BEGIN = 40

brute_force = settings(max_examples=100, phases=set(Phase) - {Phase.explain})


# Cursors with a history


class Step(NamedTuple):
    """A step of a history, in numbers that can be applied to a cursor in any state."""

    kind: str
    member: str
    first: int
    count: int
    pattern: int
    delay_us: int


KINDS = ["look_at", *["give"] * 4, "ack", *["nack"] * 3, *["release"] * 2, "expire", "lose"]

STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 60),
        count=st.integers(1, 30),
        pattern=st.integers(1, 255),
        delay_us=st.integers(0, 20),
    ),
    max_size=25,
)
LOOK_AT_SOME = Step("look_at", "a", 0, 25, 37, 0)


@attrs.define
class History:
    """A cursor after a random history, with the slot and the last holder of each record."""

    cursor: Cursor
    slots: dict[int, int] = attrs.Factory(dict)
    given_to: dict[int, str] = attrs.Factory(dict)
    """The member that acquired each record last."""
    now_us: int = 0

    def window(self) -> range:
        assert self.cursor.committed is not None
        return range(self.cursor.committed, self.cursor.next)

    def in_state(self, *states: int) -> list[int]:
        return [offset for offset in self.window() if self.cursor.state(offset) in states]

    def holders(self) -> dict[int, str]:
        """Return the member, at most one, that has acquired records of each slot."""
        acquired = self.in_state(ACQUIRED)
        pairs = {(self.slots[offset], self.given_to[offset]) for offset in acquired}
        assert not self.cursor.keyed or len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def blocked_slots(self) -> set[int]:
        return {self.slots[offset] for offset in self.in_state(BACKOFF, ARCHIVING)}

    def apply(self, step: Step) -> None:
        cursor, start = self.cursor, BEGIN + step.first
        span = start, start + step.count
        self.now_us += 1
        then_us = self.now_us + step.delay_us
        match step.kind:
            case "look_at":
                self.look_at(step)
            case "give":
                self.give(step, then_us)
            case "ack" | "release":
                getattr(cursor, step.kind)(step.member, *span)
            case "nack":
                cursor.nack(step.member, *span, then_us, self.now_us)
            case "expire":
                cursor.expire(then_us)
            case "lose":
                cursor.remove_member(step.member, self.now_us)

    def look_at(self, step: Step) -> None:
        first = self.cursor.next
        slots = [SOME_SLOTS[step.pattern * index % 7 % 6] for index in range(step.count)]
        self.slots |= {first + index: slot for index, slot in enumerate(slots)}
        keyed = np.array(slots, np.uint16) if self.cursor.keyed else None
        self.cursor.extend(first + step.count, keyed)

    def give(self, step: Step, deadline_us: int) -> None:
        """Give out available records; with keys, only of slots that no other member holds."""
        held = self.holders() if self.cursor.keyed else {}
        wanted = [
            offset
            for offset in self.in_state(AVAILABLE)[step.first % 10 :][: step.count]
            if step.pattern >> offset % 8 & 1
            and held.get(self.slots[offset], step.member) == step.member
        ]
        if wanted:
            self.cursor.acquire(step.member, np.array(wanted), deadline_us)
            self.given_to |= dict.fromkeys(wanted, step.member)


def history_of(steps: list[Step], max_deliveries: int, *, keyed: bool) -> History:
    history = History(Cursor(max_deliveries, keyed=keyed))
    history.cursor.begin(BEGIN)
    for step in [LOOK_AT_SOME, *steps]:
        history.apply(step)
    return history


def histories(*, keyed: bool = False) -> st.SearchStrategy[History]:
    return st.builds(history_of, STEPS, st.sampled_from([0, 1, 2, 3]), keyed=st.just(keyed))


def credits_of(members: list[str]) -> st.SearchStrategy[dict[str, int]]:
    """Draw credits of at least 1 for some members, in any order of turns."""
    turns = st.permutations(members).flatmap(
        lambda each: st.integers(1, len(each)).map(lambda count: each[:count])
    )
    amounts = st.one_of(st.integers(1, 6), st.integers(1, 60))
    return turns.flatmap(lambda each: st.fixed_dictionaries(dict.fromkeys(each, amounts)))


def owners_of(members: int) -> st.SearchStrategy[Owners]:
    """Draw owners for the slots that have records."""

    def owners(chosen: list[int]) -> Owners:
        array = np.zeros(SLOTS, np.int16)
        array[SOME_SLOTS] = chosen
        return array

    count = len(SOME_SLOTS)
    return st.lists(st.integers(0, members - 1), min_size=count, max_size=count).map(owners)


def listed(portions: Portions) -> dict[str, list[int]]:
    """List each member's records; check that no member and no record occurs twice."""
    result = {member: offsets.tolist() for member, offsets in portions}
    assert len(result) == len(portions)
    assert all(result.values())
    given = [offset for offsets in result.values() for offset in offsets]
    assert len(given) == len(set(given))
    for offsets in result.values():
        assert all(a < b for a, b in pairwise(offsets))
    return result


def can_be_given(cursor: Cursor, portions: Portions) -> None:
    """Check that a cursor accepts the portions one after the other."""
    before = cursor.available
    for member, offsets in portions:
        cursor.acquire(member, offsets, 10**12)
    assert cursor.available == before - sum(len(offsets) for _, offsets in portions)


# In order


@brute_force
@given(histories(), st.integers(1, 60))
def test_in_order_gives_records_before_the_first_blocked_one_up_to_the_credit(
    history: History, credit: int
) -> None:
    portions = in_order(history.cursor, {"a": credit})
    stop = min(history.in_state(BACKOFF, ARCHIVING), default=history.cursor.next)
    expected = [offset for offset in history.in_state(AVAILABLE) if offset < stop][:credit]
    assert listed(portions) == ({"a": expected} if expected else {})
    can_be_given(history.cursor, portions)


# In turn


@brute_force
@given(histories(), credits_of(MEMBERS))
def test_in_turn_gives_the_first_available_records_up_to_the_sum_of_credits(
    history: History, credits: dict[str, int]
) -> None:
    portions = in_turn(history.cursor, credits)
    shares = listed(portions)
    assert all(len(offsets) <= credits[member] for member, offsets in shares.items())
    given = sorted(offset for offsets in shares.values() for offset in offsets)
    assert given == history.in_state(AVAILABLE)[: sum(credits.values())]
    can_be_given(history.cursor, portions)


@brute_force
@given(histories(), credits_of(MEMBERS))
def test_in_turn_shares_differ_by_at_most_one_unless_a_credit_is_used_up(
    history: History, credits: dict[str, int]
) -> None:
    shares = listed(in_turn(history.cursor, credits))
    counts = {member: len(shares.get(member, ())) for member in credits}
    for member, count in counts.items():
        assert count == credits[member] or count >= max(counts.values()) - 1


@brute_force
@given(histories(), credits_of(MEMBERS))
def test_in_turn_splits_consecutive_records_only_between_portions(
    history: History, credits: dict[str, int]
) -> None:
    portions = in_turn(history.cursor, credits)
    given = np.sort(np.concatenate([offsets for _, offsets in portions] or [np.arange(0)]))
    pieces = sum(len(ranges_of(offsets)) for _, offsets in portions)
    assert pieces <= len(ranges_of(given)) + max(0, len(portions) - 1)


def test_in_turn_serves_the_first_member_first_when_records_are_few() -> None:
    cursor = Cursor()
    cursor.begin(0)
    cursor.extend(1)
    assert listed(in_turn(cursor, {"b": 9, "a": 1, "c": 9})) == {"b": [0]}


# By key


@st.composite
def keyed(draw: st.DrawFn) -> tuple[History, dict[str, int], Owners, list[str]]:
    """Draw a cursor with keys, credits, and the owner of each slot."""
    members = sorted(draw(st.sets(st.sampled_from(MEMBERS), min_size=1)))
    owners = draw(owners_of(len(members)))
    return draw(histories(keyed=True)), draw(credits_of(members)), owners, members


@brute_force
@given(keyed())
def test_by_key_gives_records_only_to_the_owner_of_their_slot_in_order_within_the_slot(
    case: tuple[History, dict[str, int], Owners, list[str]],
) -> None:
    history, credits, owners, members = case
    portions = by_key(history.cursor, credits, owners, members)
    blocked, holders = history.blocked_slots(), history.holders()
    available = history.in_state(AVAILABLE)
    for member, offsets in listed(portions).items():
        assert len(offsets) <= credits[member]
        for slot in {history.slots[offset] for offset in offsets}:
            assert members[owners[slot]] == member
            assert holders.get(slot, member) == member
            assert slot not in blocked
            mine = [offset for offset in offsets if history.slots[offset] == slot]
            there = [offset for offset in available if history.slots[offset] == slot]
            assert mine == there[: len(mine)]
    can_be_given(history.cursor, portions)


@brute_force
@given(keyed())
def test_by_key_leaves_a_deliverable_record_only_when_older_records_use_up_the_credit(
    case: tuple[History, dict[str, int], Owners, list[str]],
) -> None:
    history, credits, owners, members = case
    shares = listed(by_key(history.cursor, credits, owners, members))
    blocked, holders = history.blocked_slots(), history.holders()
    given = {offset for offsets in shares.values() for offset in offsets}
    for offset in set(history.in_state(AVAILABLE)) - given:
        slot = history.slots[offset]
        owner = members[owners[slot]]
        if slot not in blocked and holders.get(slot, owner) == owner:
            older = [other for other in shares.get(owner, ()) if other < offset]
            assert len(older) == credits.get(owner, 0)
