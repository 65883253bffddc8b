"""What a share partition answers to its members, without an engine."""

from typing import Any

import attrs
import pytest

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.change_log import ChangeLog
from wavetank.actors.broker.dead_letters import WriteDeadLetters
from wavetank.actors.broker.share_partition import Due, SharePartition
from wavetank.model.log.batch import Batch
from wavetank.model.log.cursor import Cursor
from wavetank.model.log.log import MemoryLog
from wavetank.model.messages.client import Fenced, NotLeader
from wavetank.model.messages.share import (
    AcknowledgeRecords,
    Acquire,
    Acquired,
    Attach,
    Attached,
    Available,
    Detach,
    Nack,
    RecordsAcknowledged,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    SubscriptionConfig,
)
from wavetank.model.topics import TopicPartition

TERMS = SubscriptionConfig(
    group="g", delivery="shared", start="earliest", ack_timeout_us=1_000, max_deliveries=3,
    retry_backoff_ms=100, retry_backoff_max_ms=1_000, dead_letter_topic=None,
    session_timeout_us=10_000, ttl_us=100_000,
)  # fmt: skip
DEAD_LETTERS = FakeRef("dead letters")


@attrs.define(slots=False)
class Group:
    """A share partition, and short ways to send it requests."""

    terms: SubscriptionConfig = TERMS
    effects: FakeEffects = attrs.Factory(FakeEffects)

    def __attrs_post_init__(self) -> None:
        self.log = MemoryLog()
        self.cursor = Cursor(self.terms.max_deliveries, keyed=self.terms.delivery == "key_shared")
        self.cursor.begin(0)
        self.share = SharePartition(
            self.effects, TopicPartition("orders", 0), "g", self.terms, self.log, self.cursor,
            lambda: DEAD_LETTERS, ChangeLog(self.effects, None),
        )  # type: ignore[arg-type]  # fmt: skip
        self.refs: dict[str, FakeRef] = {}
        self.requests = 0

    def append(self, count: int) -> None:
        self.log.append(Batch("p", 0, count, timestamps_us=0, sizes=1), self.effects.now, 0)
        self.share.dispatch(notify=True)

    def attach(self, name: str, generation: int = 0) -> Attached | Fenced:
        ref = self.refs.setdefault(name, FakeRef(name))
        return self.share.attach(Attach(1, "g", name, generation, self.terms), ref)  # type: ignore[arg-type]

    def acquire(self, name: str, credit: int, received: int = 10**9, *, wait: bool = True) -> bool:
        self.requests += 1
        return self.share.acquire(Acquire(self.requests, "g", name, credit, received, wait))

    def settle(self, name: str, **parts: Any) -> bool:
        self.requests += 1
        return self.share.settle(AcknowledgeRecords(self.requests, "g", name, **parts))

    def acquired(self, name: str) -> list[list[tuple[int, int, int]]]:
        """The answers to a member's requests: (base offset, count, retries) of each piece."""
        return [
            [(batch.base_offset, batch.count, retries) for batch, retries in message.pieces]
            for to, message in self.effects.sent
            if isinstance(message, Acquired) and to is self.refs[name]
        ]

    def events(self, kind: str, *columns: str) -> list[Any]:
        found = [fields for name, fields in self.effects.events if name == kind]
        return [tuple(fields.get(column) for column in columns) for fields in found]

    def pass_time(self, passed_us: int) -> None:
        self.effects.now += passed_us
        while self.share.timer is not None and self.share.timer.due_us <= self.effects.now:
            self.share.expire()


@pytest.fixture
def group() -> Group:
    """A shared group with one member, "a"."""
    group = Group()
    group.attach("a")
    return group


def test_records_above_the_high_watermark_are_not_acquired(group: Group) -> None:
    group.append(5)
    group.log.high_watermark = 2
    group.acquire("a", 9)
    assert group.acquired("a") == [[(0, 2, 0)]]
    group.acquire("a", 9)
    group.log.high_watermark = 5
    group.share.dispatch()
    assert group.acquired("a") == [[(0, 2, 0)], [(2, 3, 0)]]


# Members


def test_a_member_that_is_not_attached_is_refused(group: Group) -> None:
    assert not group.acquire("b", 5)
    assert not group.settle("b", acks=((0, 1),))
    assert not group.share.heartbeat(ShareHeartbeat("g", "b", active=True, load=0.0))
    assert group.effects.sent == []


def test_a_heartbeat_is_answered_with_the_number_of_records_in_flight(group: Group) -> None:
    group.append(3)
    group.acquire("a", 2)
    assert group.share.heartbeat(ShareHeartbeat("g", "a", active=True, load=4.5))
    assert group.effects.messages(ShareHeartbeatAnswer) == [ShareHeartbeatAnswer("g", 2)]
    assert group.share.members["a"].load == 4.5


def test_a_silent_member_loses_its_records_to_others(group: Group) -> None:
    group.append(2)
    group.acquire("a", 2)
    group.effects.now = 10_001
    group.attach("b")
    group.acquire("b", 5)
    group.share.check_liveness()
    group.share.dispatch()
    assert group.events("subscriber_inactive", "member", "reason") == [("a", "silent")]
    assert group.acquired("b") == [[(0, 2, 1)]]
    assert not group.acquire("a", 1), "it has to attach again"
    group.attach("a")
    assert group.acquire("a", 1)


def test_a_group_without_members_expires_after_its_time_to_live(group: Group) -> None:
    group.effects.now = 100_000
    group.share.check_liveness()
    assert "a" in group.share.members
    group.effects.now = 100_001
    group.share.check_liveness()
    assert group.events("subscriber_removed", "member") == [("a",)]
    assert group.share.is_expired()
    assert not Group().share.is_expired(), "a new group is given the time to attach"


def test_a_member_that_detaches_leaves_unseen_records_as_if_not_delivered(group: Group) -> None:
    group.append(4)
    group.acquire("a", 4)
    group.attach("b")
    group.acquire("b", 9)
    group.share.detach(Detach("g", "a", received=10**9, unseen=((2, 4),)))
    assert group.acquired("b") == [[(0, 2, 1), (2, 2, 0)]]


def test_an_exclusive_partition_belongs_to_the_newest_generation() -> None:
    group = Group(attrs.evolve(TERMS, delivery="exclusive"))
    assert isinstance(group.attach("a", generation=1), Attached)
    assert isinstance(group.attach("b", generation=2), Attached)
    assert list(group.share.members) == ["b"]
    assert group.attach("a", generation=1) == Fenced(1, 2)


# Credit


def test_a_request_that_waits_is_answered_when_records_arrive(group: Group) -> None:
    group.acquire("a", 5)
    assert group.acquired("a") == []
    group.append(3)
    assert group.acquired("a") == [[(0, 3, 0)]]


def test_a_request_that_does_not_wait_is_answered_at_once_and_notified_later(
    group: Group,
) -> None:
    group.acquire("a", 5, wait=False)
    assert group.acquired("a") == [[]]
    group.append(1)
    group.append(1)
    assert group.effects.messages(Available) == [Available("g")], "once"


def test_a_request_without_credit_withdraws_the_credit_before(group: Group) -> None:
    group.acquire("a", 5)
    group.acquire("a", 0)
    group.append(3)
    assert group.acquired("a") == [[]]


def test_an_older_request_is_ignored(group: Group) -> None:
    group.append(3)
    group.acquire("a", 1)
    assert group.share.acquire(Acquire(0, "g", "a", 5, 0, wait=True))
    assert group.acquired("a") == [[(0, 1, 0)]]


def test_records_of_a_lost_answer_are_delivered_again_without_a_retry(group: Group) -> None:
    group.append(3)
    group.acquire("a", 2)
    group.acquire("a", 3, received=0)
    assert group.acquired("a") == [[(0, 2, 0)], [(0, 3, 0)]]


def test_no_member_gets_more_than_its_credit(group: Group) -> None:
    group.attach("b")
    group.append(10)
    group.acquire("a", 3)
    group.acquire("b", 4)
    assert group.acquired("a") == [[(0, 3, 0)]]
    assert group.acquired("b") == [[(3, 4, 0)]]


def test_members_that_wait_get_even_parts_in_turn(group: Group) -> None:
    group.attach("b")
    for count in (1, 1, 1, 6):
        group.acquire("a", 9)
        group.acquire("b", 9)
        group.append(count)
    assert group.acquired("a") == [[(0, 1, 0)], [(2, 1, 0)], [(6, 3, 0)]]
    assert group.acquired("b") == [[(1, 1, 0)], [(3, 3, 0)]]


# Settlement


def test_acknowledged_records_are_recorded_once_and_end(group: Group) -> None:
    group.append(3)
    group.acquire("a", 3)
    group.settle("a", acks=((0, 1), (2, 3)))
    group.settle("a", acks=((0, 3),))
    answers = [
        (answer.refused, answer.in_flight) for answer in group.effects.messages(RecordsAcknowledged)
    ]
    assert answers == [((), 1), (((0, 1), (2, 3)), 0)]
    recorded = group.events("acknowledged", "base_offset", "count", "member")
    assert recorded == [(0, 1, "a"), (2, 1, "a"), (1, 1, "a")]
    assert group.cursor.committed == 3


def test_a_settlement_that_comes_twice_gets_the_same_answer_and_counts_once(
    group: Group,
) -> None:
    group.append(1)
    group.acquire("a", 1)
    settle = AcknowledgeRecords(50, "g", "a", nacks=(Nack((0, 1), 0, "no"),))
    assert group.share.settle(settle)
    assert group.share.settle(settle)
    first, second = group.effects.messages(RecordsAcknowledged)
    assert first is second
    assert len(group.events("nacked")) == 1


def test_a_nacked_record_waits_for_its_delay(group: Group) -> None:
    group.append(1)
    group.acquire("a", 1)
    group.settle("a", nacks=(Nack((0, 1), 500, "no"),))
    group.acquire("a", 1)
    group.pass_time(499)
    assert len(group.acquired("a")) == 1
    group.pass_time(1)
    assert group.acquired("a")[1:] == [[(0, 1, 1)]]


def test_without_a_delay_a_nacked_record_waits_for_the_backoff_of_its_group(
    group: Group,
) -> None:
    group.append(1)
    group.acquire("a", 1)
    group.settle("a", nacks=(Nack((0, 1), None, "no"),))
    group.pass_time(1_000)  # the deadline of the acknowledgement
    timer = group.share.timer
    assert timer is not None
    assert timer.message == Due("g")
    assert 80_000 <= timer.due_us <= 120_000


def test_the_timer_is_set_for_the_earliest_deadline(group: Group) -> None:
    group.append(2)
    group.acquire("a", 2)
    first = group.effects.timers[0]
    assert (first.due_us, first.cancelled) == (1_000, False)
    group.settle("a", nacks=(Nack((0, 1), 400, "no"),))
    assert first.cancelled
    assert [timer.due_us for timer in group.effects.timers] == [1_000, 400]


def test_a_member_that_lets_acknowledgements_time_out_is_inactive(group: Group) -> None:
    group.append(2)
    group.acquire("a", 2)
    group.attach("b")
    group.acquire("b", 2)
    group.pass_time(1_000)
    assert group.events("ack_timed_out", "member", "count") == [("a", 2)]
    assert not group.share.members["a"].active
    assert group.acquired("b") == [[(0, 2, 1)]]


# Dead letters


def exhaust(group: Group) -> None:
    """Nack the first record until it is not delivered any more."""
    group.append(2)
    for _ in range(group.terms.max_deliveries):
        group.acquire("a", 1)
        group.settle("a", nacks=(Nack((0, 1), 0, "bad"),))


def test_a_record_that_was_delivered_too_often_is_discarded(group: Group) -> None:
    exhaust(group)
    assert group.events("archived", "base_offset", "count", "detail") == [(0, 1, "bad")]
    assert group.cursor.committed == 1


def test_a_dead_letter_ends_only_when_it_is_in_the_dead_letter_topic() -> None:
    group = Group(attrs.evolve(TERMS, dead_letter_topic="dead"))
    group.attach("a")
    exhaust(group)
    ((to, bury),) = [(to, m) for to, m in group.effects.sent if isinstance(m, WriteDeadLetters)]
    assert to is DEAD_LETTERS
    assert (bury.batch.base_offset, bury.deliveries, bury.reason) == (0, 3, "bad")
    assert group.cursor.committed == 0
    group.share.dead_lettered((0, 1), "bad")
    assert group.events("dead_lettered", "base_offset", "detail") == [(0, "bad")]
    assert group.cursor.committed == 1


# A change of the leader


def test_the_next_leader_writes_dead_letters_that_were_under_way_again() -> None:
    group = Group(attrs.evolve(TERMS, dead_letter_topic="dead"))
    group.attach("a")
    exhaust(group)
    state, cursor = group.share.snapshot(), Cursor.from_snapshot(group.cursor.snapshot())
    effects = FakeEffects()
    next_leader = SharePartition(
        effects, TopicPartition("orders", 0), "g", state.terms, group.log, cursor,
        lambda: DEAD_LETTERS, ChangeLog(effects, None),
    )  # type: ignore[arg-type]  # fmt: skip
    next_leader.restore(state)
    assert [bury.batch.base_offset for bury in effects.messages(WriteDeadLetters)] == [0]


def test_members_are_sent_to_the_next_leader(group: Group) -> None:
    group.acquire("a", 5)
    group.share.resign()
    assert group.effects.sent == [(group.refs["a"], NotLeader(1))]
    assert not group.acquire("a", 5)


# Keys


def test_the_records_of_a_key_go_to_one_member_and_move_only_when_it_is_done() -> None:
    group = Group(attrs.evolve(TERMS, delivery="key_shared"))
    group.attach("a")
    group.acquire("a", 1)
    keys = Batch.of("p", 0, [1] * 4, keys=("k",) * 4, timestamps_us=0, sizes=1)
    group.log.append(keys, 0, 0)
    group.share.dispatch()
    group.attach("b")
    group.share.slots.owners[:] = group.share.slots.members.index("b")
    group.acquire("b", 9)
    assert group.acquired("b") == []
    group.settle("a", acks=((0, 1),))
    assert group.acquired("b") == [[(1, 3, 0)]]


def test_keys_that_cannot_be_hashed_share_a_slot() -> None:
    group = Group(attrs.evolve(TERMS, delivery="key_shared"))
    odd = Batch.of("p", 0, [1, 2, 3], keys=((1, 2), {"a": 1}, "x"), timestamps_us=0, sizes=1)
    slots = group.share.slots.add(odd)
    assert slots[0] == slots[1] == 0
    assert slots[2] != 0
