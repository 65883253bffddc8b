"""Reads a topic again, from a time or an offset up to what was the latest when it began.

It belongs to no group and moves nobody's position: a controlled replay, as an actor of its own, so
that time goes on for all others meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ..model import kinds
from ..model.exchange import Fetch, Fetched, FindOffset, FoundOffset, NotLeader, OutOfRange
from ..model.topics import TopicPartition, partitions_of
from .actor import receives
from .client import Client

if TYPE_CHECKING:
    from ..model.settings import ConsumerSettings
    from .ref import Ref

LATE_US: Final = 1_000_000


@attrs.frozen
class LookAgain:
    """Time to see whether an answer is missing."""


@attrs.define(eq=False)
class Reading:
    """How far a partition has been read."""

    partition: TopicPartition
    offset: int | None
    """The next one to read; None until it is found by its time."""
    end: int | None = None
    """Where it ends; None until the leader has said so."""
    request: int = 0
    asked_us: int = 0

    def is_done(self) -> bool:
        """Whether all has been read."""
        return self.end is not None and self.offset is not None and self.offset >= self.end


class Replayer(Client):
    """Reads what there is, once, and ends."""

    def __init__(
        self,
        controller: Ref,
        settings: ConsumerSettings,
        topic: str,
        since_us: int | None,
        offset: int | None,
    ) -> None:
        super().__init__(controller, settings)
        self.topic = topic
        self.since_us = since_us
        self.offset = offset
        self.readings: dict[TopicPartition, Reading] = {}

    def started(self) -> None:
        self.every(LATE_US, LookAgain())
        self.look_around()

    def metadata_changed(self) -> None:
        if not self.readings:
            for partition in partitions_of(self.topic, self.metadata.partitions(self.topic)):
                self.readings[partition] = Reading(partition, self.offset)
        for reading in self.readings.values():
            self.go_on(reading)

    def misses_something(self) -> bool:
        return not self.readings or any(self.leader(tp) is None for tp in self.readings)

    def connection_lost(self, ref: Ref) -> None:
        for reading in self.readings.values():
            reading.request = 0

    @receives(LookAgain)
    def on_look_again(self, again: LookAgain) -> None:
        for reading in self.readings.values():
            if reading.request and self.now - reading.asked_us >= LATE_US:
                reading.request = 0
            self.go_on(reading)

    def go_on(self, reading: Reading) -> None:
        leader = self.leader(reading.partition)
        if reading.request or reading.is_done():
            return
        if leader is None:
            self.refresh()
            return
        reading.request, reading.asked_us = self.next_request(), self.now
        if reading.end is None or reading.offset is None:
            since_us = 0 if self.since_us is None else self.since_us
            self.send(leader, FindOffset(reading.request, since_us))
        else:
            size = self.settings.max_partition_fetch_bytes
            self.send(leader, Fetch(reading.request, reading.offset, size, 0, 0))

    def answered(self, request: int) -> Reading | None:
        for reading in self.readings.values():
            if reading.request == request:
                reading.request = 0
                return reading
        return None

    @receives(FoundOffset)
    def on_found(self, found: FoundOffset) -> None:
        reading = self.answered(found.request)
        if reading is not None:
            reading.end = found.end_offset
            if reading.offset is None:
                reading.offset = found.offset
            self.next_or_end(reading)

    @receives(Fetched)
    def on_fetched(self, fetched: Fetched) -> None:
        reading = self.answered(fetched.request)
        if reading is None:
            return
        assert reading.end is not None
        reading.offset = reading.end
        for batch in fetched.batches:
            piece = batch[: max(0, reading.end - batch.base_offset)]
            if piece.count:
                reading.offset = piece.base_offset + piece.count
                self.record(
                    kinds.REPLAYED, topic=self.topic, partition=reading.partition.partition,
                    member=self.ref.name, base_offset=piece.base_offset, count=piece.count,
                    bytes=piece.bytes, append_time_us=piece.append_time_us,
                )  # fmt: skip
        self.next_or_end(reading)

    @receives(OutOfRange)
    def on_out_of_range(self, out: OutOfRange) -> None:
        reading = self.answered(out.request)
        if reading is not None:
            reading.offset = max(reading.offset or 0, out.start_offset)
            reading.end = min(out.end_offset, reading.end or out.end_offset)
            self.next_or_end(reading)

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        self.answered(refused.request)
        self.refresh()

    def next_or_end(self, reading: Reading) -> None:
        self.go_on(reading)
        if all(each.is_done() for each in self.readings.values()):
            self.stop()
