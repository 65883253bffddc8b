"""Random runs of the controller's rules about replicas, with the records that replicas would have.

Each replica is a number: how many of the committed records it has. A record is committed when at
least `min_insync_replicas` are in sync, and all of them get it. So a run knows which leader lacks
committed records. Invariants are checked after every entry, and an operation may be cut off after
some of its entries, as when the active controller is lost.
"""

from collections import Counter
from random import Random

from wavetank.model.consensus.registration import PartitionRegistration
from wavetank.model.consensus.replication_control import IsrRefusal, ReplicationControl
from wavetank.model.errors import BadValueError
from wavetank.model.journal import decode_entry, encode_entry
from wavetank.model.topics import Topic, TopicPartition

_HEAD = 8
"""Bytes of an encoded entry before its data."""


class ReplicationRun:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.names = [f"broker-{number}" for number in range(self.dice.randint(1, 6))]
        self.racks = {name: self.dice.choice([None, "r1", "r2"]) for name in self.names}
        unclean = self.dice.random() < 0.2
        self.control = ReplicationControl(unclean)
        self.replayed = ReplicationControl(unclean)
        self.lives: Counter[str] = Counter()
        self.stored: Counter[tuple[TopicPartition, str]] = Counter()
        """How many committed records each replica has."""
        self.committed: Counter[TopicPartition] = Counter()
        self.requests: list[tuple] = []
        """Requests for another in-sync set that are on their way."""
        self.topics = 0
        self.steps: list[str] = []
        self.seen: Counter[str] = Counter()
        """How often things have happened that a run should come across."""

    def run(self, steps: int = 120) -> None:
        """Take random steps, and check all along."""
        for name in self.names:
            self.register(name)
        self.create_topic()
        for _ in range(steps):
            getattr(self, self.dice.choice(STEPS))()
        self.check_copies()
        self.heal()

    # Steps

    def step_register(self) -> None:
        self.register(self.any_broker())

    def register(self, name: str) -> None:
        self.lives[name] += 1
        clean = self.dice.random() < 0.6
        if not clean:
            for partition in self.control.partitions:
                # What is left of the records is any number of them.
                kept = self.dice.randint(0, self.stored[partition, name])
                self.stored[partition, name] = kept
        life, rack = self.lives[name], self.racks[name]
        epoch = self.control.broker_epoch + self.dice.randint(1, 3)
        self.do("register", name, life, rack, epoch, clean, finish=True)
        assert self.control.register(name, life, rack, epoch + 1, clean) == []
        if self.dice.random() < 0.8:
            self.do("unfence", name)

    def step_fence(self) -> None:
        if self.dice.random() < 0.5:
            self.do("fence", self.any_broker())

    def step_unfence(self) -> None:
        self.do("unfence", self.any_broker())

    def step_begin_shutdown(self) -> None:
        if self.dice.random() < 0.3:
            name = self.any_broker()
            self.do("begin_shutdown", name, finish=True)
            assert not self.control.has_leaders(name)

    def step_unregister(self) -> None:
        name = self.any_broker()
        if self.dice.random() < 0.1 and len(self.control.brokers) > 1:
            self.do("unregister", name, finish=True)
            self.register(name)

    def step_write(self) -> None:
        for partition, registration in self.control.partitions.items():
            enough = self.control.topics[partition.topic].min_insync_replicas
            if registration.leader is not None and len(registration.isr) >= enough:
                self.write(partition, registration)

    def write(self, partition: TopicPartition, registration: PartitionRegistration) -> None:
        """Commit a record, if all that are in sync can get it: the maximal in-sync set."""
        members = set(registration.isr)
        for request in self.requests:
            if request[0] == partition and request[3:5] == _epochs(registration):
                members |= {name for name, epoch in request[5] if self.is_current(name, epoch)}
                if not all(self.is_current(name, epoch) for name, epoch in request[5]):
                    return
        self.committed[partition] += 1
        for name in members:
            self.stored[partition, name] = self.committed[partition]

    def is_current(self, name: str, epoch: int) -> bool:
        broker = self.control.brokers.get(name)
        return broker is not None and broker.epoch == epoch

    def step_propose_isr(self) -> None:
        """A leader asks for another in-sync set, whose members have what it has."""
        epochs = {name: broker.epoch for name, broker in self.control.brokers.items()}
        for partition, registration in self.control.partitions.items():
            leader = registration.leader
            if leader is None or self.dice.random() < 0.5:
                continue
            known = [each for each in registration.replicas if each in epochs]
            isr = {leader, *(each for each in known if self.dice.random() < 0.6)}
            for name in isr:
                self.stored[partition, name] = self.stored[partition, leader]
            members = tuple((name, epochs[name]) for name in sorted(isr))
            self.requests.append(
                (partition, leader, epochs[leader], *_epochs(registration), members)
            )

    def step_alter_isr(self) -> None:
        """Requests arrive, perhaps late, or again."""
        for _ in range(self.dice.randint(0, len(self.requests))):
            request = self.dice.choice(self.requests)
            if self.dice.random() < 0.8:
                self.requests.remove(request)
            entries = self.control.alter_isr(*request)
            if isinstance(entries, IsrRefusal):
                self.seen[entries] += 1
            else:
                self.apply("alter_isr", entries)

    def step_elect_preferred(self) -> None:
        self.do("elect_preferred")

    def step_elect_unclean(self) -> None:
        if self.dice.random() < 0.1 and self.control.partitions:
            self.do("elect_unclean", self.any_partition())

    def step_elect_leaders(self) -> None:
        self.do("elect_leaders")

    def step_reassign(self) -> None:
        if self.control.partitions:
            count = self.dice.randint(1, len(self.names))
            self.do("reassign", self.any_partition(), tuple(self.dice.sample(self.names, count)))

    def step_cancel_reassignment(self) -> None:
        if self.control.partitions:
            self.do("cancel_reassignment", self.any_partition())

    def step_rebalance_replicas(self) -> None:
        self.do("rebalance_replicas")

    def step_evacuate(self) -> None:
        self.do("evacuate", self.any_broker(), self.dice.random() < 0.5)

    def step_restart_empty(self) -> None:
        if self.dice.random() < 0.1 and self.control.partitions:
            partition = self.any_partition()
            for name in self.names:
                self.stored[partition, name] = 0
            self.committed[partition] = 0
            self.do("restart_empty", partition)

    def step_create_topic(self) -> None:
        self.create_topic()

    def create_topic(self) -> None:
        self.topics += 1
        factor = self.dice.randint(1, len(self.names))
        name, count = f"t{self.topics % 3}", self.dice.randint(1, 6)
        if name in self.control.topics:
            self.delete_topic(name)
        topic = Topic(
            name, count, replication_factor=factor, min_insync_replicas=self.dice.randint(1, 3)
        )
        self.control.apply_topic(topic)
        self.replayed.apply_topic(topic)
        self.do("create_partitions", name, range(count), factor)

    def delete_topic(self, name: str) -> None:
        for partition in [each for each in self.control.partitions if each.topic == name]:
            del self.committed[partition]
            for broker in self.names:
                del self.stored[partition, broker]
        self.control.apply_topic_deleted(name)
        self.replayed.apply_topic_deleted(name)

    def any_broker(self) -> str:
        return self.dice.choice(sorted(self.control.brokers))

    def any_partition(self) -> TopicPartition:
        return self.dice.choice(sorted(self.control.partitions))

    # Operations and entries

    def do(self, operation: str, *arguments: object, finish: bool = False) -> None:
        """Carry out an operation, or the first part of it."""
        self.steps.append(f"{operation}{arguments}")
        before = list(self.control.entries())
        try:
            entries = getattr(self.control, operation)(*arguments)
        except BadValueError:
            self.seen["refused"] += 1
            return
        assert list(self.control.entries()) == before, f"{operation} changes the state"
        if not finish and self.dice.random() < 0.1:
            entries = entries[: self.dice.randint(0, len(entries))]
        self.apply(operation, entries)

    def apply(self, operation: str, entries: list[tuple]) -> None:
        affected = self.control.affected_brokers(entries)
        for entry in entries:
            kind, *fields = entry
            if kind == "partition":
                partition = TopicPartition(*fields[:2])
                before = self.control.partitions.get(partition)
                self.control.apply(entry)
                self.check_change(operation, partition, before, affected)
            else:
                self.control.apply(entry)
            self.replayed.apply(decode_entry(encode_entry(entry)[_HEAD:]))
            self.check_state()

    # Invariants

    def check_change(
        self,
        operation: str,
        partition: TopicPartition,
        before: PartitionRegistration | None,
        affected: dict[str, list[TopicPartition]],
    ) -> None:
        after = self.control.partitions[partition]
        former = () if before is None else before.replicas
        told = {name for name, partitions in affected.items() if partition in partitions}
        assert told == {*former, *after.replicas}, "brokers to tell"
        if before is None:
            assert after.leader_epoch == after.partition_epoch == self.control.first_epoch
            return
        assert after.partition_epoch == before.partition_epoch + 1, "partition epoch"
        for name in set(former) - set(after.replicas):
            self.stored[partition, name] = 0
        if operation == "restart_empty":
            assert after.leader_epoch == before.leader_epoch + 1
            return
        changed = after.leader != before.leader
        assert after.leader_epoch == before.leader_epoch + changed, "leader epoch"
        if changed and after.leader is not None:
            self.seen["elections"] += 1
            self.check_election(operation, partition, before, after)

    def check_election(
        self,
        operation: str,
        partition: TopicPartition,
        before: PartitionRegistration,
        after: PartitionRegistration,
    ) -> None:
        leader = after.leader
        if after.unclean:
            self.seen["unclean"] += 1
            assert (after.isr, after.elr) == ((leader,), ()), "unclean leader alone"
            if not self.control.unclean_leader_election and operation != "elect_unclean":
                assert leader == before.last_known_leader, "unclean without leave"
                assert operation == "register" or not before.elr, "eligible replicas"
            self.committed[partition] = self.stored[partition, leader]
            for name in self.names:
                kept = min(self.stored[partition, name], self.committed[partition])
                self.stored[partition, name] = kept
        else:
            self.seen["from elr"] += leader in before.elr
            eligible = {*before.isr, *before.elr}
            assert leader in eligible or operation == "alter_isr", "election of others"
            assert self.stored[partition, leader] >= self.committed[partition], "records lost"

    def check_state(self) -> None:
        control = self.control
        for registration in control.partitions.values():
            replicas, isr, elr = registration.replicas, registration.isr, registration.elr
            assert len(set(replicas)) == len(replicas) > 0
            assert len(set(isr)) == len(isr), "members once"
            assert not set(isr) & set(elr), "in sync and eligible"
            assert {*isr, *elr, *registration.adding, *registration.removing} <= set(replicas), (
                "members"
            )
            assert not set(registration.adding) & set(registration.removing)
            assert registration.target
            assert all(map(control.is_active, isr)), "in sync and not active"
            assert (registration.leader is None) == (not isr), "leader and in-sync set"
            assert registration.leader is None or registration.leader in isr, "leader not in sync"
            assert (registration.last_known_leader is None) == (registration.leader is not None)
            assert registration.partition_epoch >= registration.leader_epoch

    def check_copies(self) -> None:
        """The same entries lead to the same state, and so do those of a snapshot."""
        assert self.replayed == self.control, "replay"
        restored = ReplicationControl()
        for topic in self.control.topics.values():
            restored.apply_topic(topic)
        for entry in self.control.entries():
            restored.apply(decode_entry(encode_entry(entry)[_HEAD:]))
        # The index is made anew here: equal means that it was kept well.
        assert restored == self.control, "snapshot"

    def heal(self) -> None:
        """When all brokers are back, each partition has a leader unless all that had it lost it."""
        for name in self.names:
            if name in self.control.brokers and self.control.brokers[name].stopping:
                self.lives[name] += 1
                life, epoch = self.lives[name], self.control.broker_epoch + 1
                self.do("register", name, life, self.racks[name], epoch, True, finish=True)
            self.do("unfence", name, finish=True)
        self.apply("elect_leaders", self.control.elect_leaders())
        for registration in self.control.partitions.values():
            gone = registration.last_known_leader not in registration.replicas
            assert registration.leader is not None or gone, "no leader"


def _epochs(registration: PartitionRegistration) -> tuple[int, int]:
    return registration.leader_epoch, registration.partition_epoch


STEPS = sorted(name for name in vars(ReplicationRun) if name.startswith("step_"))
