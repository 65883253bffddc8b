"""The part of a producer that sends batches to partition leaders until they are acknowledged.

Each partition has a queue. At most `max_in_flight` of its batches are on their way at a time. A
batch that fails or gets no answer is sent again after a backoff, until it runs out of retries or
exceeds the delivery timeout. It is then given up, and its callback receives the error.

An idempotent producer gets an epoch from the controller before it sends anything. With the epoch
and the sequence numbers of a batch, a leader recognises a batch that it has stored already. When
another producer takes over the producer id, it gets a higher epoch and the older one is fenced:
everything it has, and everything it is given from then on, is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ...model.errors import ProducerFencedError
from ...model.events import kinds
from ...model.messages.client import NOT_IDEMPOTENT, Append, Appended, make_tuple
from ...model.messages.cluster import InitProducer, ProducerEpoch
from ...model.topics import TopicPartition
from ...strategies.retry import backoff_us
from .partition_queue import Callback, InFlightBatch, PartitionQueue, deleted_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...model.log.batch import Batch
    from ...model.settings import ProducerSettings
    from ..controller_finder import ControllerFinder
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from .metadata import MetadataCache

UNKNOWN_EPOCH: Final = -2
"""The epoch until the controller has answered."""


@attrs.frozen
class CheckTimeouts:
    """Time to look for requests without an answer, and for batches that exceed a timeout."""


@attrs.frozen
class BackoffOver:
    """The backoff of a batch is over."""

    partition: TopicPartition
    """Partition of the batch."""
    sequence: int
    """First sequence number of the batch."""


class Sender:
    """Sends the batches of one producer."""

    def __init__(
        self,
        effects: Effects,
        settings: ProducerSettings,
        metadata: MetadataCache,
        controllers: ControllerFinder,
        request_ids: Iterator[int],
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._metadata = metadata
        self._controllers = controllers
        self._request_ids = request_ids
        self.producer_id = settings.producer_id or effects.ref.name
        name, life = effects.ref.name, effects.life
        self._instance = name if life == 1 else f"{name}#{life}"
        self.epoch = UNKNOWN_EPOCH if settings.enable_idempotence else NOT_IDEMPOTENT
        self.fenced = False
        """Whether another producer has taken over the producer id."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.in_flight: dict[int, InFlightBatch] = {}
        """Batches that have been sent and not answered, by request."""
        self._sweeping = False
        """Whether the timer for the next `CheckTimeouts` is set."""

    # Sending

    def enqueue(
        self,
        partition: TopicPartition,
        batch: Batch,
        now_us: int,
        callback: Callback | None = None,
    ) -> None:
        """Send a batch, at once or when its turn comes; `callback` receives the outcome."""
        queue = self.queues.get(partition)
        if queue is None:
            idempotent = self._settings.enable_idempotence
            topic = self._metadata.current.topics.get(partition.topic)
            topic_id = 0 if topic is None else topic.id
            queue = self.queues[partition] = PartitionQueue(
                partition, topic_id, self._instance, idempotent
            )
        added = queue.add(batch, callback, now_us)
        leader = self._metadata.leaders.get(partition)
        if leader and not queue.waiting and queue.in_flight < self._settings.max_in_flight:
            # The usual case, without the calls that the others need.
            self._send(added, leader, now_us)
            if not self._sweeping:
                self.keep_sweeping()
        else:
            queue.waiting.append(added)
            self._send_waiting(queue)

    def has_room(self, partition: TopicPartition, notify: Callable[[TopicPartition], None]) -> bool:
        """Whether a batch would be sent at once; if not, `notify` is called as soon as it would."""
        queue = self.queues.get(partition)
        if queue is None or self._has_room(queue):
            return True
        queue.notify = notify
        return False

    def send_waiting(self) -> None:
        """Send the waiting batches that a change of the metadata or the epoch allows to be sent."""
        for queue in list(self.queues.values()):
            self._send_waiting(queue)

    def _send_waiting(self, queue: PartitionQueue) -> None:
        waiting, partition = queue.waiting, queue.partition
        while waiting and self.fenced:
            self._give_up(waiting.popleft(), "fenced")
        limit = self._settings.max_in_flight
        while waiting and queue.in_flight < limit and queue.can_send():
            leader = self._leader(partition)
            if leader is None:
                self._metadata.refresh()
                break
            self._send(waiting.popleft(), leader, self._effects.now)
        if queue.notify is not None and self._has_room(queue):
            notify, queue.notify = queue.notify, None
            notify(partition)
        if not self._sweeping and (waiting or self.in_flight):
            self.keep_sweeping()

    def _has_room(self, queue: PartitionQueue) -> bool:
        return queue.in_flight < self._settings.max_in_flight and not queue.waiting

    def _send(self, sent: InFlightBatch, leader: Ref, now_us: int) -> None:
        request = next(self._request_ids)
        sent.sent_us, sent.leader = now_us, leader
        acks, queue = self._settings.acks != 0, sent.queue
        append = make_tuple(Append, (request, sent.batch, acks, self.epoch, queue.floor))
        self._effects.send(leader, append)
        if acks:
            self.in_flight[request] = sent
            queue.in_flight += 1
        elif sent.callback is not None:
            sent.callback(-1, -1, None)

    def acknowledge(self, appended: Appended) -> None:
        """Complete a batch that its leader has stored."""
        stored = self.in_flight.pop(appended.request, None)
        if stored is not None:
            queue = stored.queue
            queue.in_flight -= 1
            queue.complete(stored)
            if stored.callback is not None:
                stored.callback(appended.base_offset, appended.append_time_us, None)
            if queue.waiting or queue.notify is not None:
                self._send_waiting(queue)

    # Failures

    def fail(self, request: int, reason: str) -> None:
        """Send the batch of a failed request again after a backoff, or give it up."""
        failed = self._take_back(request)
        if failed is None:
            return
        failed.attempts += 1
        if failed.attempts > self._settings.retries or self._is_overdue(failed):
            self._give_up(failed, reason)
            self._send_waiting(failed.queue)
            return
        self._record(kinds.SEND_RETRIED, failed, reason)
        failed.backing_off = True
        failed.queue.reenqueue(failed)
        wait_us = backoff_us(failed.attempts, self._effects.random, self._settings)
        self._effects.after(wait_us, BackoffOver(failed.queue.partition, failed.batch.sequence))

    def retry(self, due: BackoffOver) -> None:
        """Send a batch whose backoff is over."""
        queue = self.queues[due.partition]
        queue.end_backoff(due.sequence)
        self._send_waiting(queue)

    def disconnect(self, leader: Ref) -> None:
        """Fail all requests to a leader that has ended."""
        for request in [r for r, sent in self.in_flight.items() if sent.leader is leader]:
            self.fail(request, "the leader is gone")

    def fence(self, request: int) -> bool:
        """Stop sending, if it is this producer's request that was fenced; return whether it was.

        The next `send_waiting` gives up all batches.
        """
        if request not in self.in_flight:
            return False
        self.fenced = True
        self._metadata.leaders.clear()
        for number in list(self.in_flight):
            sent = self._take_back(number)
            assert sent is not None
            sent.queue.reenqueue(sent)
        return True

    def drop_deleted(self) -> None:
        """Give up the batches for topics that were deleted and created again.

        The new topic may have another type. Its partitions get the sequence numbers that follow.
        """
        topics = self._metadata.current.topics
        for queue in list(self.queues.values()):
            topic = topics.get(queue.partition.topic)
            if topic is None or topic.id == queue.topic_id:
                continue
            queue.topic_id = topic.id
            for request in [r for r, sent in self.in_flight.items() if sent.queue is queue]:
                sent = self._take_back(request)
                assert sent is not None
                queue.reenqueue(sent)
            while queue.waiting:
                error = deleted_error(topic.name)
                self._give_up(queue.waiting.popleft(), "the topic was deleted", error)

    def fenced_error(self) -> ProducerFencedError:
        """The error with which records of a fenced producer are given up."""
        return ProducerFencedError(
            f"producer {self._effects.ref.name!r} is fenced: another producer has taken over its "
            f"id, {self.producer_id!r}"
        )

    def keep_sweeping(self) -> None:
        """Set the timer for the next `CheckTimeouts`, unless it is set."""
        if not self._sweeping:
            self._sweeping = True
            wait_us = self._settings.request_timeout_ms * 500
            self._effects.after(wait_us, CheckTimeouts(), background=True)

    def sweep(self) -> None:
        """Fail requests that exceed the request timeout, give up batches that exceed theirs.

        The timer is not set again: the caller does so if anything is left to look at.
        """
        self._sweeping = False
        now_us, timeout_us = self._effects.now, self._settings.request_timeout_ms * 1_000
        late = [r for r, sent in self.in_flight.items() if now_us - sent.sent_us >= timeout_us]
        for request in late:
            self.fail(request, "no answer within the request timeout")
        if late:
            self._metadata.refresh()
        for queue in list(self.queues.values()):
            while queue.waiting and self._is_overdue(queue.waiting[0]):
                self._give_up(queue.waiting.popleft(), "not within the delivery timeout")

    def count(self) -> int:
        """Count the records that are neither acknowledged nor given up."""
        waiting = (batch for queue in self.queues.values() for batch in queue.waiting)
        return sum(each.batch.count for each in (*self.in_flight.values(), *waiting))

    def has_batches(self) -> bool:
        """Whether any batch is waiting or in flight."""
        return bool(self.in_flight) or any(queue.waiting for queue in self.queues.values())

    def _take_back(self, request: int) -> InFlightBatch | None:
        """Remove a request from those in flight."""
        sent = self.in_flight.pop(request, None)
        if sent is not None:
            sent.queue.in_flight -= 1
        return sent

    def _is_overdue(self, batch: InFlightBatch) -> bool:
        age_us = self._effects.now - batch.created_us
        return age_us >= self._settings.delivery_timeout_ms * 1_000

    def _give_up(self, failed: InFlightBatch, reason: str, error: Exception | None = None) -> None:
        failed.queue.complete(failed)
        self._record(kinds.GIVEN_UP, failed, reason)
        if failed.callback is None:
            return
        if self.fenced:
            error = self.fenced_error()
        elif error is None:
            error = TimeoutError(
                f"{failed.batch.count} records for {failed.queue.partition} given up after "
                f"{failed.attempts} attempts: {reason}"
            )
        failed.callback(-1, -1, error)

    def _record(self, kind: str, failed: InFlightBatch, reason: str) -> None:
        topic, partition = failed.queue.partition
        self._effects.record(
            kind,
            topic=topic,
            partition=partition,
            producer=self.producer_id,
            count=failed.batch.count,
            bytes=failed.batch.bytes,
            retries=failed.attempts,
            reason=reason,
        )

    # The epoch and the leaders

    def request_epoch(self) -> None:
        """Ask the controller for the epoch, if it is not known."""
        if self.epoch == UNKNOWN_EPOCH:
            request = InitProducer(self._effects.life, self.producer_id)
            self._effects.send(self._controllers.current, request)

    def set_epoch(self, answer: ProducerEpoch) -> None:
        """Begin to send with the epoch that this life of the producer has asked for."""
        if self.epoch == UNKNOWN_EPOCH and answer.request == self._effects.life:
            self.epoch = answer.epoch
            self.send_waiting()

    def needs_metadata(self) -> bool:
        """Whether the epoch, or the leader of a partition with waiting batches, is unknown."""
        return self.epoch == UNKNOWN_EPOCH or any(
            queue.waiting and self._leader(partition) is None
            for partition, queue in self.queues.items()
        )

    def _leader(self, partition: TopicPartition) -> Ref | None:
        """The leader to send to; `None` until the epoch is known."""
        return None if self.epoch == UNKNOWN_EPOCH else self._metadata.leader(partition)
