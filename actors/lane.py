"""A producer's way to one partition: its batches by number, from the line to the receipt."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from ..model.batch import Batch
    from ..model.topics import TopicPartition
    from .ref import Ref


@attrs.define(eq=False)
class Flight:
    """A batch on its way into the log."""

    lane: Lane
    batch: Batch
    askers: tuple[Ref, ...]
    """Who wants a receipt for each record; empty for a running producer."""
    created_us: int
    attempts: int = 0
    """How many have failed."""
    sent_us: int = 0
    to: Ref | None = None
    pausing: bool = False
    """Whether it failed and has to wait before its next attempt."""
    settled: bool = False
    """Acknowledged or given up: it will not be sent again."""


@attrs.define(eq=False)
class Lane:
    """All that a producer has for one partition."""

    partition: TopicPartition
    idempotent: bool
    sequence: int = 0
    """The number of the next record."""
    floor: int = 0
    """The lowest number that may still be sent, or sent again."""
    in_flight: int = 0
    queue: deque[Flight] = attrs.Factory(deque)
    """What waits in line, by rising number."""
    unsettled: deque[Flight] = attrs.Factory(deque)
    """All from the floor on, by rising number; only the idempotent have use for it."""

    def add(self, batch: Batch, askers: tuple[Ref, ...], now_us: int) -> Flight:
        """Give a batch its numbers."""
        flight = Flight(self, batch.numbered(self.sequence), askers, now_us)
        self.sequence += batch.count
        if self.idempotent:
            self.unsettled.append(flight)
        return flight

    def ready(self) -> bool:
        """Whether what is first in line may be sent.

        It may not pass one that pauses. And one of an idempotent producer that has failed is sent
        again only once all before it is settled, as in Kafka: the leader would refuse it again.
        """
        first = self.queue[0]
        if first.pausing:
            return False
        return not (self.idempotent and first.attempts and first.batch.sequence != self.floor)

    def settle(self, flight: Flight) -> None:
        """Send this no more: what comes after it need not wait for it."""
        flight.settled = True
        unsettled = self.unsettled
        while unsettled and unsettled[0].settled:
            gone = unsettled.popleft().batch
            self.floor = gone.sequence + gone.count

    def put_back(self, flight: Flight) -> None:
        """Put a batch that failed in line again, where its number belongs: near the front."""
        sequence, index = flight.batch.sequence, 0
        while index < len(self.queue) and self.queue[index].batch.sequence < sequence:
            index += 1
        self.queue.insert(index, flight)
