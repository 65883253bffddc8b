"""Messages of the controller: with brokers, with clients, and with users who manage the cluster."""

from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from ..consensus.registration import BrokerRegistration, PartitionRegistration
from ..topics import Topic, TopicPartition
from .address import Address
from .group import StoredGroup
from .mappings import read_only

# Metadata. Clients keep the controller's answer, and ask again when a partition's leader refuses.


@attrs.frozen
class Leader:
    """The leader of a partition."""

    ref: Address | None
    """Address of the partition's actor; `None` while the partition has no leader."""
    broker: str | None
    """Name of the broker it is on."""
    epoch: int
    """Leader epoch: goes up with each new leader."""


@attrs.frozen
class Metadata:
    """The cluster as the controller knows it."""

    version: int
    """Goes up with each change."""
    topics: MappingProxyType[str, Topic] = attrs.field(converter=read_only)
    """All topics by name."""
    leaders: MappingProxyType[TopicPartition, Leader] = attrs.field(converter=read_only)
    """Leader of each partition."""
    coordinators: MappingProxyType[str, Address] = attrs.field(converter=read_only)
    """Address of the coordinator of each group that has one at present."""
    brokers: tuple[str, ...]
    """Names of the registered brokers, sorted."""

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if there is no such topic."""
        return self.topics[topic].partitions if topic in self.topics else 0


@attrs.frozen
class GetMetadata:
    """Asks the controller for its `Metadata`."""


@attrs.frozen
class InitProducer:
    """Asks the controller for a producer epoch; older producers with the same id are fenced."""

    request: int
    """Number of the producer's life. Asked again within a life, the answer is the same epoch."""
    producer_id: str
    """Id of the producer."""


@attrs.frozen
class ProducerEpoch:
    """The answer to `InitProducer`."""

    request: int
    """Number of the request."""
    producer_id: str
    """Id of the producer."""
    epoch: int
    """Epoch to produce with."""


@attrs.frozen
class NotController:
    """The answer of a controller that is not active to whatever it is asked."""

    active: Address | None
    """The active controller; `None` if it is not known."""


@attrs.frozen
class DescribeController:
    """Asks a controller, active or not, for its `ControllerView`."""


@attrs.frozen
class ControllerView:
    """A controller as `describe` shows it."""

    name: str
    """Name of the controller."""
    state: str
    """Its state in Raft, such as Leader or Follower; that of its node if that is not up."""
    is_active: bool = False
    """Whether it is the active controller, as far as it knows."""
    term: int = 0
    """The term that it is in."""
    last_index: int = 0
    """Number of entries that its log has had so far."""


# Administration: users ask the controller. A request that is repeated is carried out once.


@attrs.frozen
class GroupConfig:
    """The configuration of a consumer group."""

    name: str
    """Name of the group."""
    topics: tuple[str, ...]
    """Topics that its members subscribe to unless they choose others."""
    assignor: Any
    """The assignor: a name or a function; `None` for the default."""
    initial_delay_ms: int
    """Time to wait for more members before the first rebalance of an empty group."""


@attrs.frozen
class Reservation:
    """What a partition keeps for a group that exists and has no consumer there yet."""

    group: str
    """Name of the group."""
    start: str
    """The first record to keep: "earliest" for the first one there is; "unconsumed" for the first
    one that no group has consumed; otherwise the next one that is appended."""
    ttl_us: int
    """The records are kept for this long at most."""


@attrs.frozen
class CreateTopic:
    """Asks the controller to create a topic.

    Answered by `RequestDone` or `RequestRefused`.
    """

    request: int
    """Number of the request."""
    topic: Topic
    """The topic."""


@attrs.frozen
class DeleteTopic:
    """Asks the controller to delete a topic and its records.

    Answered by `RequestDone` or `RequestRefused`.
    """

    request: int
    """Number of the request."""
    name: str
    """Name of the topic."""


@attrs.frozen
class CreatePartitions:
    """Asks the controller to add partitions to a topic.

    Answered by `RequestDone` or `RequestRefused`.
    """

    request: int
    """Number of the request."""
    name: str
    """Name of the topic."""
    partitions: int
    """Number of partitions it is to have."""


@attrs.frozen
class ElectLeaders:
    """An order to elect leaders."""

    partitions: tuple[TopicPartition, ...] | None
    """The partitions that their preferred leaders are to lead; `None` for all where they can."""
    unclean: bool = False
    """Whether any replica may lead, in or out of sync, in place of the preferred leader. The
    partitions have to be without a leader."""


@attrs.frozen
class ReassignPartition:
    """An order to move a partition to other brokers."""

    partition: TopicPartition
    """The partition."""
    brokers: tuple[str, ...] | None
    """The brokers that are to have a replica, the preferred leader first; `None` cancels the
    reassignment that is under way."""
    throttle: int | None = None
    """Bytes per second for replicas that are not in sync; `None` for no limit."""


@attrs.frozen
class RemoveBroker:
    """An order to remove a broker for good."""

    broker: str
    """Name of the broker."""


AdminOrder: TypeAlias = ElectLeaders | ReassignPartition | RemoveBroker
"""What users order about leaders, replicas and brokers (model/consensus/administration.py)."""


@attrs.frozen
class Administer:
    """Gives the controller an order. Answered when it has begun, or when elected leaders lead.

    Answered by `RequestDone` or `RequestRefused`.
    """

    request: int
    """Number of the request."""
    order: AdminOrder
    """The order."""


@attrs.frozen
class DescribeCluster:
    """Asks the active controller for a `ClusterDescription`."""


@attrs.frozen
class ClusterDescription:
    """Brokers and replicas as the active controller knows them."""

    controller: str
    """Name of the active controller."""
    term: int
    """The term in which it is active."""
    brokers: MappingProxyType[str, BrokerRegistration] = attrs.field(converter=read_only)
    """The registered brokers by name."""
    topics: MappingProxyType[str, Topic] = attrs.field(converter=read_only)
    """All topics by name."""
    partitions: MappingProxyType[TopicPartition, PartitionRegistration] = attrs.field(
        converter=read_only
    )
    """All partitions."""
    deletions: MappingProxyType[str, int] = attrs.field(converter=read_only)
    """How often a topic of a name was deleted."""


@attrs.frozen
class CreateGroup:
    """Asks the controller for a group coordinator.

    Answered by `RequestDone` or `RequestRefused`.
    """

    request: int
    """Number of the request."""
    name: str
    """Name of the group."""
    config: GroupConfig
    """Configuration of the group."""
    reservation: Reservation
    """What partitions keep for the group until it has a consumer."""


@attrs.frozen
class RequestDone:
    """The request is fulfilled."""

    metadata: Metadata
    """The metadata after the change."""


@attrs.frozen
class RequestRefused:
    """The request is refused."""

    reason: str
    """The reason, as a text for people."""


# Brokers and the controller. Orders carry the term in which the controller is active: a broker
# ignores those of an older term than it has seen, whose controller is active no more.


@attrs.frozen
class Register:
    """Registers a process of a broker. Answered by `BrokerAlive`."""

    broker: str
    """Name of the broker."""
    life: int
    """Number of the process: its node has been started so often."""
    rack: str | None
    """The rack it stands in."""
    sent_us: int
    """Time of sending, on the broker's clock."""


@attrs.frozen
class BrokerHeartbeat:
    """Tells the controller that a broker is alive. Answered by `BrokerAlive` or `BrokerUnknown`."""

    broker: str
    """Name of the broker."""
    epoch: int
    """Epoch of the broker."""
    sent_us: int
    """Time of sending, on the broker's clock."""
    wants_shutdown: bool
    """Whether the broker wants to stop, once others lead what they can."""
    lost_leases: int = 0
    """How many leases have ended, if the controllers may not know of the last one; else 0. Others
    have to coordinate the broker's groups then, as if it were fenced (KIP-631)."""


@attrs.frozen
class ShutDown:
    """Tells a broker to stop in an orderly way: a controlled shutdown."""


@attrs.frozen
class ShutdownAllowed:
    """A broker that wants to stop leads nothing any more that others could lead."""

    epoch: int
    """Epoch of the broker."""
    term: int
    """Term of the controller."""


@attrs.frozen
class BrokerAlive:
    """The broker is registered. Its lease lasts for its session timeout after `sent_us`."""

    life: int
    """Number of the process that is registered."""
    sent_us: int
    """Time of sending of the message that this answers, on the broker's clock."""
    epoch: int
    """Epoch of the broker: higher than that of all registrations before."""
    term: int
    """Term of the controller."""


@attrs.frozen
class BrokerUnknown:
    """The broker is not registered, or not with this epoch: it has to register anew."""

    epoch: int
    """Epoch of the broker, as in the heartbeat."""
    term: int
    """Term of the controller."""


@attrs.frozen
class Reserve:
    """Asks for a range of offsets that no later leader will give to other records."""

    partition: TopicPartition
    """The partition."""
    epoch: int
    """Epoch of its leader."""
    up_to: int
    """End of the offsets to reserve."""


@attrs.frozen
class Reserved:
    """The answer to `Reserve`."""

    up_to: int
    """End of the offsets that the leader may use."""


@attrs.frozen
class ReserveRecords:
    """Makes a leader keep records for groups. Answered by `RecordsReserved`."""

    partition: TopicPartition
    """The partition."""
    reservations: tuple[Reservation, ...]
    """The groups of its topic. The leader knows most of them already."""


@attrs.frozen
class RecordsReserved:
    """A leader keeps records for these groups."""

    partition: TopicPartition
    """The partition."""
    groups: tuple[str, ...]
    """Names of the groups."""


@attrs.frozen
class Drop:
    """Tells a replica to end: its broker is to have none of the partition any more."""

    partition: TopicPartition
    """The partition."""
    lost: bool
    """Whether to record the records as lost."""
    deleted: bool = False
    """Whether the topic was deleted, so that its external payloads are not needed any more."""


@attrs.frozen
class StorageFailed:
    """Tells a broker that its disk cannot be relied on any more: it has to stop."""

    reason: str
    """What has failed."""


@attrs.frozen
class HostCoordinator:
    """Makes a broker host a group's coordinator. Answered by `CoordinatorHosted`."""

    group: str
    """Name of the group."""
    epoch: int
    """Goes up each time the coordinator is placed on a broker."""
    config: GroupConfig
    """Configuration of the group."""
    metadata: Metadata
    """Metadata of the cluster."""
    state: StoredGroup
    """The group as its log has it: a new coordinator goes on from there."""
    term: int
    """Term of the controller."""


@attrs.frozen
class CoordinatorHosted:
    """A broker hosts a group's coordinator."""

    group: str
    """Name of the group."""
    epoch: int
    """Epoch of the coordinator, as in `HostCoordinator`."""
    ref: Address
    """Address of the coordinator."""


@attrs.frozen
class Retire:
    """Tells a coordinator to stop: its broker may not host it any more."""
