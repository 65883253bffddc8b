"""A controller: decides which brokers have a partition, and which one leads it.

What it decides about brokers and partitions follows the rules of
model/consensus/replication_control.py; `PartitionDirector` carries them out. It also places the
coordinator of each group on the broker that has the fewest. The network may lose its orders to
brokers, so it repeats each one until it is answered; an order can be carried out twice without
harm.

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
from ...model.consensus.administration import plan_order
from ...model.consensus.effects import RaftSettings
from ...model.errors import BadValueError, WavetankError
from ...model.events import kinds
from ...model.messages.cluster import (
    Administer,
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    ClusterDescription,
    ControllerView,
    CoordinatorHosted,
    CreateGroup,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeCluster,
    DescribeController,
    ElectLeaders,
    GetMetadata,
    GroupConfig,
    HostCoordinator,
    InitProducer,
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
from ...model.messages.replication import AlterPartition, ReplicaLeads, ReplicaOrdersDone
from ...model.topics import partitions_of
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
)
from .metadata_log import MetadataLog, RaftTick
from .partition_director import ChangesCommitted, PartitionDirector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...model.consensus.stored_raft import StoredRaft
    from ...model.settings import ClusterSettings
    from ...model.topics import Topic, TopicPartition
    from ..engine.ref import Ref
    from .journal import Entry
    from .metadata_image import ProgramCode

M = TypeVar("M")

CHECKS_PER_SESSION: Final = 8
"""How often the controller looks for silent brokers within a broker session timeout, as Kafka's."""

PUBLISH_US: Final = 1_000
"""Time in which changes of the metadata are collected before coordinators hear of them."""
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
class LeaderImbalanceCheck:
    """Time to let preferred leaders lead again."""


@attrs.frozen
class PublishMetadata:
    """Time to send the metadata to coordinators."""


@attrs.frozen
class PlacementStored:
    """The epoch of a coordinator is committed: its broker can be given the order."""

    group: str
    """The group to coordinate."""
    epoch: int
    """Its epoch at that time."""


@attrs.define(eq=False)
class WaitingRequest:
    """A request that is answered once everything it asks for is there."""

    sender: Ref
    leaders: dict[TopicPartition, None] = attrs.Factory(dict)
    """Partitions whose leaders have not begun."""
    reserving: dict[TopicPartition, None] = attrs.Factory(dict)
    """Partitions whose leaders have not confirmed to keep records for the group."""
    group: str | None = None
    """The group whose coordinator is not there yet."""


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
    director: PartitionDirector

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
        self.published: Metadata | None = None
        """The metadata of this version, once somebody has asked."""
        self.publishing = False
        """Whether the timer for `PublishMetadata` is set."""
        self.unreserved: dict[TopicPartition, dict[str, None]] = {}
        """The groups that leaders have not confirmed to keep records for."""
        self.waiting: list[WaitingRequest] = []

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
        self.director = PartitionDirector(
            self.effects, settings, self.log, lambda: self.image, self.change_all,
            self.reservations_in,
        )  # fmt: skip
        if self.on_disk:
            self.log.open_disk()
        else:
            self.log.open_memory(self.retained)
        check_us = settings.broker_session_timeout_ms * 1_000 // CHECKS_PER_SESSION
        self.every(check_us, BrokerLivenessCheck(), exactly=False)
        if settings.auto_leader_rebalance_enable:
            interval_us = settings.leader_imbalance_check_interval_seconds * 1_000_000
            self.every(interval_us, LeaderImbalanceCheck(), exactly=False)

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
        unclean = self.settings.unclean_leader_election_enable
        return MetadataImage(self.effects.find, self.code, unclean=unclean)

    def change(self, entry: Entry) -> None:
        """Make a change of the metadata, and put it into the log."""
        self.change_all([entry])

    def change_all(self, entries: Iterable[Entry]) -> None:
        """Make changes of the metadata, and put them into the log: all of them, or none."""
        entries = list(entries)
        for entry in entries:
            self.image.apply(entry)
        self.log.propose(entries if len(entries) < 2 else [("all", *entries)])

    def activated(self) -> None:
        """Begin as the active controller. What is not in the log begins anew."""
        self.version = self.log.term * VERSIONS
        replication = self.image.replication
        self.unreserved, self.waiting = {}, []
        if self.log.term > 1 or len(self.controllers) > 1:
            self.record(kinds.CONTROLLER_CHANGED, epoch=self.log.term)
        if self.image.process != self.process:
            for name, broker in replication.brokers.items():
                if not broker.fenced:
                    self.change_all(replication.fence(name))
            self.change(("process", self.process))
        self.director.activated()
        for partition in replication.partitions:
            self.order_reserve(partition)
        for group, placement in self.image.coordinators.items():
            if placement.broker is not None and replication.brokers[placement.broker].fenced:
                self.place_coordinator(group)
        self.place_coordinators()
        self.repeat_orders()
        self.publish_metadata()

    def deactivated(self, unanswered: Iterable[Ref]) -> None:
        """Refer everybody who waits for an answer to the active controller."""
        refer = NotController(self.log.leader)
        for asker in [*unanswered, *(each.sender for each in self.waiting)]:
            if asker is not self.ref:
                self.send(asker, refer)
        self.waiting = []
        self.director.orders.clear()

    # Metadata

    @receives(GetMetadata)
    @when_active
    def on_get_metadata(self, get: GetMetadata) -> None:
        self.log.promise(self.sender, self.metadata())

    def metadata(self) -> Metadata:
        """The metadata for clients; made again only if something has changed."""
        if self.published is None:
            image = self.image
            leaders = {tp: self.director.leader(tp) for tp in image.replication.partitions}
            brokers = image.replication.brokers.values()
            self.published = Metadata(
                self.version,
                dict(image.topics),
                leaders,
                {
                    g: placement.ref
                    for g, placement in image.coordinators.items()
                    if placement.ref is not None
                },
                tuple(sorted(broker.name for broker in brokers if not broker.fenced)),
            )
        return self.published

    def publish_metadata(self) -> None:
        """Make new metadata known: to coordinators soon, to others when they ask."""
        self.version += 1
        self.published = None
        self.director.flush()
        if not self.publishing:
            self.publishing = True
            self.after(PUBLISH_US, PublishMetadata())

    @receives(PublishMetadata)
    def on_publish_metadata(self, publish: PublishMetadata) -> None:
        self.publishing = False
        if self.log.is_active:
            for placement in self.image.coordinators.values():
                if placement.ref is not None:
                    self.log.promise(placement.ref, self.metadata())

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
            self.await_leaders(name)
        elif name in image.topics:
            self.refuse(f"topic {name!r} exists already")
        else:
            topic = attrs.evolve(create.topic, id=image.topic_ids + 1)
            if self.place_partitions(topic, range(topic.partitions), create.request):
                self.record(kinds.TOPIC_CREATED, topic=name, count=topic.partitions)

    @receives(CreatePartitions)
    @when_active
    def on_add_partitions(self, add: CreatePartitions) -> None:
        image = self.image
        topic = image.topics.get(add.name)
        if add.request in image.requests:
            self.await_leaders(add.name)
        elif topic is None:
            self.refuse(f"there is no topic {add.name!r}")
        elif add.partitions <= topic.partitions:
            has = f"topic {add.name!r} has {topic.partitions} partitions"
            self.refuse(f"{has}: expected more, not {add.partitions}")
        else:
            more = attrs.evolve(topic, partitions=add.partitions)
            numbers = range(topic.partitions, add.partitions)
            if self.place_partitions(more, numbers, add.request):
                self.record(kinds.PARTITIONS_ADDED, topic=add.name, count=add.partitions)

    def refuse(self, reason: str) -> None:
        """Refuse a request, if what the refusal is based on holds."""
        tell = self.log.confirm if self.log.is_committed else self.log.promise
        tell(self.sender, RequestRefused(reason))

    def place_partitions(self, topic: Topic, numbers: range, request: int) -> bool:
        """Create partitions, and answer when all have leaders; return False if refused."""
        image = self.image
        try:
            entries = image.replication.create_partitions(
                topic.name, numbers, topic.replication_factor
            )
        except BadValueError as error:
            self.refuse(str(error))
            return False
        self.director.change([image.topic_entry(topic, request), *entries], "created")
        self.publish_metadata()
        self.await_leaders(topic.name)
        return True

    def await_leaders(self, topic: str) -> None:
        """Answer the request when all partitions of a topic have leaders."""
        known = self.image.topics.get(topic)
        partitions = [] if known is None else partitions_of(topic, known.partitions)
        replication = self.image.replication.partitions
        missing = [
            tp
            for tp in partitions
            if tp in self.director.beginning or replication[tp].leader is None
        ]
        self.waiting.append(WaitingRequest(self.sender, dict.fromkeys(missing)))
        self.answer_waiting()

    @receives(DeleteTopic)
    @when_active
    def on_delete_topic(self, delete: DeleteTopic) -> None:
        image, name = self.image, delete.name
        if delete.request not in image.requests:
            if name not in image.topics:
                self.refuse(f"there is no topic {name!r}")
                return
            for partition in partitions_of(name, image.topics[name].partitions):
                known = image.replication.partitions[partition]
                for broker in known.replicas:
                    self.director.orders.add(broker, [partition])
                self.director.beginning.pop(partition, None)
                self.unreserved.pop(partition, None)
            self.change(("topic_deleted", name, delete.request))
            self.record(kinds.TOPIC_DELETED, topic=name)
            self.publish_metadata()
        self.log.promise(self.sender, RequestDone(self.metadata()))

    @receives(CreateGroup)
    @when_active
    def on_create_group(self, create: CreateGroup) -> None:
        image, name = self.image, create.name
        if create.request in image.requests:
            self.await_coordinator(name, reserved=True)
        elif name in image.restored_groups:
            self.adopt_group(create)
        elif name in image.groups:
            self.refuse(f"group {name!r} exists already")
        else:
            config = with_assignor(create.config)
            entry = image.group_entry(config, create.reservation, self.now, create.request)
            self.change(entry)
            for topic in config.topics:
                known = image.topics.get(topic)
                for partition in [] if known is None else partitions_of(topic, known.partitions):
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
        reserving = [tp for tp, groups in self.unreserved.items() if reserved and group in groups]
        missing = group if self.image.coordinators[group].ref is None else None
        self.waiting.append(WaitingRequest(self.sender, {}, dict.fromkeys(reserving), missing))
        self.answer_waiting()

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
        reservations = tuple(
            each
            for each in self.reservations_in(partition.topic)
            if self.now - self.image.created_us[each.group] < each.ttl_us
        )
        ref = self.director.leader(partition).ref if reservations else None
        if ref is not None:
            self.unreserved[partition] = dict.fromkeys(each.group for each in reservations)
            self.log.promise(ref, ReserveRecords(partition, reservations))

    @receives(RecordsReserved)
    @when_active
    def on_records_reserved(self, reserved: RecordsReserved) -> None:
        partition = reserved.partition
        groups = self.unreserved.get(partition, {})
        for group in reserved.groups:
            groups.pop(group, None)
        if not groups:
            self.unreserved.pop(partition, None)
            for waiting in self.waiting:
                waiting.reserving.pop(partition, None)
            self.answer_waiting()

    def answer_waiting(self) -> None:
        """Answer the requests that are fulfilled."""
        still_waiting = []
        for each in self.waiting:
            if each.leaders or each.reserving or each.group is not None:
                still_waiting.append(each)
            else:
                self.log.promise(each.sender, RequestDone(self.metadata()))
        self.waiting = still_waiting

    # Orders of users about leaders, replicas and brokers

    @receives(DescribeCluster)
    @when_active
    def on_describe_cluster(self, describe: DescribeCluster) -> None:
        known = self.image.replication
        description = ClusterDescription(
            self.ref.name,
            self.log.term,
            known.brokers,
            known.topics,
            known.partitions,
            known.deletions,
        )
        self.log.confirm(self.sender, description)

    @receives(Administer)
    @when_active
    def on_administer(self, administer: Administer) -> None:
        order, beginning = administer.order, self.director.beginning
        if administer.request not in self.image.requests:
            try:
                entries = plan_order(self.image.replication, order)
            except WavetankError as error:
                self.refuse(str(error))
                return
            self.change(("request", administer.request))
            self.director.change(entries, "ordered by a user")
            self.director.release_leaving()
            self.publish_metadata()
        missing: list[TopicPartition] = []
        if isinstance(order, ElectLeaders):
            missing = [tp for tp in order.partitions or beginning if tp in beginning]
        self.waiting.append(WaitingRequest(self.sender, dict.fromkeys(missing)))
        self.answer_waiting()

    # Leaders

    @receives(ChangesCommitted)
    def on_changes_committed(self, committed: ChangesCommitted) -> None:
        self.director.record(committed)

    @receives(ReplicaOrdersDone)
    @when_active
    def on_replica_orders_done(self, done: ReplicaOrdersDone) -> None:
        self.director.orders.done(done)

    @receives(ReplicaLeads)
    @when_active
    def on_replica_leads(self, leads: ReplicaLeads) -> None:
        if self.director.on_leads(leads):
            self.order_reserve(leads.partition)
            self.publish_metadata()
            for waiting in self.waiting:
                waiting.leaders.pop(leads.partition, None)
            self.answer_waiting()
            self.release_stopping()

    @receives(AlterPartition)
    @when_active
    def on_alter_partition(self, alter: AlterPartition) -> None:
        if self.director.on_alter(alter, self.sender):
            self.continue_draining()
            self.director.release_leaving()
            self.publish_metadata()
        else:
            self.director.flush()

    @receives(Reserve)
    @when_active
    def on_reserve(self, reserve: Reserve) -> None:
        known = self.image.replication.partitions.get(reserve.partition)
        if known is not None and known.leader_epoch == reserve.epoch:
            if reserve.up_to > self.image.reserved.get(reserve.partition, 0):
                self.change(("reserved", *reserve.partition, reserve.up_to))
            up_to = self.image.reserved[reserve.partition]
            self.log.promise(self.sender, Reserved(up_to))

    @receives(LeaderImbalanceCheck)
    @when_active
    def on_leader_imbalance_check(self, check: LeaderImbalanceCheck) -> None:
        control = self.image.replication
        percentage = self.settings.leader_imbalance_per_broker_percentage
        for partitions in control.imbalance(percentage).values():
            if self.director.change(control.elect_preferred(partitions), "preferred leader"):
                self.publish_metadata()

    # Coordinators

    def least_busy(self) -> str | None:
        """The active broker that hosts the fewest coordinators."""
        brokers = self.image.replication.brokers.values()
        draining = self.director.draining
        load = {
            broker.name: 0 for broker in brokers if broker.is_active and broker.name not in draining
        }
        for placement in self.image.coordinators.values():
            if placement.broker in load:
                load[placement.broker] += 1
        return min(load, key=lambda broker: (load[broker], broker), default=None)

    def after_commit(self, stored: PlacementStored) -> None:
        """Go on once all changes so far are committed."""
        if self.log.is_committed:
            self.on_placement_stored(stored)
        else:
            self.log.promise(self.ref, stored)

    @receives(PlacementStored)
    @when_active
    def on_placement_stored(self, stored: PlacementStored) -> None:
        placement = self.image.coordinators.get(stored.group)
        if placement is not None and placement.epoch == stored.epoch and placement.ref is None:
            self.order_coordinate(stored.group)

    def addresses(self) -> tuple[Ref, ...]:
        """The addresses of all controllers."""
        found = map(self.effects.find, self.controllers)
        return tuple(ref for ref in found if ref is not None)

    def place_coordinator(self, group: str) -> None:
        """Place a group's coordinator on the broker that hosts the fewest."""
        broker = self.least_busy()
        epoch = self.image.coordinators[group].epoch + 1
        self.change(coordinator_entry(group, Placement(broker, epoch)))
        self.after_commit(PlacementStored(group, epoch))

    def order_coordinate(self, group: str) -> None:
        image = self.image
        placement = image.coordinators[group]
        ref = None if placement.broker is None else self.effects.find(placement.broker)
        if ref is not None:
            offsets = image.group_offsets[group]
            partitions = image.replication.partitions
            known = {tp: offset for tp, offset in offsets.items() if tp in partitions}
            state = attrs.evolve(image.group_logs[group], offsets=known)
            order = HostCoordinator(
                group, placement.epoch, image.groups[group], self.metadata(), state, self.log.term
            )
            self.log.promise(ref, order)

    @receives(GroupLogAppend)
    @when_active
    def on_group_log_append(self, append: GroupLogAppend) -> None:
        placement = self.image.coordinators.get(append.group)
        if placement is not None and placement.epoch == append.epoch:
            if append.generation is not None:
                self.change(self.image.generation_entry(append.group, append.generation))
            if append.offsets:
                changed = [(each.partition, each.offset) for each in append.offsets]
                self.change(offsets_entry(append.group, changed, append.number))
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
            for waiting in self.waiting:
                if waiting.group == coordinating.group:
                    waiting.group = None
            self.answer_waiting()
            self.release_stopping()

    # Brokers

    @receives(Register)
    @when_active
    def on_register(self, register: Register) -> None:
        name = register.broker
        is_new = self.director.register(name, register.life, register.rack)
        # It has to know its epoch before it gets orders.
        self.log.promise(self.sender, self.alive(name, register.sent_us))
        if is_new:
            # The coordinators of its earlier process are gone.
            self.replace_coordinators(name)
            self.place_coordinators()
            self.continue_draining()
            self.publish_metadata()

    @receives(BrokerHeartbeat)
    @when_active
    def on_broker_heartbeat(self, beat: BrokerHeartbeat) -> None:
        known = self.image.replication.brokers.get(beat.broker)
        if known is None and beat.wants_shutdown:  # it was removed, and must not register again
            self.log.promise(self.sender, ShutdownAllowed(beat.epoch, self.log.term))
            return
        if known is None or known.epoch != beat.epoch:
            self.log.confirm(self.sender, BrokerUnknown(beat.epoch, self.log.term))
            return
        if known.fenced and known.stopping:
            # It was allowed to stop, or was lost meanwhile; the message may not have arrived.
            self.log.promise(self.sender, ShutdownAllowed(known.epoch, self.log.term))
            return
        if self.director.has_lost_lease(beat) and not known.fenced:
            self.fence(beat.broker, "its lease has ended")
            known = self.image.replication.brokers[beat.broker]
        if known.fenced:
            self.director.heard(beat.broker)
            self.place_coordinators()
            self.continue_draining()
            self.publish_metadata()
        # A controller that is active no more must not renew leases: others take over when the
        # active one has not heard from the broker for as long.
        self.director.heard_us[beat.broker] = self.now
        self.log.confirm(self.sender, self.alive(beat.broker, beat.sent_us))
        if beat.wants_shutdown:
            self.drain(beat.broker)

    def alive(self, broker: str, sent_us: int) -> BrokerAlive:
        """The answer to a registered broker."""
        known = self.image.replication.brokers[broker]
        return BrokerAlive(known.life, sent_us, known.epoch, self.log.term)

    def drain(self, broker: str) -> None:
        """Let other brokers have what a stopping one leads and coordinates, if there are any."""
        self.director.drain(broker)
        self.replace_coordinators(broker)
        self.publish_metadata()
        self.release_stopping()

    def continue_draining(self) -> None:
        """Go on with brokers that want to stop, as others may have what they have by now."""
        for name in list(self.director.draining):
            self.drain(name)

    def replace_coordinators(self, broker: str) -> None:
        """Place the coordinators of a broker on others, if there are any."""
        other = self.least_busy()
        for group, placement in self.image.coordinators.items():
            if placement.broker == broker and other is not None:
                self.place_coordinator(group)

    def release_stopping(self) -> None:
        """Let brokers stop that want to, and that have nothing left that others could have."""
        control = self.image.replication
        others = any(broker.is_active for broker in control.brokers.values())
        for name, broker in list(control.brokers.items()):
            hosts = any(each.broker == name for each in self.image.coordinators.values())
            if broker.stopping and not broker.fenced and self.director.may_stop(name):
                if hosts and others:
                    continue
                self.director.fence(name, "controlled shutdown")
                self.record(kinds.BROKER_UNREGISTERED, peer=name)
                ref = self.effects.find(name)
                if ref is not None:
                    self.log.promise(ref, ShutdownAllowed(broker.epoch, self.log.term))
                self.publish_metadata()
        self.director.release_leaving()

    @receives(BrokerLivenessCheck)
    @when_active
    def on_review(self, review: BrokerLivenessCheck) -> None:
        for name in self.director.silent():
            reason = "silent for the broker session timeout"
            self.fence(name, reason)
            self.publish_metadata()
        for partition in list(self.unreserved):
            self.order_reserve(partition)
        self.director.release_leaving()
        self.repeat_orders()

    def fence(self, name: str, reason: str) -> None:
        """Let other brokers have what a lost one leads and coordinates."""
        self.record(kinds.BROKER_LOST, peer=name, reason=reason)
        self.director.fence(name, reason)
        for group, placement in self.image.coordinators.items():
            if placement.broker == name:
                self.place_coordinator(group)

    def repeat_orders(self) -> None:
        """Repeat the orders that were not answered."""
        check_us = self.settings.broker_session_timeout_ms * 1_000 // CHECKS_PER_SESSION
        self.director.repeat(self.now - check_us // 2)
        for group, placement in self.image.coordinators.items():
            if placement.ref is None:
                self.after_commit(PlacementStored(group, placement.epoch))

    def place_coordinators(self) -> None:
        """Place the coordinators that have had no broker so far."""
        for group, placement in self.image.coordinators.items():
            if placement.broker is None:
                self.place_coordinator(group)
