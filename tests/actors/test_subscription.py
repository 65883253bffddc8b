"""A group in a partition through whatever its members may do, without anybody to talk to."""

from typing import Any

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wavetank.actors.subscription import TELLING, Attachment, Subscription
from wavetank.model.batch import Batch
from wavetank.model.cursor import CONDEMNED, WAITING
from wavetank.model.delivery import Delivery, Terms
from wavetank.strategies.slots import keyless_slot, slot_of

NAMES = st.sampled_from("abcd")
KEYS = st.sampled_from(["red", "green", "blue", 7, b"x", None])
WHO, FIRST, COUNT = st.integers(0, 3), st.integers(0, 20), st.integers(1, 20)
ACK_TIMEOUT_US = 50
FOREVER_US = 10**12


class Subscribing(RuleBasedStateMachine):
    """Does to a subscription what a partition does, and keeps book of every record."""

    delivery: Delivery

    def __init__(self) -> None:
        super().__init__()
        terms = Terms("g", self.delivery, "earliest", ACK_TIMEOUT_US, 3, 10, 10, None, 100, 1_000)
        self.sub = Subscription("g", terms)
        self.sub.cursor.begin(0)
        self.now_us = 0
        self.requests = 0
        self.keys: dict[int, Any] = {}
        """Of each record that there is or was."""
        self.slots: dict[int, int] = {}
        self.held: dict[int, str] = {}
        self.given: set[int] = set()
        self.ended: list[int] = []

    @initialize(keys=st.lists(KEYS, min_size=10, max_size=30))
    def begin(self, keys: list[Any]) -> None:
        self.attach("a")
        self.attach("b")
        self.append(keys, 0)

    # Records

    @rule(keys=st.lists(KEYS, min_size=1, max_size=12), gap=st.sampled_from([0, 0, 0, 1, 4]))
    def append(self, keys: list[Any], gap: int) -> None:
        """A batch comes; before it compaction may have left something out."""
        self.take_in(Batch.of("p", 0, keys, keys=tuple(keys), timestamps_us=0, sizes=1), keys, gap)

    @rule(key=KEYS, count=st.integers(1, 30))
    def append_one_key(self, key: Any, count: int) -> None:
        batch = Batch("p", 0, count, keys=key, timestamps_us=0, sizes=1)
        self.take_in(batch, [key] * count, 0)

    def take_in(self, batch: Batch, keys: list[Any], gap: int) -> None:
        first = self.sub.cursor.next + gap
        self.sub.take_in(batch.stamped(first, self.now_us, 0))
        for offset, key in enumerate(keys, start=first):
            self.keys[offset] = key
            self.slots[offset] = keyless_slot(offset) if key is None else slot_of(key)

    # Members

    @rule(name=NAMES)
    def attach(self, name: str) -> None:
        known = self.sub.members.get(name)
        if known is None or not known.active:
            if known is not None:
                self.give_back(name)
            self.sub.members[name] = Attachment(None, self.now_us)  # type: ignore[arg-type]
            self.sub.share_slots()

    @rule(name=NAMES, for_good=st.booleans())
    def lose(self, name: str, for_good: bool) -> None:
        """A member leaves, or gets nothing more until it is heard of again."""
        if name in self.sub.members:
            self.sub.members[name].active = False
            if for_good:
                del self.sub.members[name]
            self.give_back(name)

    def give_back(self, name: str) -> None:
        self.landed(name, self.sub.cursor.lose(name, self.now_us))
        self.sub.given.pop(name, None)
        self.bury()
        self.sub.share_slots()

    @precondition(lambda self: self.sub.keyed)
    @rule(key=st.sampled_from(["red", "green", 7]))
    def get_hot_and_balance(self, key: Any) -> None:
        slots = np.full(2 * TELLING, slot_of(key), np.uint16)
        self.sub.slots.load.add(slots)
        self.sub.slots.balance({}, 5.0)

    # Giving out, and what becomes of it

    @rule(credits=st.lists(st.integers(0, 8), min_size=4, max_size=4))
    def dispatch(self, credits: list[int]) -> None:
        self.requests += 1
        for credit, member in zip(credits, self.sub.members.values(), strict=False):
            member.credit = credit
        for name, offsets in self.sub.route():
            member = self.sub.members[name]
            assert member.active
            assert 0 < len(offsets) <= member.credit
            self.take_note(name, offsets.tolist())
            spans = self.sub.cursor.give(name, offsets, self.now_us + ACK_TIMEOUT_US)
            self.sub.given[name] = self.requests, tuple((a, b) for a, b, _ in spans)
            member.credit = 0

    def take_note(self, name: str, offsets: list[int]) -> None:
        """See that whatever is given is nobody's, and that nothing overtakes its key."""
        blocked = [o for o in self.slots if self.sub.cursor.state(o) in (WAITING, CONDEMNED)]
        waiting = {self.slots[offset] for offset in blocked if self.sub.keyed}
        for offset in offsets:
            assert offset in self.keys
            assert offset not in self.held
            assert self.slots[offset] not in waiting
            self.held[offset] = name
            self.given.add(offset)

    @rule(who=WHO, first=FIRST, count=COUNT)
    def acknowledge(self, who: int, first: int, count: int) -> None:
        name, span = self.some(who, first, count)
        self.ended += self.landed(name, self.sub.cursor.ack(name, *span))

    @rule(who=WHO, first=FIRST, count=COUNT, wait_us=st.sampled_from([0, 30, 60]))
    def nack(self, who: int, first: int, count: int, wait_us: int) -> None:
        name, span = self.some(who, first, count)
        self.landed(name, self.sub.cursor.nack(name, *span, self.now_us + wait_us, self.now_us))
        self.bury()

    @rule(who=WHO, first=FIRST, count=COUNT)
    def release(self, who: int, first: int, count: int) -> None:
        name, span = self.some(who, first, count)
        self.landed(name, self.sub.cursor.release(name, *span))

    def some(self, who: int, first: int, count: int) -> tuple[str, tuple[int, int]]:
        """A member, one that has records if there is any, and a range where it may have some."""
        busy = sorted(set(self.held.values())) or ["a"]
        name = busy[who % len(busy)]
        mine = sorted(self.held_by(name)) or [0]
        start = mine[first % len(mine)]
        return name, (start, start + count)

    @rule(name=NAMES)
    def miss_an_answer(self, name: str) -> None:
        """The last records for a member have not reached it, as its next question tells."""
        request, spans = self.sub.given.get(name, (0, ()))
        self.sub.take_back_lost(name, max(0, request - 1))
        for offset in [offset for start, end in spans for offset in range(start, end)]:
            if self.held.get(offset) == name:
                del self.held[offset]

    @rule(passed_us=st.sampled_from([1, 10, 30, 60]))
    def pass_time(self, passed_us: int) -> None:
        self.now_us += passed_us
        for name, start, end in self.sub.cursor.expire(self.now_us):
            self.landed(name, [(start, end)])
            if name in self.sub.members:
                self.lose(name, for_good=False)
        self.bury()

    def bury(self) -> None:
        for span in self.sub.cursor.condemned():
            for start, end in self.sub.cursor.drop(*span):
                self.ended += range(start, end)

    def landed(self, name: str, spans: list[tuple[int, int]]) -> list[int]:
        """Count records out of a member's hands."""
        offsets = [offset for start, end in spans for offset in range(start, end)]
        for offset in offsets:
            assert self.held.pop(offset) == name
        return offsets

    def held_by(self, name: str) -> list[int]:
        return [offset for offset, holder in self.held.items() if holder == name]

    # What must hold

    @invariant()
    def the_cursor_knows_who_has_what(self) -> None:
        counts = {name: count for name, count in self.sub.cursor.in_flight.items() if count}
        assert counts == {name: len(self.held_by(name)) for name in self.held.values()}

    @invariant()
    def no_slot_is_at_two_members(self) -> None:
        if self.sub.keyed:
            pairs = {(self.slots[offset], name) for offset, name in self.held.items()}
            assert len(pairs) == len(dict(pairs))

    @invariant()
    def first_deliveries_of_a_key_are_in_order(self) -> None:
        """Nothing of a key was given while something before it never was."""
        if self.sub.keyed:
            skipped: set[Any] = set()
            for offset, key in self.keys.items():
                if offset not in self.given:
                    skipped.add(key)
                assert key is None or key not in skipped or offset not in self.given

    def teardown(self) -> None:
        """In the end everything is done with, and was once."""
        self.now_us = FOREVER_US
        self.pass_time(1)
        self.attach("a")
        for _ in range(len(self.keys) + 1):
            self.dispatch([1_000] * 4)
            for name in self.sub.members:
                self.ended += self.landed(name, self.sub.cursor.ack(name, 0, self.sub.cursor.next))
        assert self.sub.cursor.undone() == 0
        assert self.sub.cursor.committed == self.sub.cursor.next
        assert sorted(self.ended) == list(self.keys)
        assert not self.held


class KeyShared(Subscribing):
    """To the owner of its key."""

    delivery = "key_shared"


class Shared(Subscribing):
    """To whoever is free."""

    delivery = "shared"


TestKeySharedSubscription = KeyShared.TestCase
TestSharedSubscription = Shared.TestCase
TestKeySharedSubscription.settings = TestSharedSubscription.settings = settings(
    max_examples=60, stateful_step_count=40, phases=set(Phase) - {Phase.explain}
)
