"""Who gets which records: the ways of delivering against plain loops, over cursors with a past."""

from itertools import pairwise
from typing import NamedTuple

import attrs
import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wavetank.model.cursor import AVAILABLE, CONDEMNED, FLYING, SLOTS, WAITING, Cursor
from wavetank.model.spans import runs
from wavetank.strategies.dispatch import Portions, by_key, in_order, in_turn
from wavetank.strategies.routing import Owners

MEMBERS = ["a", "b", "c", "d"]
SOME_SLOTS = [0, 1, 2, 3, 500, SLOTS - 1]
BEGIN = 40

brute_force = settings(max_examples=100, phases=set(Phase) - {Phase.explain})


# Cursors with a past


class Step(NamedTuple):
    """Something that happens to a cursor, in numbers that mean something whatever its state."""

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
class Past:
    """A cursor that has lived, and what is known of its records one by one."""

    cursor: Cursor
    slots: dict[int, int] = attrs.Factory(dict)
    given_to: dict[int, str] = attrs.Factory(dict)
    """To whom each record went the last time."""
    now_us: int = 0

    def window(self) -> range:
        assert self.cursor.committed is not None
        return range(self.cursor.committed, self.cursor.next)

    def in_state(self, *states: int) -> list[int]:
        return [offset for offset in self.window() if self.cursor.state(offset) in states]

    def holders(self) -> dict[int, str]:
        """Who has records of each slot in flight: one member at most."""
        flying = self.in_state(FLYING)
        pairs = {(self.slots[offset], self.given_to[offset]) for offset in flying}
        assert not self.cursor.keyed or len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def blocked_slots(self) -> set[int]:
        return {self.slots[offset] for offset in self.in_state(WAITING, CONDEMNED)}

    def live(self, step: Step) -> None:
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
                cursor.lose(step.member, self.now_us)

    def look_at(self, step: Step) -> None:
        first = self.cursor.next
        slots = [SOME_SLOTS[step.pattern * index % 7 % 6] for index in range(step.count)]
        self.slots |= {first + index: slot for index, slot in enumerate(slots)}
        keyed = np.array(slots, np.uint16) if self.cursor.keyed else None
        self.cursor.look_at(first + step.count, keyed)

    def give(self, step: Step, deadline_us: int) -> None:
        """Give some of what is available; where there are keys, of slots that nobody else has."""
        held = self.holders() if self.cursor.keyed else {}
        wanted = [
            offset
            for offset in self.in_state(AVAILABLE)[step.first % 10 :][: step.count]
            if step.pattern >> offset % 8 & 1
            and held.get(self.slots[offset], step.member) == step.member
        ]
        if wanted:
            self.cursor.give(step.member, np.array(wanted), deadline_us)
            self.given_to |= dict.fromkeys(wanted, step.member)


def past_of(steps: list[Step], max_deliveries: int, *, keyed: bool) -> Past:
    past = Past(Cursor(max_deliveries, keyed=keyed))
    past.cursor.begin(BEGIN)
    for step in [LOOK_AT_SOME, *steps]:
        past.live(step)
    return past


def pasts(*, keyed: bool = False) -> st.SearchStrategy[Past]:
    return st.builds(past_of, STEPS, st.sampled_from([0, 1, 2, 3]), keyed=st.just(keyed))


def credits_of(members: list[str]) -> st.SearchStrategy[dict[str, int]]:
    """Credit for some members, each of whom has some, in any order of their turns."""
    turns = st.permutations(members).flatmap(
        lambda each: st.integers(1, len(each)).map(lambda count: each[:count])
    )
    amounts = st.one_of(st.integers(1, 6), st.integers(1, 60))
    return turns.flatmap(lambda each: st.fixed_dictionaries(dict.fromkeys(each, amounts)))


def owners_of(members: int) -> st.SearchStrategy[Owners]:
    """Any owners of those slots that have records."""

    def owners(chosen: list[int]) -> Owners:
        array = np.zeros(SLOTS, np.int16)
        array[SOME_SLOTS] = chosen
        return array

    count = len(SOME_SLOTS)
    return st.lists(st.integers(0, members - 1), min_size=count, max_size=count).map(owners)


def listed(portions: Portions) -> dict[str, list[int]]:
    """What each member gets; nobody is named twice or for nothing, and nothing is given twice."""
    result = {member: offsets.tolist() for member, offsets in portions}
    assert len(result) == len(portions)
    assert all(result.values())
    given = [offset for offsets in result.values() for offset in offsets]
    assert len(given) == len(set(given))
    for offsets in result.values():
        assert all(a < b for a, b in pairwise(offsets))
    return result


def can_be_given(cursor: Cursor, portions: Portions) -> None:
    """A cursor takes portions as they are, one after the other."""
    before = cursor.available
    for member, offsets in portions:
        cursor.give(member, offsets, 10**12)
    assert cursor.available == before - sum(len(offsets) for _, offsets in portions)


# In order


@brute_force
@given(pasts(), st.integers(1, 60))
def test_in_order_gives_what_comes_before_all_that_must_wait_as_far_as_the_credit_goes(
    past: Past, credit: int
) -> None:
    portions = in_order(past.cursor, {"a": credit})
    stop = min(past.in_state(WAITING, CONDEMNED), default=past.cursor.next)
    expected = [offset for offset in past.in_state(AVAILABLE) if offset < stop][:credit]
    assert listed(portions) == ({"a": expected} if expected else {})
    can_be_given(past.cursor, portions)


# In turn


@brute_force
@given(pasts(), credits_of(MEMBERS))
def test_in_turn_gives_the_first_records_there_are_as_far_as_all_credit_goes(
    past: Past, credits: dict[str, int]
) -> None:
    portions = in_turn(past.cursor, credits)
    shares = listed(portions)
    assert all(len(offsets) <= credits[member] for member, offsets in shares.items())
    given = sorted(offset for offsets in shares.values() for offset in offsets)
    assert given == past.in_state(AVAILABLE)[: sum(credits.values())]
    can_be_given(past.cursor, portions)


@brute_force
@given(pasts(), credits_of(MEMBERS))
def test_in_turn_nobody_gets_two_records_less_than_another_unless_its_credit_is_spent(
    past: Past, credits: dict[str, int]
) -> None:
    shares = listed(in_turn(past.cursor, credits))
    counts = {member: len(shares.get(member, ())) for member in credits}
    for member, count in counts.items():
        assert count == credits[member] or count >= max(counts.values()) - 1


@brute_force
@given(pasts(), credits_of(MEMBERS))
def test_in_turn_records_that_follow_each_other_are_parted_only_where_portions_meet(
    past: Past, credits: dict[str, int]
) -> None:
    portions = in_turn(past.cursor, credits)
    given = np.sort(np.concatenate([offsets for _, offsets in portions] or [np.arange(0)]))
    parted = sum(len(runs(offsets)) for _, offsets in portions)
    assert parted <= len(runs(given)) + max(0, len(portions) - 1)


def test_in_turn_the_first_in_turn_is_not_passed_over_when_there_is_little() -> None:
    cursor = Cursor()
    cursor.begin(0)
    cursor.look_at(1)
    assert listed(in_turn(cursor, {"b": 9, "a": 1, "c": 9})) == {"b": [0]}


# By key


@st.composite
def keyed(draw: st.DrawFn) -> tuple[Past, dict[str, int], Owners, list[str]]:
    """A cursor with keys, credit for some members, and who owns which slot."""
    members = sorted(draw(st.sets(st.sampled_from(MEMBERS), min_size=1)))
    owners = draw(owners_of(len(members)))
    return draw(pasts(keyed=True)), draw(credits_of(members)), owners, members


@brute_force
@given(keyed())
def test_by_key_a_record_goes_to_the_owner_of_its_slot_alone_and_in_order_within_the_slot(
    case: tuple[Past, dict[str, int], Owners, list[str]],
) -> None:
    past, credits, owners, members = case
    portions = by_key(past.cursor, credits, owners, members)
    blocked, holders = past.blocked_slots(), past.holders()
    available = past.in_state(AVAILABLE)
    for member, offsets in listed(portions).items():
        assert len(offsets) <= credits[member]
        for slot in {past.slots[offset] for offset in offsets}:
            assert members[owners[slot]] == member
            assert holders.get(slot, member) == member
            assert slot not in blocked
            mine = [offset for offset in offsets if past.slots[offset] == slot]
            there = [offset for offset in available if past.slots[offset] == slot]
            assert mine == there[: len(mine)]
    can_be_given(past.cursor, portions)


@brute_force
@given(keyed())
def test_by_key_nothing_is_left_that_could_be_given_unless_older_records_took_all_credit(
    case: tuple[Past, dict[str, int], Owners, list[str]],
) -> None:
    past, credits, owners, members = case
    shares = listed(by_key(past.cursor, credits, owners, members))
    blocked, holders = past.blocked_slots(), past.holders()
    given = {offset for offsets in shares.values() for offset in offsets}
    for offset in set(past.in_state(AVAILABLE)) - given:
        slot = past.slots[offset]
        owner = members[owners[slot]]
        if slot not in blocked and holders.get(slot, owner) == owner:
            older = [other for other in shares.get(owner, ()) if other < offset]
            assert len(older) == credits.get(owner, 0)
