"""The controller: which broker leads which partition, and is home to which group's coordinator.

It places what is new where there is least, takes over what a lost broker led, and moves partitions
to a broker that joins. All its orders can be given twice and are, until they are answered: the
network may lose them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..model import kinds
from ..model.protocol import (
    AddPartitions,
    BrokerAlive,
    BrokerHeartbeat,
    BrokerUnknown,
    Coordinate,
    Coordinating,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    Done,
    Drop,
    GetMetadata,
    GroupConfig,
    HandOver,
    InitProducer,
    Lead,
    Leader,
    Leading,
    Metadata,
    ProducerEpoch,
    Refused,
    Register,
    Reserve,
    Reserved,
)
from ..model.topics import Topic, TopicPartition
from .actor import Actor, receives
from .partition import RESERVE

if TYPE_CHECKING:
    from ..model.settings import ClusterSettings
    from .ref import Ref


@attrs.frozen
class Review:
    """Time to see who has been silent, and to repeat orders that were not answered."""


@attrs.define
class BrokerState:
    """What the controller knows of a broker it counts on."""

    ref: Ref
    session: tuple[int, int]
    heard_us: int


@attrs.define
class Seat:
    """Where something lives: a partition's leader, or a group's coordinator."""

    broker: str | None = None
    epoch: int = -1
    ref: Ref | None = None
    """None until the broker has answered."""
    previous: Ref | None = None
    """The leader before, which is to hand over what it has."""


@attrs.define
class ProducerId:
    """An id and those who have produced under it."""

    epoch: int = -1
    """The latest."""
    holders: dict[Ref, ProducerEpoch] = attrs.Factory(dict)
    """What each was told last: who asks again was not told, and gets nothing newer for it."""


class Controller(Actor):
    """The broker leader of a cluster."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.version = 0
        self.brokers: dict[str, BrokerState] = {}
        self.topics: dict[str, Topic] = {}
        self.leaders: dict[TopicPartition, Seat] = {}
        self.reserved: dict[TopicPartition, int] = {}
        self.retired: dict[TopicPartition, int] = {}
        """The last epochs of deleted partitions: a new topic of that name goes on from there."""
        self.groups: dict[str, GroupConfig] = {}
        self.coordinators: dict[str, Seat] = {}
        self.producers: dict[str, ProducerId] = {}
        self.waiting: list[tuple[Ref, list[Seat]]] = []
        """Who is to be told once all of these have been taken."""

    def started(self) -> None:
        self.every(self.settings.broker_heartbeat_interval_ms * 1_000, Review())

    # Metadata

    @receives(GetMetadata)
    def on_get_metadata(self, get: GetMetadata) -> None:
        self.reply(self.metadata())

    def metadata(self) -> Metadata:
        return Metadata(
            self.version,
            dict(self.topics),
            {tp: Leader(seat.ref, seat.broker, seat.epoch) for tp, seat in self.leaders.items()},
            {g: seat.ref for g, seat in self.coordinators.items() if seat.ref is not None},
            tuple(sorted(self.brokers)),
        )

    # Producers

    @receives(InitProducer)
    def on_init_producer(self, init: InitProducer) -> None:
        known = self.producers.setdefault(init.producer_id, ProducerId())
        told = known.holders.get(self.sender)
        if told is None or told.request < init.request:
            known.epoch += 1
            told = ProducerEpoch(init.request, init.producer_id, known.epoch)
            known.holders[self.sender] = told
        if told.request == init.request:
            self.reply(told)

    # Topics and groups

    @receives(CreateTopic)
    def on_create_topic(self, create: CreateTopic) -> None:
        topic = create.topic
        if topic.name in self.topics:
            self.reply(Refused(f"topic {topic.name!r} exists already"))
            return
        self.topics[topic.name] = topic
        self.record(kinds.TOPIC_CREATED, topic=topic.name, count=topic.partitions)
        self.place(topic.name, range(topic.partitions))

    @receives(AddPartitions)
    def on_add_partitions(self, add: AddPartitions) -> None:
        topic = self.topics.get(add.name)
        if topic is None:
            self.reply(Refused(f"there is no topic {add.name!r}"))
        elif add.partitions <= topic.partitions:
            has = f"topic {add.name!r} has {topic.partitions} partitions"
            self.reply(Refused(f"{has}: expected more, not {add.partitions}"))
        else:
            self.topics[add.name] = attrs.evolve(topic, partitions=add.partitions)
            self.record(kinds.PARTITIONS_ADDED, topic=add.name, count=add.partitions)
            self.place(add.name, range(topic.partitions, add.partitions))

    def place(self, topic: str, numbers: range) -> None:
        """Find leaders for new partitions, and answer whoever asked once there are all."""
        new = [TopicPartition(topic, number) for number in numbers]
        for partition in new:
            self.leaders[partition] = Seat(epoch=self.retired.get(partition, -1))
            self.reserved[partition] = 0
            self.appoint(partition)
        self.waiting.append((self.sender, [self.leaders[partition] for partition in new]))
        self.changed()

    @receives(DeleteTopic)
    def on_delete_topic(self, delete: DeleteTopic) -> None:
        if self.topics.pop(delete.name, None) is None:
            self.reply(Refused(f"there is no topic {delete.name!r}"))
            return
        for partition in [tp for tp in self.leaders if tp.topic == delete.name]:
            seat = self.leaders.pop(partition)
            self.retired[partition] = seat.epoch
            del self.reserved[partition]
            if seat.broker is not None:
                self.send(self.brokers[seat.broker].ref, Drop(partition, lost=False))
        self.record(kinds.TOPIC_DELETED, topic=delete.name)
        self.changed()
        self.reply(Done(self.metadata()))

    @receives(CreateGroup)
    def on_create_group(self, create: CreateGroup) -> None:
        if create.name in self.groups:
            self.reply(Refused(f"group {create.name!r} exists already"))
            return
        self.groups[create.name] = create.config
        self.coordinators[create.name] = Seat()
        self.house(create.name)
        self.waiting.append((self.sender, [self.coordinators[create.name]]))
        self.changed()

    def changed(self) -> None:
        """Let coordinators know, and answer those whose wishes have come true."""
        self.version += 1
        metadata = self.metadata()
        for seat in self.coordinators.values():
            if seat.ref is not None:
                self.send(seat.ref, metadata)
        still_waiting = []
        for asker, seats in self.waiting:
            if all(seat.ref is not None for seat in seats):
                self.send(asker, Done(metadata))
            else:
                still_waiting.append((asker, seats))
        self.waiting = still_waiting

    # Appointing: who leads, who is home to a coordinator

    def least_busy(self, seats: dict[TopicPartition, Seat] | dict[str, Seat]) -> str | None:
        load = self.load(seats)
        return min(load, key=lambda broker: (load[broker], broker), default=None)

    def load(self, seats: dict[TopicPartition, Seat] | dict[str, Seat]) -> dict[str, int]:
        load = dict.fromkeys(self.brokers, 0)
        for seat in seats.values():
            if seat.broker in load:
                load[seat.broker] += 1
        return load

    def appoint(self, partition: TopicPartition) -> None:
        """Give a partition a new leader that begins where its last one has left off."""
        seat = self.leaders[partition]
        seat.broker = self.least_busy(self.leaders)
        seat.epoch += 1
        seat.ref = None
        self.order_lead(partition)

    def order_lead(self, partition: TopicPartition) -> None:
        seat = self.leaders[partition]
        if seat.broker is None:
            return
        broker = self.brokers[seat.broker].ref
        if seat.previous is not None:
            self.send(seat.previous, HandOver(partition, broker, seat.epoch))
            return
        start = self.reserved[partition]
        lead = Lead(
            partition, self.topics[partition.topic], seat.epoch, start, start + RESERVE, self.ref
        )
        self.send(broker, lead)

    @receives(Leading)
    def on_leading(self, leading: Leading) -> None:
        seat = self.leaders.get(leading.partition)
        if seat is None or seat.epoch != leading.epoch or seat.ref is not None:
            return
        if seat.previous is None:
            self.reserved[leading.partition] += RESERVE
        seat.ref, seat.previous = leading.ref, None
        self.record(
            kinds.LEADER_CHANGED,
            topic=leading.partition.topic,
            partition=leading.partition.partition,
            epoch=leading.epoch,
            detail=seat.broker,
        )
        self.changed()

    @receives(Reserve)
    def on_reserve(self, reserve: Reserve) -> None:
        seat = self.leaders.get(reserve.partition)
        if seat is not None and seat.epoch == reserve.epoch:
            up_to = max(reserve.up_to, self.reserved[reserve.partition])
            self.reserved[reserve.partition] = up_to
            self.reply(Reserved(up_to))

    def house(self, group: str) -> None:
        """Give a group's coordinator a new home."""
        seat = self.coordinators[group]
        seat.broker = self.least_busy(self.coordinators)
        seat.epoch += 1
        seat.ref = None
        self.order_coordinate(group)

    def order_coordinate(self, group: str) -> None:
        seat = self.coordinators[group]
        if seat.broker is not None:
            order = Coordinate(group, seat.epoch, self.groups[group], self.metadata())
            self.send(self.brokers[seat.broker].ref, order)

    @receives(Coordinating)
    def on_coordinating(self, coordinating: Coordinating) -> None:
        seat = self.coordinators[coordinating.group]
        if seat.epoch == coordinating.epoch and seat.ref is None:
            seat.ref = coordinating.ref
            self.changed()

    # Brokers come and go

    @receives(Register)
    def on_register(self, register: Register) -> None:
        known = self.brokers.get(register.broker)
        if known is None or known.session != register.session:
            if known is not None:
                self.lose(register.broker, "registered anew")
            self.brokers[register.broker] = BrokerState(self.sender, register.session, self.now)
            self.record(kinds.BROKER_REGISTERED, detail=register.broker)
            self.fill_empty_seats()
            self.spread()
            self.changed()
        self.heard(register.broker, register.session, register.sent_us)

    @receives(BrokerHeartbeat)
    def on_broker_heartbeat(self, beat: BrokerHeartbeat) -> None:
        known = self.brokers.get(beat.broker)
        if known is None or known.session != beat.session:
            self.reply(BrokerUnknown(beat.session))
        else:
            self.heard(beat.broker, beat.session, beat.sent_us)

    def heard(self, broker: str, session: tuple[int, int], sent_us: int) -> None:
        self.brokers[broker].heard_us = self.now
        self.reply(BrokerAlive(session, sent_us))

    @receives(Review)
    def on_review(self, review: Review) -> None:
        timeout_us = self.settings.broker_session_timeout_ms * 1_000
        for name, broker in list(self.brokers.items()):
            if self.now - broker.heard_us > timeout_us:
                self.lose(name, "silent for the broker session timeout")
                self.changed()
        for partition, seat in self.leaders.items():
            if seat.ref is None:
                self.order_lead(partition)
        for group, seat in self.coordinators.items():
            if seat.ref is None:
                self.order_coordinate(group)

    def lose(self, broker: str, reason: str) -> None:
        """Count on a broker no more, and have others take over."""
        del self.brokers[broker]
        self.record(kinds.BROKER_LOST, detail=f"{broker}: {reason}")
        for partition, seat in self.leaders.items():
            if seat.previous is not None and seat.previous.node == broker:
                seat.previous = None
            if seat.broker == broker:
                self.appoint(partition)
        for group, seat in self.coordinators.items():
            if seat.broker == broker:
                self.house(group)

    def fill_empty_seats(self) -> None:
        for partition, seat in self.leaders.items():
            if seat.broker is None:
                self.appoint(partition)
        for group, seat in self.coordinators.items():
            if seat.broker is None:
                self.house(group)

    def spread(self) -> None:
        """Move partitions from the busiest brokers to the least busy until they are even."""
        while True:
            load = self.load(self.leaders)
            # What is on its way stays so: another broker that is as busy may have one to spare.
            settled = {tp: seat.broker for tp, seat in self.leaders.items() if seat.ref is not None}
            homes = frozenset(settled.values())
            able = [broker for broker in load if broker in homes]
            busiest = max(able, key=lambda broker: (load[broker], broker), default=None)
            idlest = min(load, key=lambda broker: (load[broker], broker))
            if busiest is None or load[busiest] - load[idlest] < 2:
                return
            self.move([tp for tp, home in settled.items() if home == busiest][-1], idlest)

    def move(self, partition: TopicPartition, broker: str) -> None:
        seat = self.leaders[partition]
        seat.broker, seat.previous, seat.ref = broker, seat.ref, None
        seat.epoch += 1
        self.order_lead(partition)
