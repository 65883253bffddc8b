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
class OrderedBroker:
    """What one process of a broker has still to be told."""

    ref: Ref
    """Its address."""
    epoch: int
    """Its broker epoch."""
    changed: dict[TopicPartition, None] = attrs.Factory(dict)
    """Partitions to tell it of."""
    sent: dict[int, tuple[TopicPartition, ...]] = attrs.Factory(dict)
    """Partitions of which it was told without an answer so far, by the number of the message."""
    sent_us: int = 0
    """When it was last told something."""


class BrokerOrders:
    """Orders to all brokers."""

    def __init__(
        self,
        send: Callable[[Ref, object], None],
        describe: Callable[[str, TopicPartition], ReplicaOrder | None],
    ) -> None:
        """Begin without brokers.

        `send` sends a message once all changes so far are committed. `describe` makes the order to
        a broker about a partition; `None` if there is nothing to say.
        """
        self._send = send
        self._describe = describe
        self._brokers: dict[str, OrderedBroker] = {}
        self._number = 0

    def add_broker(self, name: str, ref: Ref, epoch: int) -> None:
        """Begin with a process of a broker that knows nothing."""
        self._brokers[name] = OrderedBroker(ref, epoch)

    def remove_broker(self, name: str) -> None:
        """Tell a broker nothing any more."""
        self._brokers.pop(name, None)

    def add(self, broker: str, partitions: Iterable[TopicPartition]) -> None:
        """Tell a broker of these partitions with the next `flush`."""
        known = self._brokers.get(broker)
        if known is not None:
            known.changed |= dict.fromkeys(partitions)

    def flush(self, term: int, now_us: int) -> None:
        """Send what has changed."""
        for broker, known in self._brokers.items():
            if not known.changed:
                continue
            told = tuple(known.changed)
            known.changed.clear()
            described = (self._describe(broker, partition) for partition in told)
            orders = tuple(order for order in described if order is not None)
            if orders:
                self._number += 1
                known.sent[self._number] = told
                known.sent_us = now_us
                message = ReplicaOrders(term, known.epoch, self._number, orders)
                self._send(known.ref, message)

    def done(self, done: ReplicaOrdersDone) -> tuple[TopicPartition, ...]:
        """Note that a broker has carried out orders; return the partitions that they were about."""
        known = self._brokers.get(done.broker)
        if known is None or known.epoch != done.broker_epoch:
            return ()
        return known.sent.pop(done.number, ())

    def repeat(self, before_us: int) -> None:
        """Tell again with the next `flush` what was told before this time and not answered."""
        for known in self._brokers.values():
            if known.sent and known.sent_us <= before_us:
                for partitions in known.sent.values():
                    known.changed |= dict.fromkeys(partitions)
                known.sent.clear()
