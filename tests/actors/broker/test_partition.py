"""The hand-over of a partition to its next leader, without an engine."""

from typing import Any

import pytest

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.partition import Partition
from wavetank.model.log.batch import Batch
from wavetank.model.messages.client import (
    NOT_IDEMPOTENT,
    Append,
    Appended,
    Claim,
    Fetch,
    Fetched,
    GroupCommitted,
    NotLeader,
)
from wavetank.model.messages.cluster import HandOver, Lead
from wavetank.model.messages.share import (
    AcknowledgeRecords,
    Acquire,
    Acquired,
    Attach,
    Attached,
    Nack,
    SubscriptionConfig,
)
from wavetank.model.settings import ClusterSettings
from wavetank.model.topics import Topic, TopicPartition

ORDERS = TopicPartition("orders", 0)
NEXT_BROKER = FakeRef("broker-1")
IN_MEMORY = ClusterSettings(storage="memory")
TERMS = SubscriptionConfig("share", "key_shared", "earliest", 10**6, 3, 10, 10, None, 10**7, 10**9)


class Leader:
    """A partition with fake effects."""

    def __init__(self, lead: Lead) -> None:
        self.effects = FakeEffects()
        self.partition = Partition(lead, FakeRef("broker"), IN_MEMORY)  # type: ignore[arg-type]
        self.partition.effects = self.effects  # type: ignore[assignment]
        self.partition.started()

    def get(self, sender: FakeRef, message: Any) -> None:
        """Receive a message."""
        self.effects.sender = sender
        self.partition.handlers[type(message)](self.partition, message)

    def append(self, sequence: int, count: int = 2, epoch: int = 0) -> None:
        keys = tuple(f"key-{number}" for number in range(count))
        batch = Batch.of("p", sequence, [1] * count, keys=keys, timestamps_us=0, sizes=10)
        self.get(FakeRef("producer"), Append(1, batch, True, epoch, sequence))

    def hand_over(self) -> Lead:
        self.get(FakeRef("controller"), HandOver(ORDERS, NEXT_BROKER, 1, 1))
        ((to, lead),) = [(to, m) for to, m in self.effects.sent if isinstance(m, Lead)]
        assert to is NEXT_BROKER
        return lead

    def answers(self, kind: type) -> list[Any]:
        return self.effects.messages(kind)


MEMBER, READER, COORDINATOR = FakeRef("member"), FakeRef("reader"), FakeRef("group-commits")


def committed(offset: int, epoch: int = 0) -> GroupCommitted:
    return GroupCommitted("commits", epoch, "reader", "reader", 3, offset)


@pytest.fixture
def old() -> Leader:
    """A leader with records, a group that commits, and a share group with records in flight."""
    leader = Leader(Lead(ORDERS, Topic("orders", 1), 0, 0, 100_000, (FakeRef("controller"),), 1))
    leader.append(0, 4)
    leader.append(4, 2)
    leader.get(READER, Claim(1, "commits", "reader", 3, 10**9))
    leader.get(COORDINATOR, committed(4))
    leader.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    leader.get(MEMBER, Acquire(2, "share", "member", 5, 0, wait=True))
    settle = AcknowledgeRecords(
        3, "share", "member", acks=((0, 1),), nacks=(Nack((1, 2), 10**5, "no"),)
    )
    leader.get(MEMBER, settle)
    return leader


def change(leader: Leader) -> None:
    """Change everything that a leader holds."""
    partition = leader.partition
    partition.resigned = False
    leader.append(6, 3)
    leader.get(COORDINATOR, committed(9))
    partition.share_partitions["share"].cursor.archive(0, 9)
    partition.share_partitions["share"].last_acquired.clear()
    partition.log_cleaner.leases.clear()
    partition.log.truncate_before(8)
    partition.cursors.clear()


def test_the_next_leader_has_the_records_positions_and_producers(old: Leader) -> None:
    new = Leader(old.hand_over())
    new.append(4, 2)
    assert [answer.base_offset for answer in new.answers(Appended)] == [4], "a duplicate"
    new.get(READER, Fetch(5, 0, 10**6, 1, 0, "commits", "reader", 3))
    (fetched,) = new.answers(Fetched)
    assert sum(batch.count for batch in fetched.batches) == 6
    assert new.partition.cursors["commits"].committed == 4


def test_a_partition_follows_the_commits_of_the_newest_coordinator_forwards_and_backwards(
    old: Leader,
) -> None:
    old.get(COORDINATOR, committed(6, epoch=2))
    old.get(COORDINATOR, committed(5, epoch=1))
    cursor = old.partition.cursors["commits"]
    assert cursor.committed == 6, "the old coordinator has nothing to say any more"
    old.get(COORDINATOR, committed(3, epoch=2))
    assert cursor.committed == 3


def test_the_next_leader_has_the_state_of_each_record_of_a_share_group(old: Leader) -> None:
    new = Leader(old.hand_over())
    share = new.partition.share_partitions["share"]
    assert (share.cursor.committed, share.cursor.in_flight) == (1, {"member": 3})
    assert share.cursor.deliveries(1) == 1
    assert share.timer is not None, "the delay of the nacked record goes on"
    new.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    new.get(MEMBER, AcknowledgeRecords(4, "share", "member", acks=((2, 5),)))
    assert len(new.answers(Attached)) == 1
    assert share.cursor.in_flight == {"member": 0}


def test_an_answer_that_was_lost_is_released_at_the_next_leader(old: Leader) -> None:
    new = Leader(old.hand_over())
    new.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    new.get(MEMBER, Acquire(4, "share", "member", 9, 1, wait=True))
    (acquired,) = new.answers(Acquired)
    again = [(batch.base_offset, batch.count, retries) for batch, retries in acquired.pieces]
    assert again == [(2, 2, 0), (4, 1, 0)], "the last has the key of the nacked record"


def test_clients_are_sent_to_the_next_leader(old: Leader) -> None:
    old.get(READER, Fetch(5, 6, 10**6, 1, 500, "commits", "reader", 3))
    old.get(MEMBER, Acquire(4, "share", "member", 9, 2, wait=True))
    old.effects.sent.clear()
    old.hand_over()
    assert [(to, m) for to, m in old.effects.sent if isinstance(m, NotLeader)] == [
        (READER, NotLeader(5)),
        (MEMBER, NotLeader(4)),
    ]
    old.append(6, 1, NOT_IDEMPOTENT)
    assert old.answers(NotLeader)[-1] == NotLeader(1)


def test_the_state_does_not_change_with_either_leader(old: Leader) -> None:
    lead = old.hand_over()
    before = repr(lead.state)
    change(old)
    assert repr(lead.state) == before
    new = Leader(lead)
    assert repr(new.partition.snapshot()) == before, "the next leader has the whole state"
    change(new)
    assert repr(lead.state) == before


def test_a_fetch_and_a_commit_renew_the_lease_of_their_group(old: Leader) -> None:
    lease = old.partition.log_cleaner.leases["commits"]
    old.effects.now = 100
    old.get(READER, Fetch(5, 0, 10**6, 1, 0, "commits", "reader", 3))
    assert lease.heard_us == 100
    old.effects.now = 200
    old.get(COORDINATOR, committed(5))
    assert lease.heard_us == 200
