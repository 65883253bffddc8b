"""A controller: decides which broker leads each partition and hosts each group's coordinator.

It places new partitions and coordinators on the broker that has the fewest, elects new leaders for
the partitions of a lost broker, and moves partitions to a broker that joins. The network may lose
its orders to brokers, so it repeats each one until it is answered; an order can be carried out
twice without harm.

One controller of a cluster is active, and the others stand by; `MetadataLog` tells them apart. All
that has to outlive the active one is an entry of the log (`MetadataImage`). The rest, such as the
time of a broker's last heartbeat, a new active controller begins anew: it counts all brokers as
heard, and repeats all orders that may not be carried out. Nobody hears of a change before it is
committed: answers and orders are promises to the log.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from ...model.consensus import messages as raft
from ...model.consensus.effects import RaftSettings
from ...model.events import kinds
from ...model.events.schema import NULL_INT
from ...model.messages.client import offset_gap
from ...model.messages.cluster import (
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    ControllerView,
    CoordinatorHosted,
    CreateGroup,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeController,
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
    NotController,
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
from ...model.messages.group import GroupLogAppend, GroupLogAppended
from ...model.topics import TopicPartition, partitions_of
from ..engine.actor import Actor, receives
from ..engine.disk import DiskFailed, FolderRead
from .group_writer import GroupWritten
from .journal import RetryJournal, SnapshotDurable
from .metadata_image import (
    MetadataImage,
    MissingAssignor,
    Placement,
    coordinator_entry,
    offsets_entry,
    partition_entry,
)
from .metadata_log import MetadataLog, RaftTick
from .partition import RESERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...model.consensus.stored_raft import StoredRaft
    from ...model.settings import ClusterSettings
    from ..engine.ref import Ref
    from .journal import Entry
    from .metadata_image import ProgramCode

M = TypeVar("M")

CHECKS_PER_SESSION: Final = 8
"""How often the controller looks for silent brokers within a broker session timeout, as Kafka's."""

VERSIONS: Final = 2**32
"""Versions of the metadata that each active controller has room for."""
HEARTBEATS: Final = 10
"""How often a controller that leads the log is heard in the time after which it is given up."""
SNAPSHOT_PARTS: Final = 1_000
"""Entries of a snapshot in one message to another controller."""


@attrs.frozen
class BrokerLivenessCheck:
    """Time to look for silent brokers, and to repeat orders that were not answered."""


@attrs.frozen
class LeaderStored:
    """It is committed which actor leads a partition."""

    leading: Leading
    """The broker's answer."""
    former: str | None
    """The broker that had the log before."""
    lost_before: int
    """The log of the leader before, which was in memory, is lost up to this offset."""


@attrs.frozen
class PlacementStored:
    """The epoch of a placement is committed: its broker can be given the order."""

    name: TopicPartition | str
    """The partition to lead, or the group to coordinate."""
    epoch: int
    """Its epoch at that time. Epochs only rise, also over the deletion of a topic."""


def with_assignor(config: GroupConfig) -> GroupConfig:
    """Return the configuration of a group that has the default assignor if none is given."""
    return config if config.assignor is not None else attrs.evolve(config, assignor="range")


def when_active(
    handle: Callable[[Controller, M], None],
) -> Callable[[Controller, M], None]:
    """Have a message handled by the active controller only; others answer who that is."""

    @wraps(handle)
    def handle_or_refer(self: Controller, message: M) -> None:
        self.log.catch_up()
        if self.log.is_active:
            handle(self, message)
        elif self.sender is not self.ref:
            self.reply(NotController(self.log.leader))

    return handle_or_refer


class Controller(Actor):
    """Keeps the metadata of a cluster, and gives orders to its brokers, while it is active."""

    log: MetadataLog
    """The changes of the metadata, which all controllers have."""
    image: MetadataImage
    """The metadata."""

    def __init__(
        self,
        settings: ClusterSettings,
        controllers: tuple[str, ...],
        process: int,
        code: ProgramCode,
        retained: dict[str, StoredRaft],
    ) -> None:
        """Begin, as one of these controllers of a new cluster unless there is a log already.

        Args:
            settings: The settings of the cluster.
            controllers: Names of all controllers.
            process: Number of this process, higher than those of earlier ones with the same disks.
            code: The code that entries of the log name.
            retained: Keeps the log of a cluster in memory.
        """
        self.settings = settings
        self.controllers = controllers
        self.process = process
        self.code = code
        self.retained = retained
        self.on_disk = settings.storage == "disk"
        self.version = 0
        """The version of the metadata."""
        self.heard_us: dict[str, int] = {}
        """When the last heartbeat of each broker arrived."""
        self.stopping: dict[str, None] = {}
        """Brokers that want to stop: they get no more partitions and coordinators."""
        self.unreserved: dict[TopicPartition, dict[str, None]] = {}
        """The groups that leaders have not confirmed to keep records for."""
        self.handed_over: dict[TopicPartition, str] = {}
        """Partitions whose new leader is not committed yet, by the broker that has handed over."""
        self.waiting: list[tuple[Ref, list[Placement], str | None]] = []
        """Requests to answer once all of these placements have an address, and all leaders keep
        records for this group."""

    def started(self) -> None:
        settings = self.settings
        leader_timeout_us = settings.controller_quorum_fetch_timeout_ms * 1_000
        times = RaftSettings(
            election_timeout_us=settings.controller_quorum_election_timeout_ms * 1_000,
            leader_timeout_us=leader_timeout_us,
            heartbeat_us=max(1, leader_timeout_us // HEARTBEATS),
            snapshot_parts=SNAPSHOT_PARTS,
        )
        self.image = self.empty_image()
        self.log = MetadataLog(self.effects, times, self.controllers, self)
        if self.on_disk:
            self.log.open_disk()
        else:
            self.log.open_memory(self.retained)
        check_us = settings.broker_session_timeout_ms * 1_000 // CHECKS_PER_SESSION
        self.every(check_us, BrokerLivenessCheck(), exactly=False)

    # The metadata log

    @receives(raft.RequestVote)  # type: ignore[arg-type]
    @receives(raft.RequestVoteAnswer)  # type: ignore[arg-type]
    @receives(raft.AppendEntries)  # type: ignore[arg-type]
    @receives(raft.AppendEntriesAnswer)  # type: ignore[arg-type]
    @receives(raft.InstallSnapshot)  # type: ignore[arg-type]
    @receives(raft.InstallSnapshotAnswer)  # type: ignore[arg-type]
    @receives(raft.TimeoutNow)  # type: ignore[arg-type]
    @receives(raft.Observe)
    def on_raft_message(self, message: raft.RaftMessage) -> None:
        self.log.receive(message)

    @receives(RaftTick)
    def on_raft_tick(self, tick: RaftTick) -> None:
        self.log.tick()

    @receives(FolderRead)
    def on_folder_read(self, read: FolderRead) -> None:
        self.log.on_folder_read(read)

    @receives(SnapshotDurable)
    def on_snapshot_durable(self, durable: SnapshotDurable) -> None:
        self.log.on_snapshot_durable(durable)

    @receives(GroupWritten)
    def on_group_written(self, written: GroupWritten) -> None:
        self.log.on_written(written)

    @receives(DiskFailed)
    def on_disk_failed(self, failed: DiskFailed) -> None:
        if failed.operation == "sync":
            self.record(kinds.STORAGE_FAILED, reason=f"{failed.file}: {failed.reason}")
            self.stop()
        else:
            self.log.on_failed(failed)

    @receives(RetryJournal)
    def on_retry_journal(self, retry: RetryJournal) -> None:
        self.log.retry()

    def apply(self, entry: Entry) -> None:
        """Make a change that the active controller has made."""
        self.image.apply(entry)

    def rebuild(self, entries: Iterable[Entry]) -> None:
        """Make the metadata again, of these changes."""
        self.image = self.empty_image()
        for entry in entries:
            self.image.apply(entry)

    def summarize(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Describe the metadata that these changes lead to."""
        image = self.empty_image()
        for entry in entries:
            image.apply(entry)
        return image.entries()

    def empty_image(self) -> MetadataImage:
        return MetadataImage(self.effects.find, self.code)

    def change(self, entry: Entry) -> None:
        """Make a change of the metadata, and put it into the log."""
        self.image.apply(entry)
        self.log.propose([entry])

    def activated(self) -> None:
        """Begin as the active controller, with what is not in the log as if it were new."""
        self.version = self.log.term * VERSIONS
        if self.image.process != self.process:
            self.change(("process", self.process))
        self.heard_us = dict.fromkeys(self.image.brokers, self.now)
        self.stopping, self.unreserved, self.handed_over, self.waiting = {}, {}, {}, []
        if self.log.term > 1 or len(self.controllers) > 1:
            self.record(kinds.CONTROLLER_CHANGED, epoch=self.log.term)
        brokers = self.image.brokers
        for partition, placement in self.image.leaders.items():
            if placement.previous is not None and placement.previous.node not in brokers:
                self.place(partition, previous=None)
            if placement.broker is not None and placement.broker not in brokers:
                self.elect_leader(partition)
            elif placement.ref is not None:
                self.order_reserve(partition)
            elif placement.broker is not None:
                self.after_commit(PlacementStored(partition, placement.epoch))
        for group, placement in self.image.coordinators.items():
            if placement.broker is not None and placement.broker not in brokers:
                self.place_coordinator(group)
            elif placement.broker is not None and placement.ref is None:
                self.after_commit(PlacementStored(group, placement.epoch))
        if brokers:
            self.place_unplaced()
        self.publish_metadata()

    def deactivated(self, unanswered: Iterable[Ref]) -> None:
        """Send those who wait for an answer to the active controller."""
        refer = NotController(self.log.leader)
        for asker in [*unanswered, *(asker for asker, _, _ in self.waiting)]:
            if asker is not self.ref:
                self.send(asker, refer)
        self.waiting = []

    # Metadata

    @receives(GetMetadata)
    @when_active
    def on_get_metadata(self, get: GetMetadata) -> None:
        self.log.promise(self.sender, self.metadata())

    def metadata(self) -> Metadata:
        image = self.image
        return Metadata(
            self.version,
            dict(image.topics),
            {
                tp: Leader(placement.ref, placement.broker, placement.epoch)
                for tp, placement in image.leaders.items()
            },
            {
                g: placement.ref
                for g, placement in image.coordinators.items()
                if placement.ref is not None
            },
            tuple(sorted(image.brokers)),
        )

    @receives(DescribeController)
    def on_describe(self, describe: DescribeController) -> None:
        log = self.log.raft
        assert log is not None
        view = ControllerView(
            self.ref.name, log.state.value, self.log.is_active, log.term, log.log.last_index
        )
        self.reply(view)

    # Producers

    @receives(InitProducer)
    @when_active
    def on_init_producer(self, init: InitProducer) -> None:
        asker, producer_id = self.sender.name, init.producer_id
        known = self.image.producers.get(producer_id)
        answer = None if known is None else known.answers.get(asker)
        if answer is None or answer.request < init.request:
            epoch = 0 if known is None else known.epoch + 1
            self.change(("producer", producer_id, epoch, asker, init.request))
            answer = self.image.producers[producer_id].answers[asker]
        if answer.request == init.request:
            self.log.promise(self.sender, answer)

    # Topics and groups

    @receives(CreateTopic)
    @when_active
    def on_create_topic(self, create: CreateTopic) -> None:
        image, name = self.image, create.topic.name
        if create.request in image.requests:
            self.await_partitions(name)
            self.answer_waiting(self.metadata())
        elif name in image.topics:
            self.refuse(f"topic {name!r} exists already")
        else:
            topic = attrs.evolve(create.topic, id=image.topic_ids + 1)
            self.change(image.topic_entry(topic, create.request))
            self.record(kinds.TOPIC_CREATED, topic=name, count=topic.partitions)
            self.place_partitions(name, range(topic.partitions))

    @receives(CreatePartitions)
    @when_active
    def on_add_partitions(self, add: CreatePartitions) -> None:
        image = self.image
        topic = image.topics.get(add.name)
        if add.request in image.requests:
            self.await_partitions(add.name)
            self.answer_waiting(self.metadata())
        elif topic is None:
            self.refuse(f"there is no topic {add.name!r}")
        elif add.partitions <= topic.partitions:
            has = f"topic {add.name!r} has {topic.partitions} partitions"
            self.refuse(f"{has}: expected more, not {add.partitions}")
        else:
            more = attrs.evolve(topic, partitions=add.partitions)
            self.change(image.topic_entry(more, add.request))
            self.record(kinds.PARTITIONS_ADDED, topic=add.name, count=add.partitions)
            self.place_partitions(add.name, range(topic.partitions, add.partitions))

    def refuse(self, reason: str) -> None:
        """Refuse a request, if what the refusal is based on holds."""
        tell = self.log.confirm if self.log.is_committed else self.log.promise
        tell(self.sender, RequestRefused(reason))

    def place_partitions(self, topic: str, numbers: range) -> None:
        """Elect leaders for new partitions; the request is answered when all have one."""
        for number in numbers:
            self.elect_leader(TopicPartition(topic, number))
        self.await_partitions(topic, numbers.start)
        self.publish_metadata()

    def await_partitions(self, topic: str, first: int = 0) -> None:
        """Answer the request when the partitions of a topic have leaders."""
        known = self.image.topics.get(topic)
        names = [] if known is None else partitions_of(topic, known.partitions)[first:]
        placements = [self.image.leaders[partition] for partition in names]
        self.waiting.append((self.sender, placements, None))

    @receives(DeleteTopic)
    @when_active
    def on_delete_topic(self, delete: DeleteTopic) -> None:
        image, name = self.image, delete.name
        if delete.request not in image.requests:
            if name not in image.topics:
                self.refuse(f"there is no topic {name!r}")
                return
            led = [(tp, each.broker) for tp, each in image.leaders.items() if tp.topic == name]
            self.change(("topic_deleted", name, delete.request))
            for partition, broker in led:
                self.unreserved.pop(partition, None)
                if broker is not None:
                    drop = Drop(partition, lost=False, term=self.log.term, deleted=True)
                    self.order(broker, drop)
            self.record(kinds.TOPIC_DELETED, topic=name)
            self.publish_metadata()
        self.log.promise(self.sender, RequestDone(self.metadata()))

    @receives(CreateGroup)
    @when_active
    def on_create_group(self, create: CreateGroup) -> None:
        image, name = self.image, create.name
        if create.request in image.requests:
            self.await_coordinator(name, reserved=True)
            self.answer_waiting(self.metadata())
        elif name in image.restored_groups:
            self.adopt_group(create)
        elif name in image.groups:
            self.refuse(f"group {name!r} exists already")
        else:
            config = with_assignor(create.config)
            entry = image.group_entry(config, create.reservation, self.now, create.request)
            self.change(entry)
            for partition in image.leaders:
                if partition.topic in config.topics:
                    self.order_reserve(partition)
            self.place_coordinator(name)
            self.await_coordinator(name, reserved=True)
            self.publish_metadata()

    def adopt_group(self, create: CreateGroup) -> None:
        """Go on with a group of an earlier process, with its generation and offsets."""
        image, name = self.image, create.name
        assignor = image.group_logs[name].assignor
        if create.config.assignor is None and isinstance(assignor, MissingAssignor):
            self.refuse(str(assignor))
            return
        config = with_assignor(create.config)
        reservation, created_us = image.reservations[name], image.created_us[name]
        self.change(image.group_entry(config, reservation, created_us, create.request))
        self.place_coordinator(name)
        self.await_coordinator(name, reserved=False)
        self.publish_metadata()

    def await_coordinator(self, group: str, *, reserved: bool) -> None:
        """Answer the request when a group has a coordinator, and leaders keep records for it."""
        placements = [self.image.coordinators[group]]
        self.waiting.append((self.sender, placements, group if reserved else None))

    def reservations_in(self, topic: str) -> tuple[Reservation, ...]:
        """What the partitions of a topic keep for groups that have no consumer yet."""
        return tuple(
            reservation
            for group, reservation in self.image.reservations.items()
            if topic in self.image.groups[group].topics
        )

    def order_reserve(self, partition: TopicPartition) -> None:
        """Have records kept for the groups of a topic, and remember to repeat the order.

        A partition without a leader has no records that could be removed: its next leader gets
        the reservations with the order to lead. A group that may have reached its time to live is
        left out, as its leader may have forgotten it.
        """
        placement = self.image.leaders[partition]
        reservations = tuple(
            each
            for each in self.reservations_in(partition.topic)
            if self.now - self.image.created_us[each.group] < each.ttl_us
        )
        if reservations and (placement.ref is not None or placement.previous is not None):
            self.unreserved[partition] = dict.fromkeys(each.group for each in reservations)
            if placement.ref is not None:
                self.log.promise(placement.ref, ReserveRecords(partition, reservations))

    @receives(RecordsReserved)
    @when_active
    def on_records_reserved(self, reserved: RecordsReserved) -> None:
        groups = self.unreserved.get(reserved.partition, {})
        for group in reserved.groups:
            groups.pop(group, None)
        self.answer_waiting(self.metadata())

    def publish_metadata(self) -> None:
        """Send the new metadata to all coordinators, and answer the requests that are fulfilled."""
        self.version += 1
        metadata = self.metadata()
        for placement in self.image.coordinators.values():
            if placement.ref is not None:
                self.log.promise(placement.ref, metadata)
        self.answer_waiting(metadata)

    def answer_waiting(self, metadata: Metadata) -> None:
        """Answer the requests that are fulfilled."""
        still_waiting = []
        for sender, placements, group in self.waiting:
            placed = all(placement.ref is not None for placement in placements)
            if placed and not any(group in groups for groups in self.unreserved.values()):
                self.log.promise(sender, RequestDone(metadata))
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
        load = {name: 0 for name in self.image.brokers if name not in self.stopping}
        for placement in placements.values():
            if placement.broker in load:
                load[placement.broker] += 1
        return load

    def order(self, broker: str | None, order: object) -> None:
        """Send a broker an order, if it is registered, once all changes so far are committed."""
        address = self.address(broker)
        if address is not None:
            self.log.promise(address, order)

    def address(self, broker: str | None) -> Ref | None:
        """The address of a broker, if it is registered."""
        known = None if broker is None else self.image.brokers.get(broker)
        return None if known is None else known.ref

    def place(self, partition: TopicPartition, **fields: object) -> None:
        """Change where a partition is led."""
        placement = attrs.evolve(self.image.leaders[partition], **fields)  # type: ignore[arg-type]
        self.change(partition_entry(partition, placement))

    def elect_leader(self, partition: TopicPartition) -> None:
        """Elect a leader for a partition, in a new epoch.

        It is the broker that leads the fewest. A partition on a disk waits for its own broker.
        """
        home = self.image.leaders[partition].home
        if home is None:
            broker = self.least_busy(self.image.leaders)
        else:
            broker = home if home in self.image.brokers else None
        self.unreserved.pop(partition, None)
        self.begin_election(partition, broker=broker)

    def begin_election(self, partition: TopicPartition, **fields: object) -> None:
        """Order a broker to lead in a new epoch, which no later controller uses again."""
        epoch = self.image.leaders[partition].epoch + 1
        self.place(partition, epoch=epoch, ref=None, **fields)
        self.after_commit(PlacementStored(partition, epoch))

    def after_commit(self, stored: PlacementStored | LeaderStored) -> None:
        """Go on once all changes so far are committed."""
        if not self.log.is_committed:
            self.log.promise(self.ref, stored)
        elif isinstance(stored, PlacementStored):
            self.on_placement_stored(stored)
        else:
            self.on_leader_stored(stored)

    @receives(PlacementStored)
    @when_active
    def on_placement_stored(self, stored: PlacementStored) -> None:
        name = stored.name
        if isinstance(name, TopicPartition):
            placement = self.image.leaders.get(name)
        else:
            placement = self.image.coordinators.get(name)
        if placement is None or placement.epoch != stored.epoch or placement.ref is not None:
            return
        if isinstance(name, TopicPartition):
            self.order_lead(name)
        else:
            self.order_coordinate(name)

    def order_lead(self, partition: TopicPartition) -> None:
        placement = self.image.leaders[partition]
        broker = self.address(placement.broker)
        if broker is None:
            return
        if placement.previous is not None:
            hand_over = HandOver(partition, broker, placement.epoch, self.log.term)
            self.log.promise(placement.previous, hand_over)
            return
        start = self.image.reserved[partition]
        lead = Lead(
            partition,
            self.image.topics[partition.topic],
            placement.epoch,
            start,
            start + RESERVE,
            self.addresses(),
            self.log.term,
            reservations=self.reservations_in(partition.topic),
        )
        self.log.promise(broker, lead)

    def addresses(self) -> tuple[Ref, ...]:
        """The addresses of all controllers."""
        found = map(self.effects.find, self.controllers)
        return tuple(ref for ref in found if ref is not None)

    @receives(Leading)
    @when_active
    def on_leading(self, leading: Leading) -> None:
        partition = leading.partition
        if not self.is_awaited(leading):
            return
        placement = self.image.leaders[partition]
        former, home, lost_before = placement.home, None, 0
        if placement.previous is not None:
            self.handed_over[partition] = placement.previous.node
        if self.on_disk:
            home = placement.broker
        elif placement.previous is None:
            lost_before = self.image.reserved[partition]
            self.change(("reserved", *partition, lost_before + RESERVE))
        self.place(partition, ref=leading.ref, previous=None, home=home)
        # The log names the leader, and the broker with the records, before clients learn of it.
        self.after_commit(LeaderStored(leading, former, lost_before))

    def is_awaited(self, leading: Leading) -> bool:
        """Whether a broker answers the last order to lead, and not one of an earlier controller."""
        placement = self.image.leaders.get(leading.partition)
        return (
            placement is not None
            and placement.epoch == leading.epoch
            and placement.ref is None
            and placement.broker == leading.ref.node
        )

    @receives(LeaderStored)
    @when_active
    def on_leader_stored(self, stored: LeaderStored) -> None:
        """Make a leader known that has the log of its partition."""
        leading, former, lost_before = stored.leading, stored.former, stored.lost_before
        self.handed_over.pop(leading.partition, None)
        placement = self.image.leaders.get(leading.partition)
        if placement is None or placement.ref is not leading.ref:
            return
        if former not in (None, placement.home):
            self.order(former, Drop(leading.partition, lost=False, term=self.log.term))
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
    @when_active
    def on_reserve(self, reserve: Reserve) -> None:
        placement = self.image.leaders.get(reserve.partition)
        if placement is not None and placement.epoch == reserve.epoch:
            if reserve.up_to > self.image.reserved[reserve.partition]:
                self.change(("reserved", *reserve.partition, reserve.up_to))
            up_to = self.image.reserved[reserve.partition]
            self.log.promise(self.sender, Reserved(up_to))

    def place_coordinator(self, group: str) -> None:
        """Place a group's coordinator on the broker that hosts the fewest."""
        broker = self.least_busy(self.image.coordinators)
        epoch = self.image.coordinators[group].epoch + 1
        self.change(coordinator_entry(group, Placement(broker, epoch)))
        self.after_commit(PlacementStored(group, epoch))

    def order_coordinate(self, group: str) -> None:
        image = self.image
        placement = image.coordinators[group]
        if placement.broker is not None:
            offsets = image.group_offsets[group]
            known = {tp: offset for tp, offset in offsets.items() if tp in image.leaders}
            state = attrs.evolve(image.group_logs[group], offsets=known)
            order = HostCoordinator(
                group, placement.epoch, image.groups[group], self.metadata(), state, self.log.term
            )
            self.order(placement.broker, order)

    @receives(GroupLogAppend)
    @when_active
    def on_group_log_append(self, append: GroupLogAppend) -> None:
        placement = self.image.coordinators.get(append.group)
        if placement is not None and placement.epoch == append.epoch:
            if append.generation is not None:
                self.change(self.image.generation_entry(append.group, append.generation))
            if append.offsets:
                changed = [(each.partition, each.offset) for each in append.offsets]
                self.change(offsets_entry(append.group, changed))
            self.log.promise(self.sender, GroupLogAppended(append.number))

    @receives(CoordinatorHosted)
    @when_active
    def on_coordinating(self, coordinating: CoordinatorHosted) -> None:
        placement = self.image.coordinators.get(coordinating.group)
        if (
            placement is not None
            and placement.epoch == coordinating.epoch
            and placement.ref is None
            and placement.broker == coordinating.ref.node
        ):
            hosted = attrs.evolve(placement, ref=coordinating.ref)
            self.change(coordinator_entry(coordinating.group, hosted))
            self.publish_metadata()
            self.release_stopping()

    # Brokers

    @receives(Register)
    @when_active
    def on_register(self, register: Register) -> None:
        name = register.broker
        known = self.image.brokers.get(name)
        is_new = known is None or known.session != register.session
        if is_new:
            if known is not None:
                self.remove_broker(name, "registered again")
            self.change(("broker", name, *register.session, self.image.broker_epochs + 1))
            self.record(kinds.BROKER_REGISTERED, peer=name)
        self.heard_us[name] = self.now
        self.log.promise(self.sender, self.alive(name, register.sent_us))
        if is_new:  # after the answer: a broker that is not registered obeys no orders
            self.place_unplaced()
            self.balance()
            self.publish_metadata()

    @receives(BrokerHeartbeat)
    @when_active
    def on_broker_heartbeat(self, beat: BrokerHeartbeat) -> None:
        known = self.image.brokers.get(beat.broker)
        if known is None or known.session != beat.session:
            self.log.confirm(self.sender, BrokerUnknown(beat.session, self.log.term))
        else:
            # A controller that is active no more must not renew leases: others take over when the
            # active one has not heard from the broker for as long.
            self.heard_us[beat.broker] = self.now
            self.log.confirm(self.sender, self.alive(beat.broker, beat.sent_us))
            if beat.wants_shutdown:
                self.drain(beat.broker)

    def alive(self, broker: str, sent_us: int) -> BrokerAlive:
        """The answer to a registered broker."""
        known = self.image.brokers[broker]
        return BrokerAlive(known.session, sent_us, known.epoch, self.log.term)

    def drain(self, broker: str) -> None:
        """Hand the partitions and coordinators of a stopping broker over to others, if any."""
        self.stopping[broker] = None
        for partition, placement in self.image.leaders.items():
            other = self.least_busy(self.image.leaders)
            if placement.broker == broker and placement.ref is not None and other is not None:
                self.move(partition, other)
        for group, placement in self.image.coordinators.items():
            if placement.broker == broker and self.least_busy(self.image.coordinators) is not None:
                self.place_coordinator(group)
        self.release_stopping()

    def release_stopping(self) -> None:
        """Let brokers stop that want to, and that have nothing left to hand over."""
        for name in list(self.stopping):
            placements = [*self.image.leaders.values(), *self.image.coordinators.values()]
            if name not in self.handed_over.values() and not any(
                placement.broker == name
                or (placement.previous is not None and placement.previous.node == name)
                for placement in placements
            ):
                del self.stopping[name]
                session = self.image.brokers[name].session
                address = self.address(name)
                self.change(("broker_removed", name))
                self.record(kinds.BROKER_UNREGISTERED, peer=name)
                assert address is not None
                self.log.promise(address, ShutdownAllowed(session, self.log.term))
                self.publish_metadata()

    @receives(BrokerLivenessCheck)
    @when_active
    def on_review(self, review: BrokerLivenessCheck) -> None:
        timeout_us = self.settings.broker_session_timeout_ms * 1_000
        for name in list(self.image.brokers):
            if self.now - self.heard_us[name] > timeout_us:
                self.remove_broker(name, "silent for the broker session timeout")
                self.publish_metadata()
        for partition, placement in self.image.leaders.items():
            if placement.ref is None:
                self.after_commit(PlacementStored(partition, placement.epoch))
            elif self.unreserved.get(partition):
                self.order_reserve(partition)
        for group, placement in self.image.coordinators.items():
            if placement.ref is None:
                self.after_commit(PlacementStored(group, placement.epoch))

    def remove_broker(self, broker: str, reason: str) -> None:
        """Remove a broker that is lost; the others take over its partitions and coordinators."""
        self.change(("broker_removed", broker))
        self.heard_us.pop(broker, None)
        self.stopping.pop(broker, None)
        self.record(kinds.BROKER_LOST, peer=broker, reason=reason)
        for partition, placement in self.image.leaders.items():
            if placement.previous is not None and placement.previous.node == broker:
                self.place(partition, previous=None)
            if placement.broker == broker or (placement.home == broker and placement.ref is None):
                self.elect_leader(partition)
        for group, placement in self.image.coordinators.items():
            if placement.broker == broker:
                self.place_coordinator(group)

    def place_unplaced(self) -> None:
        """Place everything that has had no broker so far."""
        for partition, placement in self.image.leaders.items():
            if placement.broker is None:
                self.elect_leader(partition)
        for group, placement in self.image.coordinators.items():
            if placement.broker is None:
                self.place_coordinator(group)

    def balance(self) -> None:
        """Move partitions from the brokers that lead most to those that lead fewest."""
        while True:
            load = self.load(self.image.leaders)
            # A partition that is being moved cannot be moved again: only brokers with a leader in
            # place can give one up.
            settled = {
                tp: placement.broker
                for tp, placement in self.image.leaders.items()
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
        previous = self.image.leaders[partition].ref
        self.begin_election(partition, broker=broker, previous=previous)
