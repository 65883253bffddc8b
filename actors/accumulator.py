"""The first half of a producer: makes batches of the records it is given.

A record waits in the open batch of its partition until that is full or has waited `linger_ms`;
without a linger, until there is room on the way to the partition's leader. What is for a topic that
is not known yet waits for the metadata.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from ..model.batch import Batch
from ..model.errors import BadValueError, ProducerFencedError
from ..model.exchange import Send, SendFailed, SendMany
from ..model.topics import Topic, TopicPartition, size_of
from ..strategies.batching import cut
from ..strategies.partitioning import Partitioner, next_sticky
from .actor import receives
from .client import Client

if TYPE_CHECKING:
    from ..model.settings import ProducerSettings
    from .ref import Ref
    from .timers import Timer


@attrs.frozen
class LingerOver:
    """An open batch has waited long enough."""

    partition: TopicPartition
    number: int


@attrs.define
class OpenBatch:
    """Records that wait for company."""

    number: int
    sends: list[Send] = attrs.Factory(list)
    askers: list[Ref] = attrs.Factory(list)
    times_us: list[int] = attrs.Factory(list)
    sizes: list[int] = attrs.Factory(list)
    bytes: int = 0
    timer: Timer | None = None


class Accumulator(Client):
    """Collects records in batches, which whoever extends it sends."""

    settings: ProducerSettings

    def __init__(
        self,
        controller: Ref,
        settings: ProducerSettings,
        partitioner: Partitioner,
    ) -> None:
        super().__init__(controller, settings)
        self.partitioner = partitioner
        self.homeless: deque[tuple[Send | SendMany, Ref]] = deque()
        """What waits for its topic to be known."""
        self.open: dict[TopicPartition, OpenBatch] = {}
        self.opened = 0
        self.stickies: dict[str, int] = {}
        self.fenced = False
        """Whether another producer has taken over the id: nothing is taken any more."""

    @cached_property
    def producer_id(self) -> str:
        """The id that its records carry."""
        return self.settings.producer_id or self.ref.name

    def enqueue(self, partition: TopicPartition, batch: Batch, askers: tuple[Ref, ...]) -> None:
        """Put a batch in line for its partition."""
        raise NotImplementedError

    def has_room(self, partition: TopicPartition) -> bool:
        """Whether a batch for this partition would leave at once."""
        raise NotImplementedError

    def keep_sweeping(self) -> None:
        """Look again, in a while, at what waits."""
        raise NotImplementedError

    @receives(Send)
    def on_send(self, send: Send) -> None:
        self.take(send, self.sender)

    @receives(SendMany)
    def on_send_many(self, send: SendMany) -> None:
        self.take(send, self.sender)

    def take(self, send: Send | SendMany, asker: Ref, *, asked: bool = False) -> None:
        """Take what is to be sent; if its place is not known, ask, unless that has just been done.

        A topic may have been made, or have grown, since the metadata were fetched.
        """
        topic = self.metadata.topics.get(send.topic)
        if self.fenced:
            self.send(asker, SendFailed(self.fenced_error()))
        elif topic is None or (not asked and (send.partition or 0) >= topic.partitions):
            self.homeless.append((send, asker))
            self.refresh()
            self.keep_sweeping()
        elif isinstance(send, SendMany):
            self.take_many(topic, send, asker)
        else:
            self.take_one(topic, send, asker)

    def fenced_error(self) -> ProducerFencedError:
        return ProducerFencedError(
            f"producer {self.ref.name!r} is fenced: another one has taken over its id, "
            f"{self.producer_id!r}"
        )

    def take_many(self, topic: Topic, send: SendMany, asker: Ref) -> None:
        partition = TopicPartition(send.topic, send.partition)
        if partition in self.open:
            self.close_batch(partition)
        batch = Batch(
            self.producer_id,
            0,
            len(send.values),
            keys=send.keys,
            values=send.values,
            timestamps_us=self.now,
            sizes=[size_of(value) for value in send.values],
        )
        parts = cut(batch, self.settings.batch_size)
        for part in parts[:-1]:
            self.enqueue(partition, part, ())
        # The last one's receipt stands for all: a partition's batches are stored in their order.
        self.enqueue(partition, parts[-1], (asker,))

    def take_one(self, topic: Topic, send: Send, asker: Ref) -> None:
        try:
            partition = TopicPartition(send.topic, self.choose(topic, send))
        except BadValueError as error:
            self.send(asker, SendFailed(error))
            return
        opened = self.open.get(partition)
        if opened is None:
            self.opened += 1
            opened = self.open[partition] = OpenBatch(self.opened)
        size = size_of(send.key) + size_of(send.value)
        opened.sends.append(send)
        opened.askers.append(asker)
        opened.sizes.append(size)
        opened.times_us.append(self.now if send.timestamp_us is None else send.timestamp_us)
        opened.bytes += size
        self.flush_if_due(partition, opened)

    def choose(self, topic: Topic, send: Send) -> int:
        topic.check(send.value)
        return self.partitioner.choose(
            send.key,
            send.value,
            topic.partitions,
            requested=send.partition,
            sticky=self.sticky(topic),
            random=self.random,
        )

    def sticky(self, topic: Topic) -> int:
        if topic.name not in self.stickies:
            self.stickies[topic.name] = next_sticky(topic.partitions, None, self.random)
        return self.stickies[topic.name]

    def flush_if_due(self, partition: TopicPartition, opened: OpenBatch) -> None:
        if opened.bytes >= self.settings.batch_size:
            self.close_batch(partition)
        elif self.settings.linger_ms:
            if opened.timer is None:
                wait_us = self.settings.linger_ms * 1_000
                opened.timer = self.after(wait_us, LingerOver(partition, opened.number))
        elif self.has_room(partition):
            self.close_batch(partition)

    @receives(LingerOver)
    def on_linger_over(self, over: LingerOver) -> None:
        opened = self.open.get(over.partition)
        if opened is not None and opened.number == over.number:
            self.close_batch(over.partition)

    def close_batch(self, partition: TopicPartition) -> None:
        """Make a batch of what is open for a partition, and put it in line."""
        opened = self.open.pop(partition)
        if opened.timer is not None:
            opened.timer.cancel()
        sends = opened.sends
        headers = [send.headers for send in sends]
        batch = Batch(
            self.producer_id,
            0,
            len(sends),
            keys=[send.key for send in sends],
            values=[send.value for send in sends],
            headers=headers if any(headers) else None,
            timestamps_us=opened.times_us,
            sizes=opened.sizes,
        )
        topic = self.metadata.topics[partition.topic]
        if self.stickies.get(topic.name) == partition.partition:
            old = self.stickies[topic.name]
            self.stickies[topic.name] = next_sticky(topic.partitions, old, self.random)
        self.enqueue(partition, batch, tuple(opened.askers))

    def find_homes(self) -> None:
        """Take what waited for its topic once more, now that the metadata has changed."""
        waiting, self.homeless = self.homeless, deque()
        for send, asker in waiting:
            self.take(send, asker, asked=True)

    def give_up_homeless(self) -> None:
        if self.metadata.version < 0:
            return
        homeless, self.homeless = self.homeless, deque()
        for send, asker in homeless:
            self.send(asker, SendFailed(BadValueError(f"there is no topic {send.topic!r}")))
