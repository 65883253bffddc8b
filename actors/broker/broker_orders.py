"""The part of the active controller that tells brokers which replicas they have, and who leads.

A broker gets what concerns it and has changed, in one message for all partitions. The network may
lose it, so it is sent again until it is answered; an order can be carried out twice without harm. A
new active controller does not know what its predecessor has told, and tells everything again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ...model.messages.replication import ReplicaOrder, ReplicaOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...model.messages.replication import ReplicaOrdersDone
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref


@attrs.define(eq=False)
class SentOrders:
    """A message that was not answered so far."""

    partitions: tuple[TopicPartition, ...]
    complete: bool
    sent_us: int


@attrs.define(eq=False)
class OrderedBroker:
    """What one process of a broker has still to be told."""

    ref: Ref
    """Its address."""
    epoch: int
    """Its broker epoch."""
    complete: bool = True
    """Whether to tell it of everything: it may have replicas that it should not have."""
    changed: dict[TopicPartition, None] = attrs.Factory(dict)
    """Partitions to tell it of."""
    sent: dict[int, SentOrders] = attrs.Factory(dict)
    """Messages without an answer so far, by number."""


class BrokerOrders:
    """Orders to all brokers."""

    def __init__(
        self,
        send: Callable[[Ref, object], None],
        partitions_of: Callable[[str], Iterable[TopicPartition]],
        describe: Callable[[str, TopicPartition], ReplicaOrder | None],
        is_deleted: Callable[[TopicPartition], bool],
    ) -> None:
        """Begin without brokers.

        Args:
            send: Sends a message once all changes so far are committed.
            partitions_of: Lists the partitions of which a broker has a replica.
            describe: Makes the order to a broker about a partition; `None` if it has no replica.
            is_deleted: Whether a partition does not exist any more.
        """
        self._send = send
        self._partitions_of = partitions_of
        self._describe = describe
        self._is_deleted = is_deleted
        self._brokers: dict[str, OrderedBroker] = {}
        self._number = 0

    def add_broker(self, name: str, ref: Ref, epoch: int) -> None:
        """Begin with a process of a broker, which is told of everything."""
        self._brokers[name] = OrderedBroker(ref, epoch)

    def remove_broker(self, name: str) -> None:
        """Tell a broker nothing any more: it is gone for good."""
        self._brokers.pop(name, None)

    def clear(self) -> None:
        """Tell nobody anything any more."""
        self._brokers.clear()

    def add(self, broker: str, partitions: Iterable[TopicPartition]) -> None:
        """Tell a broker of these partitions with the next `flush`."""
        known = self._brokers.get(broker)
        if known is not None:
            known.changed |= dict.fromkeys(partitions)

    def flush(self, term: int, now_us: int) -> None:
        """Send each broker the changed orders that concern it."""
        for name, known in self._brokers.items():
            if known.complete:
                known.changed |= dict.fromkeys(self._partitions_of(name))
            elif not known.changed:
                continue
            told, complete = tuple(known.changed), known.complete
            known.changed.clear()
            known.complete = False
            described = [(partition, self._describe(name, partition)) for partition in told]
            gone = [partition for partition, order in described if order is None]
            self._number += 1
            known.sent[self._number] = SentOrders(told, complete, now_us)
            message = ReplicaOrders(
                term, known.epoch, self._number,
                tuple(order for _, order in described if order is not None),
                tuple(gone), tuple(filter(self._is_deleted, gone)), complete,
            )  # fmt: skip
            self._send(known.ref, message)

    def done(self, done: ReplicaOrdersDone) -> None:
        """Note that a broker has carried out orders."""
        known = self._brokers.get(done.broker)
        if known is not None and known.epoch == done.broker_epoch:
            known.sent.pop(done.number, None)

    def repeat(self, before_us: int) -> None:
        """Repeat with the next `flush` the orders from before this time without an answer."""
        for known in self._brokers.values():
            for number, sent in list(known.sent.items()):
                if sent.sent_us <= before_us:
                    known.changed |= dict.fromkeys(sent.partitions)
                    known.complete = known.complete or sent.complete
                    del known.sent[number]
