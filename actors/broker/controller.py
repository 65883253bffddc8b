"""The controller: decides which broker leads each partition and hosts each group's coordinator.

It places new partitions and coordinators on the broker that has the fewest, elects new leaders for
the partitions of a lost broker, and moves partitions to a broker that joins. The network may lose
its orders to brokers, so it repeats each one until it is answered; an order can be carried out
twice without harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.events import kinds
from ...model.events.schema import NULL_INT
from ...model.messages.client import offset_gap
from ...model.messages.cluster import (
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    CoordinatorHosted,
    CreateGroup,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Drop,
    GetMetadata,
    GroupConfig,
    HandOver,
    HostCoordinator,
    InitProducer,
    Lead,
    Leader,
    Leading,
    Metadata,
    ProducerEpoch,
    RecordsReserved,
    Register,
    RequestDone,
    RequestRefused,
    Reservation,
    Reserve,
    Reserved,
    ReserveRecords,
    ShutdownAllowed,
)
from ...model.messages.group import GroupLogAppend, GroupLogAppended, StoredGroup
from ...model.topics import Topic, TopicPartition, partitions_of
from ..engine.actor import Actor, receives
from ..engine.disk import DiskFailed, FolderRead
from .controller_storage import (
    AssignorStorage,
    ControllerStorage,
    MissingAssignor,
    group_entry,
    offsets_entry,
    read_topic,
    topic_entry,
)
from .group_writer import GroupWritten
from .journal import RetryJournal, SnapshotDurable
from .partition import RESERVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.settings import ClusterSettings
    from ..engine.ref import Ref
    from .controller_storage import Functions
    from .journal import Entry

CHECKS_PER_SESSION: Final = 8
"""How often the controller looks for silent brokers within a broker session timeout, as Kafka's."""

VERSIONS: Final = 2**32
"""Versions of the metadata that each life of a controller on a disk has room for."""


@attrs.frozen
class BrokerLivenessCheck:
    """Time to look for silent brokers, and to repeat orders that were not answered."""


@attrs.frozen
class LeaderStored:
    """It is on the disk which broker leads a partition."""

    leading: Leading
    """The broker's answer."""
    former: str | None
    """The broker that had the log before."""


@attrs.define
class BrokerState:
    """What the controller knows about a registered broker."""

    ref: Ref
    """Its address."""
    session: tuple[int, int]
    """The session of its registration, as in `Register`."""
    heard_us: int
    """When its last heartbeat arrived."""
    stopping: bool = False
    """Whether it wants to stop: it gets no more partitions and coordinators."""


@attrs.define
class Placement:
    """Where a partition's leader or a group's coordinator is."""

    broker: str | None = None
    """The broker's name; `None` while there is no broker."""
    epoch: int = -1
    """Goes up each time it is placed on another broker."""
    ref: Ref | None = None
    """The actor's address; `None` until the broker has answered."""
    previous: Ref | None = None
    """The previous leader, while it has to hand over its log."""
    home: str | None = None
    """The broker that has the log on its disk: no other one can lead the partition."""


@attrs.frozen
class PlacementStored:
    """The epoch of a placement is on the disk: its broker can be given the order."""

    name: TopicPartition | str
    """The partition to lead, or the group to coordinate."""
    epoch: int
    """Its epoch at that time. Epochs only rise, also over the deletion of a topic."""


@attrs.define
class ProducerId:
    """A producer id and the producers that have used it."""

    epoch: int = -1
    """The latest one."""
    answers: dict[Ref, ProducerEpoch] = attrs.Factory(dict)
    """The last answer to each producer. A producer that repeats its request did not get the
    answer, and is sent the same one."""


def with_assignor(config: GroupConfig) -> GroupConfig:
    """Return the configuration of a group that has the default assignor if none is given."""
    return config if config.assignor is not None else attrs.evolve(config, assignor="range")


class Controller(Actor):
    """Keeps the metadata of a cluster, and gives orders to its brokers."""

    def __init__(self, settings: ClusterSettings, functions: Functions | None = None) -> None:
        """Begin; `functions` has the assignors of the user that earlier lives were given."""
        self.settings = settings
        self.assignors = AssignorStorage({} if functions is None else functions)
        self.version = 0
        """The version of the metadata."""
        self.brokers: dict[str, BrokerState] = {}
        self.topics: dict[str, Topic] = {}
        self.topic_ids = 0
        """The id of the topic that was created last."""
        self.leaders: dict[TopicPartition, Placement] = {}
        self.reserved: dict[TopicPartition, int] = {}
        """For each partition, the end of the offsets that its leaders may use."""
        self.last_epochs: dict[TopicPartition, int] = {}
        """The last epochs of deleted partitions. A new topic of the same name continues them."""
        self.groups: dict[str, GroupConfig] = {}
        self.coordinators: dict[str, Placement] = {}
        self.group_logs: dict[str, StoredGroup] = {}
        """The last stored generation of each group."""
        self.group_offsets: dict[str, dict[TopicPartition, int]] = {}
        """The committed offsets of each group."""
        self.producers: dict[str, ProducerId] = {}
        self.reservations: dict[str, Reservation] = {}
        """What partitions keep for each group until it has a consumer."""
        self.created_us: dict[str, int] = {}
        """When each group was created."""
        self.unreserved: dict[TopicPartition, dict[str, None]] = {}
        """The groups that leaders have not confirmed to keep records for."""
        self.storage: ControllerStorage | None = None
        """The journal on the disk, if there is one."""
        self.restored_groups: set[str] = set()
        """Groups of an earlier process that nobody has asked for yet."""
        self.waiting: list[tuple[Ref, list[Placement], str | None]] = []
        """Requests to answer once all of these placements have an address, and all leaders keep
        records for this group."""

    def started(self) -> None:
        if self.settings.storage == "disk":
            self.storage = ControllerStorage(self.effects, self.entries)
            # Nobody gets an answer before it is known what there is.
            self.effects.hold_messages()
            self.storage.open()
        check_us = self.settings.broker_session_timeout_ms * 1_000 // CHECKS_PER_SESSION
        self.every(check_us, BrokerLivenessCheck(), exactly=False)

    # The journal on the disk

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        assert self.storage is not None
        self.storage.restore(read, self.apply)
        self.restored_groups = set(self.groups)
        # Clients ignore metadata that is older than theirs, which may be of an earlier life.
        self.version = self.life * VERSIONS

    @receives(SnapshotDurable)
    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        assert self.storage is not None
        if self.storage.journal.on_snapshot_durable(durable):
            self.effects.release_messages()

    @receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        assert self.storage is not None
        self.storage.journal.on_written(written)

    @receives(DiskFailed)
    def on_disk_failed(self, failed: DiskFailed) -> None:
        assert self.storage is not None
        if failed.operation == "sync":
            self.record(kinds.STORAGE_FAILED, reason=f"{failed.file}: {failed.reason}")
            self.stop()
        else:
            self.storage.journal.on_failed(failed)

    @receives(RetryJournal)
    def on_retry_journal(self, retry: RetryJournal) -> None:
        assert self.storage is not None
        self.storage.journal.retry()

    def note(self, entry: Entry) -> None:
        """Write a change to the journal, if there is one."""
        if self.storage is not None:
            self.storage.journal.add(entry)

    def promise(self, to: Ref, message: object) -> None:
        """Send a message once the changes that it tells of are on the disk."""
        if self.storage is None:
            self.send(to, message)
        else:
            self.storage.journal.send(to, message)

    def entries(self) -> Iterator[Entry]:
        """Describe everything that outlives the controller's process."""
        yield ("topic_ids", self.topic_ids)
        for topic in self.topics.values():
            yield topic_entry(topic)
        for partition, epoch in self.last_epochs.items():
            yield ("partition", *partition, epoch, None)
        for partition, placement in self.leaders.items():
            yield ("partition", *partition, placement.epoch, placement.home)
        for name, config in self.groups.items():
            yield self.group_entry(config)
            yield self.generation_entry(name)
            yield offsets_entry(name, self.group_offsets[name].items())
            yield ("coordinator", name, self.coordinators[name].epoch)
        for name, producer in self.producers.items():
            yield ("producer", name, producer.epoch)

    def group_entry(self, config: GroupConfig) -> Entry:
        name = config.name
        assignor = self.assignors.describe(name, config.assignor)
        return group_entry(config, assignor, self.reservations[name], self.created_us[name])

    def generation_entry(self, group: str) -> Entry:
        stored = self.group_logs[group]
        assignor = self.assignors.describe(group, stored.assignor)
        return ("generation", group, stored.generation, assignor)

    def apply(self, entry: Entry) -> None:
        """Apply an entry of the journal."""
        kind, *fields = entry
        getattr(self, f"apply_{kind}")(*fields)

    def apply_topic_ids(self, number: int) -> None:
        self.topic_ids = number

    def apply_topic(self, fields: dict[str, Any]) -> None:
        topic = read_topic(fields)
        self.topics[topic.name] = topic
        self.topic_ids = max(self.topic_ids, topic.id)
        for partition in partitions_of(topic.name, topic.partitions):
            epoch = self.last_epochs.pop(partition, -1)
            self.leaders.setdefault(partition, Placement(epoch=epoch))
            self.reserved[partition] = 0

    def apply_topic_deleted(self, name: str) -> None:
        self.topics.pop(name, None)
        for partition in [tp for tp in self.leaders if tp.topic == name]:
            self.last_epochs[partition] = self.leaders.pop(partition).epoch
            self.reserved.pop(partition, None)
            for offsets in self.group_offsets.values():
                offsets.pop(partition, None)

    def apply_partition(self, topic: str, number: int, epoch: int, home: str | None) -> None:
        partition = TopicPartition(topic, number)
        if partition in self.leaders:
            self.leaders[partition].epoch, self.leaders[partition].home = epoch, home
        else:
            self.last_epochs[partition] = epoch

    def apply_group(
        self, fields: dict[str, Any], reserved: dict[str, Any], created_us: int
    ) -> None:
        name = fields["name"]
        assignor = self.assignors.find(name, fields["assignor"])
        config = GroupConfig(**{**fields, "assignor": assignor})
        self.groups[name], self.reservations[name] = config, Reservation(**reserved)
        self.created_us[name] = created_us
        self.coordinators.setdefault(name, Placement())
        self.group_logs.setdefault(name, StoredGroup(0, None, config.assignor, (), {}))
        self.group_offsets.setdefault(name, {})

    def apply_generation(self, group: str, generation: int, assignor: Any) -> None:
        found = self.assignors.find(group, assignor)
        self.group_logs[group] = StoredGroup(generation, None, found, (), {})

    def apply_coordinator(self, group: str, epoch: int) -> None:
        self.coordinators[group].epoch = epoch

    def apply_offsets(self, group: str, offsets: tuple[tuple[str, int, int], ...]) -> None:
        for topic, number, offset in offsets:
            self.group_offsets[group][TopicPartition(topic, number)] = offset

    def apply_producer(self, name: str, epoch: int) -> None:
        self.producers.setdefault(name, ProducerId()).epoch = epoch

    # Metadata

    @receives(GetMetadata)
    def on_get_metadata(self, get: GetMetadata) -> None:
        self.reply(self.metadata())

    def metadata(self) -> Metadata:
        return Metadata(
            self.version,
            dict(self.topics),
            {
                tp: Leader(placement.ref, placement.broker, placement.epoch)
                for tp, placement in self.leaders.items()
            },
            {
                g: placement.ref
                for g, placement in self.coordinators.items()
                if placement.ref is not None
            },
            tuple(sorted(self.brokers)),
        )

    # Producers

    @receives(InitProducer)
    def on_init_producer(self, init: InitProducer) -> None:
        known = self.producers.setdefault(init.producer_id, ProducerId())
        answer = known.answers.get(self.sender)
        if answer is None or answer.request < init.request:
            known.epoch += 1
            answer = ProducerEpoch(init.request, init.producer_id, known.epoch)
            known.answers[self.sender] = answer
            self.note(("producer", init.producer_id, known.epoch))
        if answer.request == init.request:
            self.promise(self.sender, answer)

    # Topics and groups

    @receives(CreateTopic)
    def on_create_topic(self, create: CreateTopic) -> None:
        topic = create.topic
        if topic.name in self.topics:
            self.reply(RequestRefused(f"topic {topic.name!r} exists already"))
            return
        self.topic_ids += 1
        self.topics[topic.name] = attrs.evolve(topic, id=self.topic_ids)
        self.note(topic_entry(self.topics[topic.name]))
        self.record(kinds.TOPIC_CREATED, topic=topic.name, count=topic.partitions)
        self.place_partitions(topic.name, range(topic.partitions))

    @receives(CreatePartitions)
    def on_add_partitions(self, add: CreatePartitions) -> None:
        topic = self.topics.get(add.name)
        if topic is None:
            self.reply(RequestRefused(f"there is no topic {add.name!r}"))
        elif add.partitions <= topic.partitions:
            has = f"topic {add.name!r} has {topic.partitions} partitions"
            self.reply(RequestRefused(f"{has}: expected more, not {add.partitions}"))
        else:
            self.topics[add.name] = attrs.evolve(topic, partitions=add.partitions)
            self.note(topic_entry(self.topics[add.name]))
            self.record(kinds.PARTITIONS_ADDED, topic=add.name, count=add.partitions)
            self.place_partitions(add.name, range(topic.partitions, add.partitions))

    def place_partitions(self, topic: str, numbers: range) -> None:
        """Elect leaders for new partitions; the request is answered when all have one."""
        new = [TopicPartition(topic, number) for number in numbers]
        for partition in new:
            self.leaders[partition] = Placement(epoch=self.last_epochs.get(partition, -1))
            self.reserved[partition] = 0
            self.elect_leader(partition)
        self.waiting.append((self.sender, [self.leaders[partition] for partition in new], None))
        self.publish_metadata()

    @receives(DeleteTopic)
    def on_delete_topic(self, delete: DeleteTopic) -> None:
        if self.topics.pop(delete.name, None) is None:
            self.reply(RequestRefused(f"there is no topic {delete.name!r}"))
            return
        self.note(("topic_deleted", delete.name))
        for partition in [tp for tp in self.leaders if tp.topic == delete.name]:
            placement = self.leaders.pop(partition)
            for offsets in self.group_offsets.values():
                offsets.pop(partition, None)
            self.unreserved.pop(partition, None)
            self.last_epochs[partition] = placement.epoch
            del self.reserved[partition]
            if placement.broker is not None:
                drop = Drop(partition, lost=False, deleted=True)
                self.send(self.brokers[placement.broker].ref, drop)
        self.record(kinds.TOPIC_DELETED, topic=delete.name)
        self.publish_metadata()
        self.promise(self.sender, RequestDone(self.metadata()))

    @receives(CreateGroup)
    def on_create_group(self, create: CreateGroup) -> None:
        if create.name in self.restored_groups:
            self.adopt_group(create)
            return
        if create.name in self.groups:
            self.reply(RequestRefused(f"group {create.name!r} exists already"))
            return
        config = with_assignor(create.config)
        self.groups[create.name] = config
        self.reservations[create.name] = create.reservation
        self.created_us[create.name] = self.now
        for partition in self.leaders:
            if partition.topic in config.topics:
                self.order_reserve(partition)
        self.coordinators[create.name] = Placement()
        self.group_logs[create.name] = StoredGroup(0, None, config.assignor, (), {})
        self.group_offsets[create.name] = {}
        self.note(self.group_entry(config))
        self.place_coordinator(create.name)
        self.waiting.append((self.sender, [self.coordinators[create.name]], create.name))
        self.publish_metadata()

    def adopt_group(self, create: CreateGroup) -> None:
        """Go on with a group of an earlier process, with its generation and offsets."""
        name, stored = create.name, self.group_logs[create.name]
        if create.config.assignor is None and isinstance(stored.assignor, MissingAssignor):
            self.reply(RequestRefused(str(stored.assignor)))
            return
        self.restored_groups.discard(name)
        config = self.groups[name] = with_assignor(create.config)
        self.group_logs[name] = attrs.evolve(stored, assignor=config.assignor)
        self.note(self.group_entry(config))
        self.note(self.generation_entry(name))
        self.place_coordinator(name)
        self.waiting.append((self.sender, [self.coordinators[name]], None))
        self.publish_metadata()

    def reservations_in(self, topic: str) -> tuple[Reservation, ...]:
        """What the partitions of a topic keep for groups that have no consumer yet."""
        return tuple(
            reservation
            for group, reservation in self.reservations.items()
            if topic in self.groups[group].topics
        )

    def order_reserve(self, partition: TopicPartition) -> None:
        """Have records kept for the groups of a topic, and remember to repeat the order.

        A partition without a leader has no records that could be removed: its next leader gets
        the reservations with the order to lead. A group that may have reached its time to live is
        left out, as its leader may have forgotten it.
        """
        placement = self.leaders[partition]
        reservations = tuple(
            each
            for each in self.reservations_in(partition.topic)
            if self.now - self.created_us[each.group] < each.ttl_us
        )
        if reservations and (placement.ref is not None or placement.previous is not None):
            self.unreserved[partition] = dict.fromkeys(each.group for each in reservations)
            if placement.ref is not None:
                self.send(placement.ref, ReserveRecords(partition, reservations))

    @receives(RecordsReserved)
    def on_records_reserved(self, reserved: RecordsReserved) -> None:
        groups = self.unreserved.get(reserved.partition, {})
        for group in reserved.groups:
            groups.pop(group, None)
        self.answer_waiting(self.metadata())

    def publish_metadata(self) -> None:
        """Send the new metadata to all coordinators, and answer the requests that are fulfilled."""
        self.version += 1
        metadata = self.metadata()
        for placement in self.coordinators.values():
            if placement.ref is not None:
                self.send(placement.ref, metadata)
        self.answer_waiting(metadata)

    def answer_waiting(self, metadata: Metadata) -> None:
        """Answer the requests that are fulfilled."""
        still_waiting = []
        for sender, placements, group in self.waiting:
            placed = all(placement.ref is not None for placement in placements)
            if placed and not any(group in groups for groups in self.unreserved.values()):
                self.promise(sender, RequestDone(metadata))
            else:
                still_waiting.append((sender, placements, group))
        self.waiting = still_waiting

    # Placing leaders and coordinators

    def least_busy(
        self, placements: dict[TopicPartition, Placement] | dict[str, Placement]
    ) -> str | None:
        load = self.load(placements)
        return min(load, key=lambda broker: (load[broker], broker), default=None)

    def load(
        self, placements: dict[TopicPartition, Placement] | dict[str, Placement]
    ) -> dict[str, int]:
        load = {name: 0 for name, broker in self.brokers.items() if not broker.stopping}
        for placement in placements.values():
            if placement.broker in load:
                load[placement.broker] += 1
        return load

    def elect_leader(self, partition: TopicPartition) -> None:
        """Elect a leader for a partition, in a new epoch.

        It is the broker that leads the fewest. A partition on a disk waits for its own broker.
        """
        placement = self.leaders[partition]
        if placement.home is None:
            placement.broker = self.least_busy(self.leaders)
        else:
            placement.broker = placement.home if placement.home in self.brokers else None
        placement.ref = None
        self.unreserved.pop(partition, None)
        self.begin_election(partition)

    def after_storing(self, stored: PlacementStored) -> None:
        """Give the order for a placement once its epoch is on the disk, if it still counts then."""
        if self.storage is None or self.storage.journal.is_written:
            self.on_placement_stored(stored)
        else:
            self.promise(self.ref, stored)

    @receives(PlacementStored)
    def on_placement_stored(self, stored: PlacementStored) -> None:
        name = stored.name
        if isinstance(name, TopicPartition):
            placement = self.leaders.get(name)
        else:
            placement = self.coordinators.get(name)
        if placement is None or placement.epoch != stored.epoch or placement.ref is not None:
            return
        if isinstance(name, TopicPartition):
            self.order_lead(name)
        else:
            self.order_coordinate(name)

    def begin_election(self, partition: TopicPartition) -> None:
        """Order a broker to lead in a new epoch, which no later controller uses again."""
        placement = self.leaders[partition]
        placement.epoch += 1
        self.note(("partition", *partition, placement.epoch, placement.home))
        self.after_storing(PlacementStored(partition, placement.epoch))

    def order_lead(self, partition: TopicPartition) -> None:
        placement = self.leaders[partition]
        if placement.broker is None:
            return
        broker = self.brokers[placement.broker].ref
        if placement.previous is not None:
            self.send(placement.previous, HandOver(partition, broker, placement.epoch))
            return
        start = self.reserved[partition]
        lead = Lead(
            partition,
            self.topics[partition.topic],
            placement.epoch,
            start,
            start + RESERVE,
            self.ref,
            reservations=self.reservations_in(partition.topic),
        )
        self.send(broker, lead)

    @receives(Leading)
    def on_leading(self, leading: Leading) -> None:
        if not self.is_awaited(leading):
            return
        placement = self.leaders[leading.partition]
        if self.storage is None:
            self.begin_epoch(leading)
        else:
            # The journal names the broker with the log before clients learn of the leader.
            former, placement.home = placement.home, placement.broker
            self.note(("partition", *leading.partition, placement.epoch, placement.home))
            self.promise(self.ref, LeaderStored(leading, former))

    @receives(LeaderStored)
    def on_leader_stored(self, stored: LeaderStored) -> None:
        leading = stored.leading
        if not self.is_awaited(leading):
            return
        placement = self.leaders[leading.partition]
        former = stored.former
        if former not in (None, placement.home) and former in self.brokers:
            self.send(self.brokers[former].ref, Drop(leading.partition, lost=False))
        self.begin_epoch(leading)

    def is_awaited(self, leading: Leading) -> bool:
        """Whether a broker answers the last order to lead, and not one of an earlier controller."""
        placement = self.leaders.get(leading.partition)
        return (
            placement is not None
            and placement.epoch == leading.epoch
            and placement.ref is None
            and placement.broker == leading.ref.node
        )

    def begin_epoch(self, leading: Leading) -> None:
        """Make a leader known that has the log of its partition."""
        placement = self.leaders[leading.partition]
        lost_before = 0
        if self.storage is None and placement.previous is None:
            lost_before = self.reserved[leading.partition]
            self.reserved[leading.partition] += RESERVE
        placement.ref, placement.previous = leading.ref, None
        self.record(
            kinds.LEADER_CHANGED,
            topic=leading.partition.topic,
            partition=leading.partition.partition,
            epoch=leading.epoch,
            peer=placement.broker,
            base_offset=lost_before or NULL_INT,
            detail=offset_gap(lost_before) if lost_before else None,
        )
        self.order_reserve(leading.partition)
        self.publish_metadata()
        self.release_stopping()

    @receives(Reserve)
    def on_reserve(self, reserve: Reserve) -> None:
        placement = self.leaders.get(reserve.partition)
        if placement is not None and placement.epoch == reserve.epoch:
            up_to = max(reserve.up_to, self.reserved[reserve.partition])
            self.reserved[reserve.partition] = up_to
            self.reply(Reserved(up_to))

    def place_coordinator(self, group: str) -> None:
        """Place a group's coordinator on the broker that hosts the fewest."""
        placement = self.coordinators[group]
        placement.broker = self.least_busy(self.coordinators)
        placement.epoch += 1
        placement.ref = None
        self.note(("coordinator", group, placement.epoch))
        self.after_storing(PlacementStored(group, placement.epoch))

    def order_coordinate(self, group: str) -> None:
        placement = self.coordinators[group]
        if placement.broker is not None:
            offsets = self.group_offsets[group]
            known = {tp: offset for tp, offset in offsets.items() if tp in self.leaders}
            state = attrs.evolve(self.group_logs[group], offsets=known)
            order = HostCoordinator(
                group, placement.epoch, self.groups[group], self.metadata(), state
            )
            self.send(self.brokers[placement.broker].ref, order)

    @receives(GroupLogAppend)
    def on_group_log_append(self, append: GroupLogAppend) -> None:
        if self.coordinators[append.group].epoch == append.epoch:
            if append.generation is not None:
                self.group_logs[append.group] = append.generation
                self.note(self.generation_entry(append.group))
            offsets = self.group_offsets[append.group]
            for each in append.offsets:
                offsets[each.partition] = each.offset
            if append.offsets:
                changed = [(each.partition, each.offset) for each in append.offsets]
                self.note(offsets_entry(append.group, changed))
            self.promise(self.sender, GroupLogAppended(append.number))

    @receives(CoordinatorHosted)
    def on_coordinating(self, coordinating: CoordinatorHosted) -> None:
        placement = self.coordinators[coordinating.group]
        if placement.epoch == coordinating.epoch and placement.ref is None:
            placement.ref = coordinating.ref
            self.publish_metadata()
            self.release_stopping()

    # Brokers

    @receives(Register)
    def on_register(self, register: Register) -> None:
        known = self.brokers.get(register.broker)
        if known is None or known.session != register.session:
            if known is not None:
                self.remove_broker(register.broker, "registered again")
            self.brokers[register.broker] = BrokerState(self.sender, register.session, self.now)
            self.record(kinds.BROKER_REGISTERED, peer=register.broker)
            self.place_unplaced()
            self.balance()
            self.publish_metadata()
        self.renew_session(register.broker, register.session, register.sent_us)

    @receives(BrokerHeartbeat)
    def on_broker_heartbeat(self, beat: BrokerHeartbeat) -> None:
        known = self.brokers.get(beat.broker)
        if known is None or known.session != beat.session:
            self.reply(BrokerUnknown(beat.session))
        else:
            self.renew_session(beat.broker, beat.session, beat.sent_us)
            if beat.wants_shutdown:
                self.drain(beat.broker)

    def drain(self, broker: str) -> None:
        """Hand the partitions and coordinators of a stopping broker over to others, if any."""
        self.brokers[broker].stopping = True
        for partition, placement in self.leaders.items():
            other = self.least_busy(self.leaders)
            if placement.broker == broker and placement.ref is not None and other is not None:
                self.move(partition, other)
        for group, placement in self.coordinators.items():
            if placement.broker == broker and self.least_busy(self.coordinators) is not None:
                self.place_coordinator(group)
        self.release_stopping()

    def release_stopping(self) -> None:
        """Let brokers stop that want to, and that have nothing left to hand over."""
        stopping = [name for name, broker in self.brokers.items() if broker.stopping]
        for name in stopping:
            placements = [*self.leaders.values(), *self.coordinators.values()]
            if not any(
                placement.broker == name
                or (placement.previous is not None and placement.previous.node == name)
                for placement in placements
            ):
                stopped = self.brokers.pop(name)
                self.record(kinds.BROKER_UNREGISTERED, peer=name)
                self.send(stopped.ref, ShutdownAllowed(stopped.session))
                self.publish_metadata()

    def renew_session(self, broker: str, session: tuple[int, int], sent_us: int) -> None:
        self.brokers[broker].heard_us = self.now
        self.reply(BrokerAlive(session, sent_us))

    @receives(BrokerLivenessCheck)
    def on_review(self, review: BrokerLivenessCheck) -> None:
        timeout_us = self.settings.broker_session_timeout_ms * 1_000
        for name, broker in list(self.brokers.items()):
            if self.now - broker.heard_us > timeout_us:
                self.remove_broker(name, "silent for the broker session timeout")
                self.publish_metadata()
        for partition, placement in self.leaders.items():
            if placement.ref is None:
                self.after_storing(PlacementStored(partition, placement.epoch))
            elif self.unreserved.get(partition):
                self.order_reserve(partition)
        for group, placement in self.coordinators.items():
            if placement.ref is None:
                self.after_storing(PlacementStored(group, placement.epoch))

    def remove_broker(self, broker: str, reason: str) -> None:
        """Remove a broker that is lost; the others take over its partitions and coordinators."""
        del self.brokers[broker]
        self.record(kinds.BROKER_LOST, peer=broker, reason=reason)
        for partition, placement in self.leaders.items():
            if placement.previous is not None and placement.previous.node == broker:
                placement.previous = None
            if placement.broker == broker or (placement.home == broker and placement.ref is None):
                self.elect_leader(partition)
        for group, placement in self.coordinators.items():
            if placement.broker == broker:
                self.place_coordinator(group)

    def place_unplaced(self) -> None:
        """Place everything that has had no broker so far."""
        for partition, placement in self.leaders.items():
            if placement.broker is None:
                self.elect_leader(partition)
        for group, placement in self.coordinators.items():
            if placement.broker is None:
                self.place_coordinator(group)

    def balance(self) -> None:
        """Move partitions from the brokers that lead most to those that lead fewest."""
        while True:
            load = self.load(self.leaders)
            # A partition that is being moved cannot be moved again: only brokers with a leader in
            # place can give one up.
            settled = {
                tp: placement.broker
                for tp, placement in self.leaders.items()
                if placement.ref is not None
            }
            sources = frozenset(settled.values())
            able = [broker for broker in load if broker in sources]
            busiest = max(able, key=lambda broker: (load[broker], broker), default=None)
            idlest = min(load, key=lambda broker: (load[broker], broker))
            if busiest is None or load[busiest] - load[idlest] < 2:
                return
            self.move([tp for tp, broker in settled.items() if broker == busiest][-1], idlest)

    def move(self, partition: TopicPartition, broker: str) -> None:
        """Move a partition to another broker; its leader hands over the log."""
        placement = self.leaders[partition]
        placement.broker, placement.previous, placement.ref = broker, placement.ref, None
        self.begin_election(partition)
