"""Dead letters: records that no consumer could process, written to another topic.

Each partition that needs one has its own producer for them. The group's cursor passes over a record
only after its dead letter is stored. If the partition moves before that, the dead letter may be
written twice, but it is never lost.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from ...model.errors import BadValueError
from ...model.log.batch import Batch
from ...model.settings import ProducerSettings
from ...model.topics import TopicPartition
from ..client.sending_client import SendingClient
from ..engine.actor import receives

if TYPE_CHECKING:
    from ...model.log.offset_ranges import OffsetRange
    from ...model.log.record import Record, RecordId
    from ...model.messages.share import SubscriptionConfig
    from ..engine.ref import Ref

TOPIC: Final = "dead-letter.topic"
PARTITION: Final = "dead-letter.partition"
OFFSET: Final = "dead-letter.offset"
PRODUCER: Final = "dead-letter.producer"
SEQUENCE: Final = "dead-letter.sequence"
GROUP: Final = "dead-letter.group"
DELIVERIES: Final = "dead-letter.deliveries"
REASON: Final = "dead-letter.reason"
HEADERS: Final = (TOPIC, PARTITION, OFFSET, PRODUCER, SEQUENCE, GROUP, DELIVERIES, REASON)


@attrs.frozen
class WriteDeadLetters:
    """Asks for records to be written to the dead-letter topic. Answered by `DeadLettersWritten`."""

    subscription: str
    """Subscription in which the records failed."""
    terms: SubscriptionConfig
    """Configuration of the subscription, with the dead-letter topic."""
    partition: TopicPartition
    """Partition of the records."""
    batch: Batch
    """The records."""
    deliveries: int
    """Number of times they were delivered."""
    reason: str
    """Why they failed."""


@attrs.frozen
class DeadLettersWritten:
    """The dead letters are stored."""

    subscription: str
    """Subscription in which the records failed."""
    span: OffsetRange
    """Offsets of the original records."""
    reason: str
    """Why they failed."""


class DeadLetterProducer(SendingClient):
    """Writes the dead letters of one partition."""

    def __init__(self, controllers: tuple[Ref, ...]) -> None:
        super().__init__(controllers, ProducerSettings(linger_ms=0))
        self.awaiting_metadata: list[tuple[WriteDeadLetters, Ref]] = []
        """Requests for a dead-letter topic that is not known, each with its sender."""

    def started(self) -> None:
        super().started()
        self.cluster.start()

    @receives(WriteDeadLetters)
    def on_bury(self, bury: WriteDeadLetters) -> None:
        self.write(bury, self.sender)

    def write(self, bury: WriteDeadLetters, caller: Ref) -> None:
        name = bury.terms.dead_letter_topic
        assert name is not None
        topic = self.cluster.current.topics.get(name)
        if topic is None:
            self.awaiting_metadata.append((bury, caller))
            self.cluster.refresh()
            return
        target = TopicPartition(name, bury.partition.partition % topic.partitions)
        batch = letter(bury, self.batch_sender.producer_id)
        self.batch_sender.enqueue(target, batch, self.now, partial(self.written, bury, caller))

    def written(
        self,
        bury: WriteDeadLetters,
        caller: Ref,
        base_offset: int,
        append_time_us: int,
        error: Exception | None,
    ) -> None:
        """Report that dead letters are stored, or start again if they were given up.

        Nobody else would write them, so they are tried until they are stored.
        """
        if error is not None:
            self.write(bury, caller)
            return
        start = bury.batch.base_offset
        span = (start, start + bury.batch.count)
        self.send(caller, DeadLettersWritten(bury.subscription, span, bury.reason))

    def metadata_changed(self) -> None:
        super().metadata_changed()
        waiting, self.awaiting_metadata = self.awaiting_metadata, []
        for bury, caller in waiting:
            self.write(bury, caller)

    def misses_something(self) -> bool:
        return bool(self.awaiting_metadata) or super().misses_something()


def letter(bury: WriteDeadLetters, producer: str) -> Batch:
    """Copy records as dead letters, with their origin and the reason in added headers."""
    batch = bury.batch
    headers: list[tuple[tuple[str, Any], ...]] = []
    for record in batch.records(*bury.partition):
        known: dict[str, Any] = {
            TOPIC: record.topic, PARTITION: str(record.partition), OFFSET: str(record.offset),
            PRODUCER: record.instance, SEQUENCE: str(record.sequence),
            GROUP: bury.terms.group, DELIVERIES: str(bury.deliveries), REASON: bury.reason,
        }  # fmt: skip
        headers.append((*record.headers, *known.items()))
    return Batch(
        producer, 0, batch.count, keys=batch.keys, values=batch.values, headers=headers,
        timestamps_us=batch.timestamps_us, sizes=batch.sizes,
    )  # fmt: skip


@attrs.frozen
class DeadLetter:
    """The origin of a dead letter, and why it was written."""

    topic: str
    """Topic of the original record."""
    partition: int
    """Partition of the original record."""
    offset: int
    """Offset of the original record."""
    id: RecordId
    """Id of the original record: the same if its dead letter was written twice."""
    group: str
    """Group that could not process the record."""
    deliveries: int
    """Number of times the record was delivered to the group."""
    reason: str
    """Why the last delivery failed."""
    headers: tuple[tuple[str, Any], ...]
    """Headers of the original record."""


def dead_letter(record: Record) -> DeadLetter:
    """Read the origin of a dead letter from its headers.

    A dead letter of a dead letter has several sets of headers: the last one counts.

    Args:
        record: A record of a dead-letter topic.

    Raises:
        BadValueError: The record is not a dead letter.
    """
    last: dict[str, Any] = {name: value for name, value in _last(record) if name in HEADERS}
    if len(last) < len(HEADERS):
        raise BadValueError(
            f"record {record.offset} of {record.topic}-{record.partition}: expected a dead letter"
        )
    topic, partition = last[TOPIC], int(last[PARTITION])
    return DeadLetter(
        topic, partition, int(last[OFFSET]),
        (last[PRODUCER], topic, partition, int(last[SEQUENCE])),
        last[GROUP], int(last[DELIVERIES]), last[REASON], record.headers[: -len(HEADERS)],
    )  # fmt: skip


def is_letter_of(record: Record, group: str) -> bool:
    """Whether a record is a dead letter of this group."""
    return (GROUP, group) in _last(record)


def _last(record: Record) -> tuple[tuple[str, Any], ...]:
    """The headers that were added last, if the record is a dead letter.

    They are texts; a record that was read from a file has them as bytes.
    """
    return tuple(
        (name, value.decode() if isinstance(value, bytes) else value)
        for name, value in record.headers[-len(HEADERS) :]
    )
