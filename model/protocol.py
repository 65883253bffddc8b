"""The messages between controller, brokers and whoever asks for topics, groups and metadata.

Addresses are whatever the engines use: this room knows no actor, so they are typed as `Address`.
Clients keep the metadata they got, and ask again when a leader turns out not to be one.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from .topics import Topic, TopicPartition

Address: TypeAlias = Any

# Metadata: who leads what. Clients ask the controller, keep the answer, and ask again when a
# leader turns out not to be one.


@attrs.frozen
class Leader:
    """Who leads a partition."""

    ref: Address | None
    """The partition's actor; None while it has no broker."""
    broker: str | None
    epoch: int
    """Goes up with each new leader."""


@attrs.frozen
class Metadata:
    """The cluster as the controller sees it."""

    version: int
    topics: Mapping[str, Topic]
    leaders: Mapping[TopicPartition, Leader]
    coordinators: Mapping[str, Address]
    """The coordinator of each group that has one now."""
    brokers: tuple[str, ...]

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; none if there is no such topic."""
        return self.topics[topic].partitions if topic in self.topics else 0


@attrs.frozen
class GetMetadata:
    """Asks the controller for the metadata."""


@attrs.frozen
class InitProducer:
    """Asks the controller for an epoch: whoever produced under this id before is out."""

    request: int
    """The asker's life: however often it asks, it gets one epoch in each."""
    producer_id: str


@attrs.frozen
class ProducerEpoch:
    """The epoch in which to produce."""

    request: int
    producer_id: str
    epoch: int


# Administration: the outside asks the controller.


@attrs.frozen
class GroupConfig:
    """What a group is made with."""

    name: str
    topics: tuple[str, ...]
    assignor: Any
    """A name or a function."""
    initial_delay_ms: int


@attrs.frozen
class CreateTopic:
    """Asks for a new topic."""

    topic: Topic


@attrs.frozen
class DeleteTopic:
    """Asks to remove a topic and all its records."""

    name: str


@attrs.frozen
class AddPartitions:
    """Asks to raise a topic's number of partitions."""

    name: str
    partitions: int


@attrs.frozen
class CreateGroup:
    """Asks for a group's coordinator."""

    name: str
    config: GroupConfig


@attrs.frozen
class Done:
    """It is done; the metadata shows it."""

    metadata: Metadata


@attrs.frozen
class Refused:
    """It is not, and why."""

    reason: str


# Brokers and the controller


@attrs.frozen
class Register:
    """A broker that leads nothing offers itself."""

    broker: str
    session: tuple[int, int]
    """Its life, and how often it has offered itself in it: another session, an empty broker."""
    sent_us: int


@attrs.frozen
class BrokerHeartbeat:
    """A broker is alive."""

    broker: str
    session: tuple[int, int]
    sent_us: int
    """On the broker's clock: the answer repeats it."""


@attrs.frozen
class BrokerAlive:
    """The controller has heard a broker and counts on it."""

    session: tuple[int, int]
    sent_us: int


@attrs.frozen
class BrokerUnknown:
    """The controller does not count on the broker, or not in this session: register anew."""

    session: tuple[int, int]


@attrs.frozen
class Reserve:
    """A leader asks for offsets ahead of need: nobody else will ever give these to a record."""

    partition: TopicPartition
    epoch: int
    up_to: int


@attrs.frozen
class Reserved:
    """All offsets below this are the leader's."""

    up_to: int


@attrs.frozen
class Lead:
    """Makes a broker the leader of a partition."""

    partition: TopicPartition
    topic: Topic
    epoch: int
    start_offset: int
    reserved: int
    """Below this it may give offsets to records."""
    controller: Address
    state: Any = None
    """The log and the cursors of the leader before, when it could hand them over."""


@attrs.frozen
class Leading:
    """A broker leads a partition; clients find it at this address."""

    partition: TopicPartition
    epoch: int
    ref: Address


@attrs.frozen
class HandOver:
    """Tells a broker to pass a partition on to another one."""

    partition: TopicPartition
    to: Address
    epoch: int


@attrs.frozen
class Drop:
    """Tells a partition to end: its topic was removed, or its broker may not lead any more."""

    partition: TopicPartition
    lost: bool
    """Whether its records are missed."""


@attrs.frozen
class Coordinate:
    """Makes a broker the home of a group's coordinator."""

    group: str
    epoch: int
    """Counts the homes that the coordinator has had."""
    config: GroupConfig
    metadata: Metadata


@attrs.frozen
class Coordinating:
    """A broker has the coordinator of a group; members find it at this address."""

    group: str
    epoch: int
    ref: Address


@attrs.frozen
class Retire:
    """Tells a coordinator to end."""
