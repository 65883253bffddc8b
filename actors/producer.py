"""A producer: sees the batches that it makes of what it is given into the log.

Batches wait in line until fewer than `max_in_flight` are on their way to their partition's leader.
What is not answered is sent again, until the delivery timeout gives it up: with acknowledgements,
nothing that was promised is lost without a word.

An idempotent producer asks the controller for an epoch before it sends anything. Leaders know by it
and by the numbers of a batch whether they have it already, and store it once however often it is
sent; who has an older epoch under the same id is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ..model import kinds
from ..model.batch import Batch
from ..model.exchange import (
    NOT_IDEMPOTENT,
    Append,
    Appended,
    NotLeader,
    OutOfOrder,
    ProducerFenced,
    Receipt,
    SendFailed,
    TooFarAhead,
    made,
)
from ..model.protocol import InitProducer, ProducerEpoch
from ..model.topics import TopicPartition
from ..strategies.partitioning import Partitioner
from ..strategies.retry import backoff_us
from .accumulator import Accumulator
from .actor import receives
from .lane import Flight, Lane

if TYPE_CHECKING:
    from ..model.settings import ProducerSettings
    from .ref import Ref


UNKNOWN: Final = -2
"""Stands for the epoch until the controller has told it."""


@attrs.frozen
class Sweep:
    """Time to look for requests and batches that have waited too long."""


@attrs.frozen
class RetryNow:
    """A batch's pause before its next attempt is over."""

    flight: Flight


class Producer(Accumulator):
    """Sends the records it is given."""

    def __init__(
        self,
        controller: Ref,
        settings: ProducerSettings,
        partitioner: Partitioner,
    ) -> None:
        super().__init__(controller, settings, partitioner)
        self.epoch = UNKNOWN if settings.enable_idempotence else NOT_IDEMPOTENT
        self.lanes: dict[TopicPartition, Lane] = {}
        self.flights: dict[int, Flight] = {}
        self.sweeping = False

    def started(self) -> None:
        self.look_around()

    # Sending batches

    def enqueue(self, partition: TopicPartition, batch: Batch, askers: tuple[Ref, ...]) -> None:
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = Lane(partition, self.settings.enable_idempotence)
        now_us = self.now
        flight = lane.add(batch, askers, now_us)
        leader = self.leaders.get(partition)
        if leader and not lane.queue and lane.in_flight < self.settings.max_in_flight:
            # What nearly always happens takes the short way.
            self.launch(flight, leader, now_us)
            if not self.sweeping:
                self.keep_sweeping()
        else:
            lane.queue.append(flight)
            self.pump(lane)

    def has_room(self, partition: TopicPartition) -> bool:
        lane = self.lanes.get(partition)
        return lane is None or (lane.in_flight < self.settings.max_in_flight and not lane.queue)

    def pump(self, lane: Lane) -> None:
        """Send what is in line for a partition, as far as there is room."""
        queue, limit, partition = lane.queue, self.settings.max_in_flight, lane.partition
        while queue and self.fenced:
            self.give_up(queue.popleft(), "fenced")
        while queue and lane.in_flight < limit and lane.ready():
            leader = self.leader(partition)
            if leader is None:
                self.refresh()
                break
            self.launch(queue.popleft(), leader, self.now)
        if partition in self.open and not self.settings.linger_ms and self.has_room(partition):
            self.close_batch(partition)
        if not self.sweeping and (queue or self.flights):
            self.keep_sweeping()

    def launch(self, flight: Flight, leader: Ref, now_us: int) -> None:
        request = self.requests = self.requests + 1
        flight.sent_us, flight.to = now_us, leader
        acks, lane = self.settings.acks != 0, flight.lane
        self.send(leader, made(Append, (request, flight.batch, acks, self.epoch, lane.floor)))
        if acks:
            self.flights[request] = flight
            lane.in_flight += 1
        else:
            self.confirm(flight, -1, -1)

    @receives(Appended)
    def on_appended(self, appended: Appended) -> None:
        flight = self.flights.pop(appended.request, None)
        if flight is not None:
            lane = flight.lane
            lane.in_flight -= 1
            lane.settle(flight)
            if flight.askers:
                self.confirm(flight, appended.base_offset, appended.append_time_us)
            if lane.queue or (self.open and lane.partition in self.open):
                self.pump(lane)

    def land(self, request: int) -> Flight | None:
        """Take a request off the list of those that wait for an answer."""
        flight = self.flights.pop(request, None)
        if flight is not None:
            flight.lane.in_flight -= 1
        return flight

    def confirm(self, flight: Flight, base_offset: int, append_time_us: int) -> None:
        topic, partition = flight.lane.partition
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

    @receives(OutOfOrder)
    def on_out_of_order(self, refused: OutOfOrder) -> None:
        self.failed(refused.request, "one before it has not arrived")

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
            self.pump(flight.lane)
            return
        self.note(kinds.SEND_RETRIED, flight, reason)
        flight.pausing = True
        flight.lane.put_back(flight)
        self.after(backoff_us(flight.attempts, self.random, self.settings), RetryNow(flight))

    @receives(RetryNow)
    def on_retry_now(self, retry: RetryNow) -> None:
        retry.flight.pausing = False
        self.pump(retry.flight.lane)

    @receives(ProducerFenced)
    def on_producer_fenced(self, refused: ProducerFenced) -> None:
        """Give up everything there is and all that comes: the id is another producer's."""
        if refused.request not in self.flights:
            return
        self.fenced = True
        self.leaders.clear()
        for request, flight in list(self.flights.items()):
            self.land(request)
            flight.lane.put_back(flight)
        for partition in list(self.open):
            self.close_batch(partition)
        self.metadata_changed()

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
        for lane in self.lanes.values():
            while lane.queue and self.is_overdue(lane.queue[0]):
                self.give_up(lane.queue.popleft(), "not within the delivery timeout")
        self.give_up_homeless()
        if self.flights or self.homeless or any(lane.queue for lane in self.lanes.values()):
            self.keep_sweeping()

    def is_overdue(self, flight: Flight) -> bool:
        return self.now - flight.created_us >= self.settings.delivery_timeout_ms * 1_000

    def give_up(self, flight: Flight, reason: str) -> None:
        flight.lane.settle(flight)
        self.note(kinds.GIVEN_UP, flight, reason)
        error: Exception = TimeoutError(
            f"{flight.batch.count} records for {flight.lane.partition} given up after "
            f"{flight.attempts} attempts: {reason}"
        )
        if self.fenced:
            error = self.fenced_error()
        for asker in flight.askers:
            self.send(asker, SendFailed(error))

    def note(self, kind: str, flight: Flight, reason: str) -> None:
        self.record(
            kind,
            topic=flight.lane.partition.topic,
            partition=flight.lane.partition.partition,
            producer=self.producer_id,
            base_offset=flight.batch.sequence,
            count=flight.batch.count,
            bytes=flight.batch.bytes,
            epoch=flight.attempts,
            detail=reason,
        )

    # Metadata, and the epoch

    def ask(self) -> None:
        if self.epoch == UNKNOWN:
            self.send(self.controller, InitProducer(self.life, self.producer_id))
        super().ask()

    @receives(ProducerEpoch)
    def on_producer_epoch(self, told: ProducerEpoch) -> None:
        if self.epoch == UNKNOWN and told.request == self.life:
            self.epoch = told.epoch
            for lane in self.lanes.values():
                self.pump(lane)

    def leader(self, partition: TopicPartition) -> Ref | None:
        """Nobody, until the epoch is known: what has none cannot be sent."""
        return None if self.epoch == UNKNOWN else super().leader(partition)

    def metadata_changed(self) -> None:
        self.find_homes()
        for lane in list(self.lanes.values()):
            self.pump(lane)

    def misses_something(self) -> bool:
        return (
            bool(self.homeless)
            or self.epoch == UNKNOWN
            or any(
                lane.queue and self.leader(partition) is None
                for partition, lane in self.lanes.items()
            )
        )
