"""A producer: sees the batches that it makes of what it is given into the log.

Batches wait in line until fewer than `max_in_flight` are on their way to their partition's leader.
What is not answered is sent again, until the delivery timeout gives it up: with acknowledgements,
nothing that was promised is lost without a word.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from ..model import kinds
from ..model.batch import Batch
from ..model.exchange import (
    Append,
    Appended,
    NotLeader,
    Receipt,
    SendFailed,
    TooFarAhead,
)
from ..model.topics import TopicPartition
from ..strategies.partitioning import Partitioner
from ..strategies.retry import backoff_us
from .accumulator import Accumulator
from .actor import receives

if TYPE_CHECKING:
    from ..model.settings import ProducerSettings
    from .ref import Ref


@attrs.frozen
class Sweep:
    """Time to look for requests and batches that have waited too long."""


@attrs.frozen
class RetryNow:
    """A batch's pause before its next attempt is over."""

    flight: Flight


@attrs.define(eq=False)
class Flight:
    """A batch on its way into the log."""

    partition: TopicPartition
    batch: Batch
    askers: tuple[Ref, ...]
    """Who wants a receipt for each record; empty for a running producer."""
    created_us: int
    attempts: int = 0
    sent_us: int = 0
    to: Ref | None = None


class Producer(Accumulator):
    """Sends the records it is given."""

    settings: ProducerSettings

    def __init__(
        self,
        controller: Ref,
        settings: ProducerSettings,
        partitioner: Partitioner,
    ) -> None:
        super().__init__(controller, settings, partitioner)
        self.queues: dict[TopicPartition, deque[Flight]] = {}
        self.flights: dict[int, Flight] = {}
        self.in_flight: dict[TopicPartition, int] = {}
        self.sequences: dict[TopicPartition, int] = {}
        self.sweeping = False

    def started(self) -> None:
        self.look_around()

    # Sending batches

    def enqueue(self, partition: TopicPartition, batch: Batch, askers: tuple[Ref, ...]) -> None:
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + batch.count
        flight = Flight(partition, batch.numbered(sequence), askers, self.now)
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = deque()
        leader = self.leaders.get(partition)
        if leader and not queue and self.in_flight.get(partition, 0) < self.settings.max_in_flight:
            # What nearly always happens takes the short way.
            self.launch(flight, leader)
            self.keep_sweeping()
        else:
            queue.append(flight)
            self.pump(partition)

    def has_room(self, partition: TopicPartition) -> bool:
        room = self.settings.max_in_flight - self.in_flight.get(partition, 0)
        return room > 0 and not self.queues.get(partition)

    def pump(self, partition: TopicPartition) -> None:
        """Send what is in line for a partition, as far as there is room."""
        queue, limit = self.queues.get(partition), self.settings.max_in_flight
        while queue and self.in_flight.get(partition, 0) < limit:
            leader = self.leader(partition)
            if leader is None:
                self.refresh()
                break
            self.launch(queue.popleft(), leader)
        if partition in self.open and not self.settings.linger_ms and self.has_room(partition):
            self.close_batch(partition)
        if not self.sweeping and (queue or self.flights):
            self.keep_sweeping()

    def launch(self, flight: Flight, leader: Ref) -> None:
        request = self.requests = self.requests + 1
        flight.sent_us, flight.to = self.now, leader
        acks = self.settings.acks != 0
        self.send(leader, Append(request, flight.batch, acks))
        if acks:
            self.flights[request] = flight
            self.in_flight[flight.partition] = self.in_flight.get(flight.partition, 0) + 1
        else:
            self.confirm(flight, -1, -1)

    @receives(Appended)
    def on_appended(self, appended: Appended) -> None:
        flight = self.land(appended.request)
        if flight is not None:
            if flight.askers:
                self.confirm(flight, appended.base_offset, appended.append_time_us)
            if self.queues[flight.partition] or flight.partition in self.open:
                self.pump(flight.partition)

    def land(self, request: int) -> Flight | None:
        """Take a request off the list of those that wait for an answer."""
        flight = self.flights.pop(request, None)
        if flight is not None:
            self.in_flight[flight.partition] -= 1
        return flight

    def confirm(self, flight: Flight, base_offset: int, append_time_us: int) -> None:
        topic, partition = flight.partition
        # One asker for many records wants to hear of the last.
        first = base_offset + flight.batch.count - len(flight.askers)
        for index, asker in enumerate(flight.askers):
            offset = first + index if base_offset >= 0 else -1
            self.send(asker, Receipt(topic, partition, offset, append_time_us))

    # When things go wrong

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        self.failed(refused.request, "not the leader")
        self.refresh()

    @receives(TooFarAhead)
    def on_too_far_ahead(self, refused: TooFarAhead) -> None:
        self.failed(refused.request, "no offsets reserved")

    def connection_lost(self, ref: Ref) -> None:
        for request in [r for r, flight in self.flights.items() if flight.to is ref]:
            self.failed(request, "the leader is gone")

    def failed(self, request: int, reason: str) -> None:
        """Try a batch again after a pause, or give it up."""
        flight = self.land(request)
        if flight is None:
            return
        flight.attempts += 1
        if flight.attempts > self.settings.retries or self.is_overdue(flight):
            self.give_up(flight, reason)
            self.pump(flight.partition)
            return
        self.note(kinds.SEND_RETRIED, flight, reason)
        self.after(backoff_us(flight.attempts, self.random, self.settings), RetryNow(flight))

    @receives(RetryNow)
    def on_retry_now(self, retry: RetryNow) -> None:
        partition = retry.flight.partition
        self.queues.setdefault(partition, deque()).appendleft(retry.flight)
        self.pump(partition)

    def keep_sweeping(self) -> None:
        if not self.sweeping:
            self.sweeping = True
            self.after(self.settings.request_timeout_ms * 500, Sweep())

    @receives(Sweep)
    def on_sweep(self, sweep: Sweep) -> None:
        self.sweeping = False
        timeout_us = self.settings.request_timeout_ms * 1_000
        late = [r for r, f in self.flights.items() if self.now - f.sent_us >= timeout_us]
        for request in late:
            self.failed(request, "no answer within the request timeout")
        if late:
            self.refresh()
        for queue in self.queues.values():
            while queue and self.is_overdue(queue[0]):
                self.give_up(queue.popleft(), "no leader within the delivery timeout")
        self.give_up_homeless()
        if self.flights or self.homeless or any(self.queues.values()):
            self.keep_sweeping()

    def is_overdue(self, flight: Flight) -> bool:
        return self.now - flight.created_us >= self.settings.delivery_timeout_ms * 1_000

    def give_up(self, flight: Flight, reason: str) -> None:
        self.note(kinds.GIVEN_UP, flight, reason)
        error = TimeoutError(
            f"{flight.batch.count} records for {flight.partition} given up after "
            f"{flight.attempts} attempts: {reason}"
        )
        for asker in flight.askers:
            self.send(asker, SendFailed(error))

    def note(self, kind: str, flight: Flight, reason: str) -> None:
        self.record(
            kind,
            topic=flight.partition.topic,
            partition=flight.partition.partition,
            producer=self.ref.name,
            base_offset=flight.batch.sequence,
            count=flight.batch.count,
            bytes=flight.batch.bytes,
            epoch=flight.attempts,
            detail=reason,
        )

    # Metadata

    def metadata_changed(self) -> None:
        self.find_homes()
        for partition in list(self.queues):
            self.pump(partition)

    def misses_something(self) -> bool:
        return bool(self.homeless) or any(
            queue and self.leader(partition) is None for partition, queue in self.queues.items()
        )
