"""The part of a producer that collects the records of a user's sends into batches.

A record waits in the open batch of its partition until the batch is full or has waited `linger_ms`;
without a linger, until the sender can send it at once. A record for a topic or partition that is
not known yet waits for newer metadata.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import attrs

from ...model.errors import BadValueError
from ...model.log.batch import Batch
from ...model.messages.client import RecordMetadata, Send, SendFailed, SendMany
from ...model.topics import Topic, TopicPartition, size_of, sizes_of
from ...strategies.batching import cut
from ...strategies.partitioning import Partitioner, next_sticky
from .partition_queue import deleted_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model.settings import ProducerSettings
    from ..engine.effects import Effects
    from ..engine.ref import Ref
    from ..engine.timers import Timer
    from .metadata import MetadataCache
    from .sender import Sender


@attrs.frozen
class LingerOver:
    """An open batch has waited for `linger_ms`."""

    partition: TopicPartition
    """Partition of the batch."""
    number: int
    """Number of the batch: the partition may have another open batch by now."""


@attrs.define
class OpenBatch:
    """Records of one partition that wait to become a batch."""

    number: int
    topic_id: int
    sends: list[Send] = attrs.Factory(list)
    callers: list[Ref] = attrs.Factory(list)
    times_us: list[int] = attrs.Factory(list)
    sizes: list[int] = attrs.Factory(list)
    bytes: int = 0
    timer: Timer | None = None


class RecordAccumulator:
    """Makes batches of records, passes them to the sender, and answers the callers."""

    def __init__(
        self,
        effects: Effects,
        settings: ProducerSettings,
        partitioner: Partitioner,
        metadata: MetadataCache,
        sender: Sender,
    ) -> None:
        self._effects = effects
        self._settings = settings
        self._partitioner = partitioner
        self._metadata = metadata
        self._sender = sender
        self.open: dict[TopicPartition, OpenBatch] = {}
        self.awaiting_metadata: deque[tuple[Send | SendMany, Ref]] = deque()
        """Sends to a topic or partition that is not known, each with its caller."""
        self._opened = 0
        self._sticky: dict[str, int] = {}
        """For each topic, the partition to which records without a key go for now."""

    def count(self) -> int:
        """Count the records that are in no batch yet; a `SendMany` that waits counts as one."""
        return len(self.awaiting_metadata) + sum(len(b.sends) for b in self.open.values())

    # Records

    def append(self, send: Send | SendMany, caller: Ref, *, retried: bool = False) -> None:
        """Add the records of a send; its caller gets a `RecordMetadata` or `SendFailed`.

        If the topic or the partition is not known, the send waits for newer metadata: the topic may
        have been created or extended since, or be another one of the same name. A `retried` send
        waits again only if the topic is still missing; an unknown partition is then an error.
        """
        topic = self._metadata.current.topics.get(send.topic)
        if self._sender.fenced:
            self._effects.send(caller, SendFailed(self._sender.fenced_error()))
        elif (
            topic is None
            or topic.id < send.topic_id
            or (not retried and (send.partition or 0) >= topic.partitions)
        ):
            self.awaiting_metadata.append((send, caller))
            self._metadata.refresh()
            self._sender.keep_sweeping()
        elif topic.id > send.topic_id:
            self._effects.send(caller, SendFailed(deleted_error(topic.name)))
        else:
            try:
                partition = TopicPartition(send.topic, self._choose(topic, send))
            except Exception as error:  # whatever a user's partitioner raises
                self._effects.send(caller, SendFailed(error))
                return
            if isinstance(send, SendMany):
                self._append_many(partition, send, caller)
            else:
                self._append_one(partition, topic, send, caller)

    def _append_many(self, partition: TopicPartition, send: SendMany, caller: Ref) -> None:
        now_us = self._effects.now
        if partition in self.open:
            self._close(partition)
        batch = Batch(
            self._sender.producer_id,
            0,
            len(send.values),
            keys=send.keys,
            values=send.values,
            timestamps_us=now_us,
            sizes=sizes_of(send.values),
        )
        parts = cut(batch, self._settings.batch_size)
        for part in parts[:-1]:
            self._sender.enqueue(partition, part, now_us)
        # The batches of a partition are stored in order, so the last receipt stands for all.
        answer = partial(self._answer, partition, parts[-1].count, (caller,))
        self._sender.enqueue(partition, parts[-1], now_us, answer)

    def _append_one(self, partition: TopicPartition, topic: Topic, send: Send, caller: Ref) -> None:
        opened = self.open.get(partition)
        if opened is None:
            self._opened += 1
            opened = self.open[partition] = OpenBatch(self._opened, topic.id)
        size = size_of(send.key) + size_of(send.value)
        opened.sends.append(send)
        opened.callers.append(caller)
        opened.sizes.append(size)
        time_us = send.timestamp_us
        opened.times_us.append(self._effects.now if time_us is None else time_us)
        opened.bytes += size
        self._close_if_due(partition, opened)

    def _choose(self, topic: Topic, send: Send | SendMany) -> int:
        key, value = (send.key, send.value) if isinstance(send, Send) else (None, None)
        return self._partitioner.choose(
            key,
            value,
            topic.partitions,
            requested=send.partition,
            sticky=self.sticky_partition(topic),
            random=self._effects.random,
        )

    def _answer(
        self,
        partition: TopicPartition,
        count: int,
        callers: Sequence[Ref],
        base_offset: int,
        append_time_us: int,
        error: Exception | None,
    ) -> None:
        """Tell each caller of a batch of `count` records the outcome.

        There is a caller for each record, or a single one that gets the receipt of the last record.
        """
        if error is not None:
            for caller in callers:
                self._effects.send(caller, SendFailed(error))
            return
        first = base_offset + count - len(callers)
        for index, caller in enumerate(callers):
            offset = first + index if base_offset >= 0 else -1
            self._effects.send(caller, RecordMetadata(*partition, offset, append_time_us))

    # Batches

    def end_linger(self, over: LingerOver) -> None:
        """Close a batch that has waited long enough, if it is still open."""
        opened = self.open.get(over.partition)
        if opened is not None and opened.number == over.number:
            self._close(over.partition)

    def drop_deleted(self) -> None:
        """Fail the records in open batches of topics that were deleted and created again."""
        for partition, opened in list(self.open.items()):
            topic = self._metadata.current.topics.get(partition.topic)
            if topic is not None and topic.id != opened.topic_id:
                del self.open[partition]
                if opened.timer is not None:
                    opened.timer.cancel()
                for caller in opened.callers:
                    self._effects.send(caller, SendFailed(deleted_error(topic.name)))

    def close_all(self) -> None:
        """Close all open batches."""
        for partition in list(self.open):
            self._close(partition)

    def _close_if_due(self, partition: TopicPartition, opened: OpenBatch) -> None:
        if opened.bytes >= self._settings.batch_size:
            self._close(partition)
        elif self._settings.linger_ms:
            if opened.timer is None:
                wait_us = self._settings.linger_ms * 1_000
                opened.timer = self._effects.after(wait_us, LingerOver(partition, opened.number))
        elif self._sender.has_room(partition, self._close_if_open):
            self._close(partition)

    def _close_if_open(self, partition: TopicPartition) -> None:
        if partition in self.open:
            self._close(partition)

    def _close(self, partition: TopicPartition) -> None:
        """Pass the records of an open batch to the sender."""
        opened = self.open.pop(partition)
        if opened.timer is not None:
            opened.timer.cancel()
        sends = opened.sends
        headers = [send.headers for send in sends]
        batch = Batch(
            self._sender.producer_id,
            0,
            len(sends),
            keys=[send.key for send in sends],
            values=[send.value for send in sends],
            headers=headers if any(headers) else None,
            timestamps_us=opened.times_us,
            sizes=opened.sizes,
        )
        if self._sticky.get(partition.topic) == partition.partition:
            self.change_sticky_partition(partition.topic)
        answer = partial(self._answer, partition, len(sends), opened.callers)
        self._sender.enqueue(partition, batch, self._effects.now, answer)

    # Sticky partitions

    def sticky_partition(self, topic: Topic) -> int:
        """The partition to which records without a key go for now."""
        if self._sticky.get(topic.name, topic.partitions) >= topic.partitions:
            drawn = next_sticky(topic.partitions, None, self._effects.random)
            self._sticky[topic.name] = drawn
        return self._sticky[topic.name]

    def change_sticky_partition(self, name: str) -> None:
        """Draw another sticky partition for a topic, if it has one and still exists."""
        topic, old = self._metadata.current.topics.get(name), self._sticky.get(name)
        if topic is not None and old is not None:
            self._sticky[name] = next_sticky(topic.partitions, old, self._effects.random)

    # Records that wait for metadata

    def retry_unrouted(self) -> None:
        """Add the sends that waited for metadata once more."""
        waiting, self.awaiting_metadata = self.awaiting_metadata, deque()
        for send, caller in waiting:
            self.append(send, caller, retried=True)

    def expire_unrouted(self) -> None:
        """Fail the sends that still wait for metadata, unless the controller never answered."""
        if self._metadata.current.version < 0:
            return
        waiting, self.awaiting_metadata = self.awaiting_metadata, deque()
        for send, caller in waiting:
            error = BadValueError(f"there is no topic {send.topic!r}")
            self._effects.send(caller, SendFailed(error))
