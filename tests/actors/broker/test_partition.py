"""Two replicas of a partition, without an engine: what followers get, and what leads next."""

from typing import Any

import attrs
import pytest

from helpers.fake_effects import FakeEffects, FakeRef
from wavetank.actors.broker.loss_audit import LossAudit
from wavetank.actors.broker.partition import Partition
from wavetank.model.log.batch import Batch
from wavetank.model.log.record import NOT_IDEMPOTENT
from wavetank.model.messages.client import (
    ALL,
    Append,
    Appended,
    Claim,
    Claimed,
    Fetch,
    Fetched,
    FindOffset,
    FoundOffset,
    GroupCommitted,
    Inspect,
    NotLeader,
    PartitionView,
)
from wavetank.model.messages.replication import (
    ReplicaDiverged,
    ReplicaFetch,
    ReplicaFetched,
    ReplicaFetchRefused,
    ReplicaOrder,
    ReplicaOutOfRange,
    ReplicaState,
)
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
REPLICATION = (
    ReplicaFetch, ReplicaFetched, ReplicaDiverged, ReplicaFetchRefused, ReplicaOutOfRange
)  # fmt: skip
IN_MEMORY = ClusterSettings(storage="memory")
TERMS = SubscriptionConfig("share", "key_shared", "earliest", 10**6, 3, 10, 10, None, 10**7, 10**9)


class Replica:
    """A replica with fake effects, in a cluster of two."""

    def __init__(self, broker: str) -> None:
        name = f"{ORDERS}@{broker}"
        self.effects = FakeEffects(FakeRef(name))
        self.effects.found = {each: FakeRef(each) for each in (f"{ORDERS}@a", f"{ORDERS}@b")}
        order = self.order("a", 0)
        self.partition = Partition(
            order, FakeRef(broker), 1, IN_MEMORY, (FakeRef("controller"),), LossAudit()
        )  # type: ignore[arg-type]
        self.partition.effects = self.effects  # type: ignore[assignment]
        self.partition.started()

    @staticmethod
    def order(leader: str, epoch: int) -> ReplicaOrder:
        state = ReplicaState(("a", "b"), ("a", "b"), leader, epoch, epoch)
        topic = Topic("orders", 1, replication_factor=2)
        address = f"{ORDERS}@{leader}"
        return ReplicaOrder(ORDERS, topic, state, address, address, 0, 100_000)

    def get(self, sender: FakeRef, message: Any) -> None:
        """Receive a message."""
        self.effects.sender = sender
        self.partition.handlers[type(message)](self.partition, message)

    def append(
        self, sequence: int, count: int = 2, epoch: int = 0, acks: int = ALL, request: int = 1
    ) -> None:
        keys = tuple(f"key-{number}" for number in range(count))
        batch = Batch.of("p", sequence, [1] * count, keys=keys, timestamps_us=0, sizes=10)
        self.get(FakeRef("producer"), Append(request, batch, acks, epoch, sequence))

    def lead(self, epoch: int) -> None:
        """Lead in an epoch."""
        self.get(FakeRef("broker"), self.order(self.partition.broker, epoch))

    def follow(self, leader: str, epoch: int) -> None:
        """Follow a leader in an epoch."""
        self.get(FakeRef("broker"), self.order(leader, epoch))

    def take_sent(self) -> list[Any]:
        """What it has sent to the other replica."""
        sent, rest = [], []
        for to, message in self.effects.sent:
            is_for_replica = isinstance(message, REPLICATION) and to.name != self.effects.ref.name
            (sent if is_for_replica else rest).append((to, message))
        self.effects.sent[:] = rest
        return [message for _, message in sent]

    def answers(self, kind: type) -> list[Any]:
        return self.effects.messages(kind)


def talk(one: Replica, other: Replica) -> None:
    """Let two replicas have each other's messages until nothing is left to say."""
    while True:
        messages = [(other, one, m) for m in one.take_sent()]
        messages += [(one, other, m) for m in other.take_sent()]
        if not messages:
            return
        for receiver, sender, message in messages:
            receiver.get(sender.effects.ref, message)


MEMBER, READER, COORDINATOR = FakeRef("member"), FakeRef("reader"), FakeRef("group-commits")


def committed(offset: int, epoch: int = 0) -> GroupCommitted:
    return GroupCommitted("commits", epoch, "reader", "reader", 3, offset)


@pytest.fixture
def pair() -> tuple[Replica, Replica]:
    """A leader with records, a group that commits, and a share group with records in flight.

    The other replica follows it.
    """
    leader, follower = Replica("a"), Replica("b")
    talk(leader, follower)
    leader.append(0, 4)
    leader.append(4, 2)
    talk(leader, follower)
    leader.get(READER, Claim(1, "commits", "reader", 3, 10**9))
    leader.get(COORDINATOR, committed(4))
    leader.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    leader.get(MEMBER, Acquire(2, "share", "member", 5, 0, wait=True))
    settle = AcknowledgeRecords(
        3, "share", "member", acks=((0, 1),), nacks=(Nack((1, 2), 10**5, "no"),)
    )
    leader.get(MEMBER, settle)
    talk(leader, follower)
    return leader, follower


@pytest.fixture
def old(pair: tuple[Replica, Replica]) -> Replica:
    """The leader of the pair."""
    return pair[0]


@pytest.fixture
def new(pair: tuple[Replica, Replica]) -> Replica:
    """The follower, after it has become the next leader."""
    old, new = pair
    new.lead(1)
    old.follow("b", 1)
    talk(old, new)
    return new


def test_the_next_leader_has_the_records_positions_and_producers(new: Replica) -> None:
    new.append(4, 2, acks=1)
    assert [answer.base_offset for answer in new.answers(Appended)] == [4], "a duplicate"
    new.get(READER, Fetch(5, 0, 10**6, 1, 0, "commits", "reader", 3))
    (fetched,) = new.answers(Fetched)
    assert sum(batch.count for batch in fetched.batches) == 6
    assert new.partition.cursors["commits"].committed == 4


def test_a_partition_follows_the_commits_of_the_newest_coordinator_forwards_and_backwards(
    old: Replica,
) -> None:
    old.get(COORDINATOR, committed(6, epoch=2))
    old.get(COORDINATOR, committed(5, epoch=1))
    cursor = old.partition.cursors["commits"]
    assert cursor.committed == 6, "the old coordinator has nothing to say any more"
    old.get(COORDINATOR, committed(3, epoch=2))
    assert cursor.committed == 3


def test_the_next_leader_has_the_state_of_each_record_of_a_share_group(
    old: Replica, new: Replica
) -> None:
    share = new.partition.share_partitions["share"]
    assert (share.cursor.committed, share.cursor.in_flight) == (1, {"member": 3})
    assert share.cursor.deliveries(1) == 1
    assert share.timer is not None, "the delay of the nacked record goes on"
    new.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    new.get(MEMBER, AcknowledgeRecords(4, "share", "member", acks=((2, 5),)))
    assert new.answers(Attached) == [], "no answer before the follower has it"
    talk(old, new)
    assert len(new.answers(Attached)) == 1
    assert share.cursor.in_flight == {"member": 0}


def test_an_answer_that_was_lost_is_released_at_the_next_leader(old: Replica, new: Replica) -> None:
    new.get(MEMBER, Attach(1, "share", "member", 0, TERMS))
    new.get(MEMBER, Acquire(4, "share", "member", 9, 1, wait=True))
    talk(old, new)
    (acquired,) = new.answers(Acquired)
    again = [(batch.base_offset, batch.count, retries) for batch, retries in acquired.pieces]
    assert again == [(2, 2, 0), (4, 1, 0)], "the last has the key of the nacked record"


def test_clients_are_sent_to_the_next_leader(old: Replica) -> None:
    old.get(READER, Fetch(5, 6, 10**6, 1, 500, "commits", "reader", 3))
    old.get(MEMBER, Acquire(4, "share", "member", 9, 2, wait=True))
    old.append(6, 1, request=8)
    old.effects.sent.clear()
    old.follow("b", 1)
    assert [(to.name, m) for to, m in old.effects.sent if isinstance(m, NotLeader)] == [
        ("reader", NotLeader(5)),
        ("member", NotLeader(4)),
        ("producer", NotLeader(8)),
    ]
    old.append(6, 1, NOT_IDEMPOTENT)
    assert old.answers(NotLeader)[-1] == NotLeader(1)


def test_both_replicas_have_the_same_state(old: Replica, new: Replica) -> None:
    new.append(6, 3)
    new.get(COORDINATOR, committed(9, epoch=1))
    talk(old, new)
    own = new.partition.snapshot()
    other = old.partition.follower.state.state(own.log, own.producers)
    assert repr(attrs.evolve(other, leases=own.leases)) == repr(own)
    logs = [replica.partition.log.snapshot() for replica in (old, new)]
    assert repr(logs[0].batches) == repr(logs[1].batches)
    assert [(log.end_offset, log.epochs) for log in logs] == [(9, ((0, 0), (1, 6)))] * 2


def test_a_producer_that_waits_for_all_is_answered_once_the_follower_has_the_records(
    pair: tuple[Replica, Replica],
) -> None:
    leader, follower = pair
    leader.effects.sent.clear()
    leader.append(6, 1, acks=ALL, request=5)
    assert leader.answers(Appended) == []
    talk(leader, follower)
    assert [answer.request for answer in leader.answers(Appended)] == [5]


def test_a_producer_that_waits_for_the_leader_is_answered_at_once(old: Replica) -> None:
    old.effects.sent.clear()
    old.append(6, 1, acks=1, request=5)
    assert [answer.request for answer in old.answers(Appended)] == [5]


def test_a_batch_that_is_sent_again_is_answered_only_once_all_replicas_have_it(
    pair: tuple[Replica, Replica],
) -> None:
    leader, follower = pair
    leader.append(6, 1)
    leader.effects.sent = [(to, m) for to, m in leader.effects.sent if type(m) is not Appended]
    leader.append(6, 1, request=9)
    assert leader.answers(Appended) == [], "the follower may not have it"
    talk(leader, follower)
    assert [answer.request for answer in leader.answers(Appended)] == [1, 9]


def test_what_only_the_former_leader_has_is_cut_off_there(old: Replica, new: Replica) -> None:
    new.take_sent()
    new.append(6, 2)
    new.take_sent()
    old.lead(2)
    old.append(6, 3)
    new.follow("a", 2)
    talk(old, new)
    logs = [replica.partition.log for replica in (old, new)]
    assert [log.end_offset for log in logs] == [9, 9]
    assert [batch.epoch for batch in logs[1].pieces(0, 99)] == [0, 0, 2]
    (cut,) = [fields for kind, fields in new.effects.events if kind == "replica_truncated"]
    assert (cut["base_offset"], cut["count"]) == (6, 2)


def test_clients_see_the_log_up_to_the_high_watermark(old: Replica) -> None:
    old.append(6, 3)
    old.effects.sent.clear()
    old.get(READER, Inspect())
    [view] = old.answers(PartitionView)
    assert (view.end_offset, view.records, view.lags["commits"]) == (6, 6, 2)
    old.get(READER, FindOffset(5, 10**9))
    assert old.answers(FoundOffset) == [FoundOffset(5, 6, 6)]
    old.get(READER, Claim(6, "new", "reader", 1, 10**9))
    assert [claimed.end_offset for claimed in old.answers(Claimed)] == [6]


def test_a_fetch_and_a_commit_renew_the_lease_of_their_group(old: Replica) -> None:
    lease = old.partition.log_cleaner.leases["commits"]
    old.effects.now = 100
    old.get(READER, Fetch(5, 0, 10**6, 1, 0, "commits", "reader", 3))
    assert lease.heard_us == 100
    old.effects.now = 200
    old.get(COORDINATOR, committed(5))
    assert lease.heard_us == 200
