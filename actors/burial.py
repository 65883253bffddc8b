"""Where records go that no consumer could handle: a partition's way to the dead-letter topic.

A producer of its own for each partition that needs one, so that a dead letter is as safe as any
record: only when it is stored does the group's cursor pass over the original. Should the burier or
its partition move in between, a letter may be there twice, never not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from ..model import kinds
from ..model.batch import Batch
from ..model.errors import BadValueError
from ..model.settings import ProducerSettings
from ..model.topics import TopicPartition
from ..strategies.partitioning import partitioner
from .actor import receives
from .producer import Producer

if TYPE_CHECKING:
    from ..model.delivery import Terms
    from ..model.record import Record
    from ..model.spans import Span
    from .lane import Flight
    from .ref import Ref

TOPIC: Final = "dead-letter.topic"
PARTITION: Final = "dead-letter.partition"
OFFSET: Final = "dead-letter.offset"
GROUP: Final = "dead-letter.group"
DELIVERIES: Final = "dead-letter.deliveries"
REASON: Final = "dead-letter.reason"
HEADERS: Final = (TOPIC, PARTITION, OFFSET, GROUP, DELIVERIES, REASON)


@attrs.frozen
class Bury:
    """Asks for records to be put into the dead-letter topic."""

    subscription: str
    terms: Terms
    partition: TopicPartition
    batch: Batch
    deliveries: int
    reason: str


@attrs.frozen
class Buried:
    """They are there."""

    subscription: str
    span: Span
    reason: str


class Burier(Producer):
    """Sends dead letters for its partition."""

    def __init__(self, controller: Ref) -> None:
        super().__init__(controller, ProducerSettings(linger_ms=0), partitioner("sticky"))
        self.waiting: list[tuple[Bury, Ref]] = []
        self.burials: dict[tuple[TopicPartition, int], tuple[Bury, Ref]] = {}
        """What is on its way, by partition and sequence number."""

    @receives(Bury)
    def on_bury(self, bury: Bury) -> None:
        self.start(bury, self.sender)

    def start(self, bury: Bury, asker: Ref) -> None:
        name = bury.terms.dead_letter_topic
        assert name is not None
        topic = self.metadata.topics.get(name)
        if topic is None:
            self.waiting.append((bury, asker))
            self.refresh()
            return
        target = TopicPartition(name, bury.partition.partition % topic.partitions)
        lane = self.lanes.get(target)
        self.burials[target, lane.sequence if lane is not None else 0] = (bury, asker)
        self.enqueue(target, letter(bury, self.producer_id), (asker,))

    def confirm(self, flight: Flight, base_offset: int, append_time_us: int) -> None:
        bury, asker = self.burials.pop((flight.lane.partition, flight.batch.sequence))
        start = bury.batch.base_offset
        span = (start, start + bury.batch.count)
        self.send(asker, Buried(bury.subscription, span, bury.reason))

    def give_up(self, flight: Flight, reason: str) -> None:
        """Begin anew: there is nobody else to see to it, and nobody to be told."""
        flight.lane.settle(flight)
        self.note(kinds.GIVEN_UP, flight, reason)
        self.start(*self.burials.pop((flight.lane.partition, flight.batch.sequence)))

    def metadata_changed(self) -> None:
        super().metadata_changed()
        waiting, self.waiting = self.waiting, []
        for bury, asker in waiting:
            self.start(bury, asker)

    def misses_something(self) -> bool:
        return bool(self.waiting) or super().misses_something()


def letter(bury: Bury, producer: str) -> Batch:
    """The records as dead letters: themselves, and in their headers whence and why they came."""
    batch = bury.batch
    headers: list[tuple[tuple[str, Any], ...]] = []
    for record in batch.records(*bury.partition):
        known: dict[str, Any] = {
            TOPIC: record.topic, PARTITION: str(record.partition), OFFSET: str(record.offset),
            GROUP: bury.terms.group, DELIVERIES: str(bury.deliveries), REASON: bury.reason,
        }  # fmt: skip
        headers.append((*record.headers, *known.items()))
    return Batch(
        producer, 0, batch.count, keys=batch.keys, values=batch.values, headers=headers,
        timestamps_us=batch.timestamps_us, sizes=batch.sizes,
    )  # fmt: skip


@attrs.frozen
class DeadLetter:
    """Whence and why a record came to the dead letters."""

    topic: str
    partition: int
    offset: int
    group: str
    deliveries: int
    reason: str
    headers: tuple[tuple[str, Any], ...]
    """The headers it had."""


def dead_letter(record: Record) -> DeadLetter:
    """Read what a dead letter's headers say; those of its last burial, if there was another."""
    last: dict[str, Any] = {name: value for name, value in _last(record) if name in HEADERS}
    if len(last) < len(HEADERS):
        raise BadValueError(
            f"record {record.offset} of {record.topic}-{record.partition}: expected a dead letter"
        )
    return DeadLetter(
        last[TOPIC], int(last[PARTITION]), int(last[OFFSET]), last[GROUP], int(last[DELIVERIES]),
        last[REASON], record.headers[: -len(HEADERS)],
    )  # fmt: skip


def is_letter_of(record: Record, group: str) -> bool:
    """Whether a record is a dead letter of this group."""
    return (GROUP, group) in _last(record)


def _last(record: Record) -> tuple[tuple[str, Any], ...]:
    """The headers that a burial, if there was one, has put behind all others."""
    return record.headers[-len(HEADERS) :]
