"""A share partition under random requests of its members, without an engine.

Every record must end exactly once: acknowledged, archived or lost to compaction. The test follows
the recorded events and the answers, and keeps its own account of which member has which record.
"""

from typing import Any

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.change_log import ChangeLog
from wavetank.actors.broker.key_slots import MIN_LOAD
from wavetank.actors.broker.log_cleaner import LogCleaner
from wavetank.actors.broker.share_partition import SharePartition
from wavetank.model.log.batch import Batch
from wavetank.model.log.cursor import Cursor
from wavetank.model.log.log import MemoryLog
from wavetank.model.messages.share import (
    AcknowledgeRecords,
    Acquire,
    Acquired,
    Attach,
    Delivery,
    Detach,
    Nack,
    RecordsAcknowledged,
    ShareHeartbeat,
    SubscriptionConfig,
)
from wavetank.model.topics import Topic, TopicPartition
from wavetank.strategies.slots import keyless_slot, slot_of

NAMES = st.sampled_from("abcd")
KEYS = st.sampled_from(["red", "green", "blue", 7, b"x", None])
WHO, FIRST, COUNT = st.integers(0, 3), st.integers(0, 20), st.integers(1, 20)
ORDERS = TopicPartition("orders", 0)
COMPACTED = Topic("orders", 1, cleanup="compact", retain_unconsumed=False)
FOREVER_US = 10**12
CHANGES_OF_MEMBERS = ("subscriber_inactive", "subscriber_removed")


def offsets_of(base_offset: int, count: int) -> range:
    return range(base_offset, base_offset + count)


class ShareGroup(RuleBasedStateMachine):
    """Sends a share partition what members send, and checks every answer."""

    delivery: Delivery

    def __init__(self) -> None:
        super().__init__()
        self.effects = FakeEffects()
        self.refs = {name: FakeRef(name) for name in "abcd"}
        self.names = {ref: name for name, ref in self.refs.items()}
        self.log = MemoryLog()
        self.terms = SubscriptionConfig(
            "g", self.delivery, "earliest", 50, 3, 10, 10, None, 100, 1_000
        )
        cursor = Cursor(3, keyed=self.delivery == "key_shared")
        cursor.begin(0)
        self.lead(cursor)
        self.requests = 0
        self.keys: dict[int, Any] = {}
        """The key of each record that was ever appended."""
        self.slots: dict[int, int] = {}
        self.held: dict[int, str] = {}
        """The member that has acquired each record."""
        self.last: dict[str, tuple[int, list[int]]] = {}
        """The last answer with records to each member: its request and their offsets."""
        self.delayed: dict[int, int] = {}
        """When each record that was nacked with a delay may be delivered again."""
        self.given: set[int] = set()
        self.ended: list[int] = []

    def lead(self, cursor: Cursor) -> None:
        """Make the share partition and the cleaner of a leader."""
        self.share = SharePartition(
            self.effects, ORDERS, "g", self.terms, self.log, cursor, lambda: FakeRef("none"),
            ChangeLog(self.effects, None),
        )  # fmt: skip  # type: ignore[arg-type]
        self.cleaner = LogCleaner(
            self.effects, ORDERS, COMPACTED, 0, self.log, {"g": cursor}, {"g": self.share}, ()
        )  # type: ignore[arg-type]

    @initialize(keys=st.lists(KEYS, min_size=10, max_size=30))
    def begin(self, keys: list[Any]) -> None:
        self.attach("a")
        self.attach("b")
        self.append(keys)

    # Records

    @rule(keys=st.lists(KEYS, min_size=1, max_size=12))
    def append(self, keys: list[Any]) -> None:
        batch = Batch.of("p", 0, [1] * len(keys), keys=tuple(keys), timestamps_us=0, sizes=1)
        self.add_to_log(batch, keys)

    @rule(key=KEYS, count=st.integers(1, 30))
    def append_one_key(self, key: Any, count: int) -> None:
        self.add_to_log(Batch("p", 0, count, keys=key, timestamps_us=0, sizes=1), [key] * count)

    def add_to_log(self, batch: Batch, keys: list[Any]) -> None:
        first = self.log.append(batch, self.effects.now, 0).base_offset
        for offset, key in enumerate(keys, start=first):
            self.keys[offset] = key
            self.slots[offset] = keyless_slot(offset) if key is None else slot_of(key)
        self.share.dispatch(notify=True)
        self.follow()

    @rule()
    def compact(self) -> None:
        self.cleaner.clean_up()
        self.follow()

    # Members

    @rule(name=NAMES)
    def attach(self, name: str) -> None:
        self.share.attach(Attach(1, "g", name, 0, self.terms), self.refs[name])  # type: ignore[arg-type]
        self.follow()

    @rule(name=NAMES)
    def attach_from_a_new_address(self, name: str) -> None:
        """A member that restarts has none of the records that it acquired before."""
        if name in self.share.members:
            self.refs[name] = FakeRef(name)
            self.names[self.refs[name]] = name
            self.last.pop(name, None)
            for offset in self.held_by(name):
                del self.held[offset]
        self.attach(name)

    @rule(name=NAMES, lost=st.booleans(), unseen=COUNT)
    def detach(self, name: str, lost: bool, unseen: int) -> None:
        if name in self.share.members:
            mine = sorted(self.held_by(name))[-unseen:]
            self.share.detach(
                Detach("g", name, self.received(name, lost), tuple((o, o + 1) for o in mine))
            )
            self.follow()

    @rule(name=NAMES)
    def end(self, name: str) -> None:
        self.share.member_ended(self.refs[name], "crashed")  # type: ignore[arg-type]
        self.follow()

    @rule(name=NAMES)
    def heartbeat(self, name: str) -> None:
        assert self.share.heartbeat(ShareHeartbeat("g", name, True, 1.0)) == self.is_active(name)

    @rule()
    def change_the_leader(self) -> None:
        """The next leader has the same state, and no members yet."""
        state, cursor = self.share.snapshot(), Cursor.from_snapshot(self.share.cursor.snapshot())
        self.share.resign()
        self.lead(cursor)
        self.share.restore(state)
        self.follow()

    @precondition(lambda self: self.share.keyed)
    @rule(key=st.sampled_from(["red", "green", 7]))
    def balance_with_a_hot_key(self, key: Any) -> None:
        self.share.slots.load.add(np.full(2 * MIN_LOAD, slot_of(key), np.uint16))
        self.share.balance_slots(5.0)
        self.follow()

    # Delivery and settlement

    @rule(name=NAMES, credit=st.integers(0, 8), wait=st.booleans(), lost=st.booleans())
    def acquire(self, name: str, credit: int, wait: bool, lost: bool) -> None:
        active = self.is_active(name)
        received = self.received(name, lost) if active else 0
        self.requests += 1
        acquire = Acquire(self.requests, "g", name, credit, received, wait)
        assert self.share.acquire(acquire) == active
        self.follow()

    def received(self, name: str, lost: bool) -> int:
        """The last request whose answer reached a member; a lost answer frees its records."""
        request, offsets = self.last.pop(name, (0, []))
        if lost and request:
            for offset in offsets:
                if self.held.get(offset) == name:
                    del self.held[offset]
            return request - 1
        if request:
            self.last[name] = request, offsets
        return request

    @rule(who=WHO, first=FIRST, count=COUNT)
    def acknowledge(self, who: int, first: int, count: int) -> None:
        name, span = self.some(who, first, count)
        self.settle(name, span, acks=(span,))

    @rule(who=WHO, first=FIRST, count=COUNT, delay_us=st.sampled_from([0, 30, 60]))
    def nack(self, who: int, first: int, count: int, delay_us: int) -> None:
        name, span = self.some(who, first, count)
        if delay_us and self.is_active(name):
            ready_us = self.effects.now + delay_us
            self.delayed |= {o: ready_us for o in range(*span) if self.held.get(o) == name}
        self.settle(name, span, nacks=(Nack(span, delay_us, "no"),))

    @rule(who=WHO, first=FIRST, count=COUNT)
    def release(self, who: int, first: int, count: int) -> None:
        name, span = self.some(who, first, count)
        if self.is_active(name):
            for offset in range(*span):
                if self.held.get(offset) == name:
                    del self.held[offset]
        self.settle(name, None, releases=(span,))

    def settle(self, name: str, span: tuple[int, int] | None, **parts: Any) -> None:
        """Settle, and check that exactly the records are refused that the member does not have."""
        active = self.is_active(name)
        not_mine = [o for o in range(*span) if self.held.get(o) != name] if span else []
        self.requests += 1
        assert self.share.settle(AcknowledgeRecords(self.requests, "g", name, **parts)) == active
        if active:
            (answer,) = self.effects.messages(RecordsAcknowledged)
            assert [o for start, end in answer.refused for o in range(start, end)] == not_mine
        self.follow()

    def some(self, who: int, first: int, count: int) -> tuple[str, tuple[int, int]]:
        """A member, one that has records if there is any, and a range where it may have some."""
        busy = sorted(set(self.held.values())) or ["a"]
        name = busy[who % len(busy)]
        mine = sorted(self.held_by(name)) or [0]
        start = mine[first % len(mine)]
        return name, (start, start + count)

    @rule(passed_us=st.sampled_from([1, 10, 30, 60]))
    def pass_time(self, passed_us: int) -> None:
        self.effects.now += passed_us
        while self.share.timer is not None and self.share.timer.due_us <= self.effects.now:
            self.share.expire()
        self.follow()

    @rule()
    def check_liveness(self) -> None:
        self.share.check_liveness()
        self.share.dispatch(notify=True)
        self.follow()

    # What the partition did

    def follow(self) -> None:
        """Apply what was recorded, then what was delivered: each request ends with a delivery.

        Acknowledgements that time out together are recorded one after the other, and their member
        is deactivated with the first of them.
        """
        for kind, fields in self.effects.events:
            if kind in CHANGES_OF_MEMBERS:
                self.last.pop(fields["member"], None)
            else:
                self.apply(kind, fields)
        for kind, fields in self.effects.events:
            if kind in CHANGES_OF_MEMBERS:
                for offset in self.held_by(fields["member"]):
                    del self.held[offset]
        for to, message in self.effects.sent:
            if isinstance(message, Acquired):
                self.check_delivery(self.names[to], message)
        self.effects.events.clear()
        self.effects.sent.clear()

    def apply(self, kind: str, fields: dict[str, Any]) -> None:
        if kind in ("acknowledged", "nacked", "ack_timed_out"):
            for offset in offsets_of(fields["base_offset"], fields["count"]):
                if kind == "ack_timed_out" and offset in self.ended:
                    continue  # archived with the records of a member that timed out before
                assert self.held.pop(offset) == fields["member"]
                if kind == "acknowledged":
                    self.ended.append(offset)
        elif kind in ("archived", "lost"):
            for offset in offsets_of(fields["base_offset"], fields["count"]):
                self.held.pop(offset, None)
                self.delayed.pop(offset, None)
                self.ended.append(offset)

    def check_delivery(self, name: str, acquired: Acquired) -> None:
        """Only free records are delivered, to active members, and none overtakes its key."""
        offsets = [o for b, _ in acquired.pieces for o in offsets_of(b.base_offset, b.count)]
        waiting = {o for o, ready_us in self.delayed.items() if ready_us > self.effects.now}
        blocked = {self.slots[offset] for offset in waiting} if self.share.keyed else set()
        for offset in offsets:
            assert offset in self.keys
            assert offset not in self.held
            assert offset not in waiting
            assert self.slots[offset] not in blocked
            self.held[offset] = name
            self.given.add(offset)
        if offsets:
            assert self.is_active(name)
            self.last[name] = acquired.request, offsets

    def held_by(self, name: str) -> list[int]:
        return [offset for offset, holder in self.held.items() if holder == name]

    def is_active(self, name: str) -> bool:
        return name in self.share.members and self.share.members[name].active

    # What must hold

    @invariant()
    def the_cursor_knows_which_member_has_which_records(self) -> None:
        counts = {name: count for name, count in self.share.cursor.in_flight.items() if count}
        assert counts == {name: len(self.held_by(name)) for name in self.held.values()}

    @invariant()
    def no_slot_is_at_two_members(self) -> None:
        if self.share.keyed:
            pairs = {(self.slots[offset], name) for offset, name in self.held.items()}
            assert len(pairs) == len(dict(pairs))

    @invariant()
    def first_deliveries_of_a_key_are_in_order(self) -> None:
        if self.share.keyed:
            skipped: set[Any] = set()
            for offset, key in self.keys.items():
                if offset not in self.given and offset not in self.ended:
                    skipped.add(key)
                assert key is None or key not in skipped or offset not in self.given

    def teardown(self) -> None:
        """In the end every record has ended exactly once."""
        self.pass_time(FOREVER_US)
        self.check_liveness()
        assert not self.share.members
        self.attach("a")
        everything = (0, self.log.end_offset)
        for _ in range(len(self.keys) + 1):
            self.acquire("a", 1_000, wait=True, lost=False)
            self.settle("a", everything, acks=(everything,))
        assert self.share.cursor.undone() == 0
        assert self.share.cursor.committed == self.share.cursor.next
        assert sorted(self.ended) == list(self.keys)
        assert not self.held


class KeyShared(ShareGroup):
    """Each key has one owner."""

    delivery = "key_shared"


class Shared(ShareGroup):
    """Any member gets any record."""

    delivery = "shared"


TestKeySharedGroup = KeyShared.TestCase
TestSharedGroup = Shared.TestCase
TestKeySharedGroup.settings = TestSharedGroup.settings = settings(
    max_examples=60, stateful_step_count=40, phases=set(Phase) - {Phase.explain}
)
