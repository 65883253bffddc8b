"""The batches of one partition at a producer, in the order of their sequence numbers.

A queue numbers the records of its partition, and it decides which batch may be sent next. It sends
nothing itself: that is the sender's job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from ...model.errors import BadValueError

if TYPE_CHECKING:
    from ...model.log.batch import Batch
    from ...model.topics import TopicPartition
    from ..engine.ref import Ref

Callback: TypeAlias = "Callable[[int, int, Exception | None], None]"
"""Receives the outcome of a batch: its base offset, its append time in µs and `None`, or -1, -1 and
the error with which it was given up. Without acknowledgements it receives -1, -1 and `None`."""


def deleted_error(topic: str) -> BadValueError:
    """The error with which records for a deleted topic are given up."""
    return BadValueError(f"topic {topic!r} was deleted before the record was stored")


@attrs.define(eq=False)
class InFlightBatch:
    """A batch that is neither acknowledged nor given up."""

    queue: PartitionQueue
    batch: Batch
    callback: Callback | None
    """Called once, with the outcome; `None` if it is not needed."""
    created_us: int
    attempts: int = 0
    """Number of failed attempts."""
    sent_us: int = 0
    leader: Ref | None = None
    """Receiver of the last attempt."""
    backing_off: bool = False
    """Whether it waits out the backoff after a failed attempt."""
    done: bool = False
    """Whether it is acknowledged or given up, so that it is not sent again."""


@attrs.define(eq=False)
class PartitionQueue:
    """All batches that a producer has for one partition."""

    partition: TopicPartition
    topic_id: int
    """Id of the topic that the batches are for."""
    instance: str
    """Name of the producer in its present life, for the ids of records."""
    idempotent: bool
    next_sequence: int = 0
    """Sequence number of the next record."""
    floor: int = 0
    """Lowest sequence number that may still be sent: all records below it are done."""
    in_flight: int = 0
    """Number of batches that have been sent and not answered."""
    waiting: deque[InFlightBatch] = attrs.Factory(deque)
    """Batches to send, by rising sequence number."""
    incomplete: deque[InFlightBatch] = attrs.Factory(deque)
    """All batches from the floor on, by rising sequence number. Only kept for an idempotent
    producer: others have no use for the floor."""
    notify: Callable[[TopicPartition], None] | None = None
    """Called once, as soon as a new batch would be sent without waiting."""

    def add(self, batch: Batch, callback: Callback | None, now_us: int) -> InFlightBatch:
        """Give a batch the next sequence numbers."""
        added = InFlightBatch(
            self, batch.numbered(self.next_sequence, self.instance), callback, now_us
        )
        self.next_sequence += batch.count
        if self.idempotent:
            self.incomplete.append(added)
        return added

    def can_send(self) -> bool:
        """Whether the first waiting batch may be sent.

        Batches do not overtake one that backs off. A retried batch of an idempotent producer also
        waits until all batches before it are done, as in Kafka: the leader would refuse it again.
        """
        first = self.waiting[0]
        if first.backing_off:
            return False
        return not (self.idempotent and first.attempts and first.batch.sequence != self.floor)

    def complete(self, batch: InFlightBatch) -> None:
        """Mark a batch as done, and raise the floor over all done batches at the front."""
        batch.done = True
        incomplete = self.incomplete
        while incomplete and incomplete[0].done:
            first = incomplete.popleft().batch
            self.floor = first.sequence + first.count

    def reenqueue(self, batch: InFlightBatch) -> None:
        """Let a batch wait again, in its place by sequence number."""
        sequence, index = batch.batch.sequence, 0
        while index < len(self.waiting) and self.waiting[index].batch.sequence < sequence:
            index += 1
        self.waiting.insert(index, batch)

    def end_backoff(self, sequence: int) -> None:
        """Let the waiting batch with this first sequence number be sent again, if there is one."""
        for batch in self.waiting:
            if batch.batch.sequence == sequence:
                batch.backing_off = False
                return
