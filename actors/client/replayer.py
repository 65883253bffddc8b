"""Reads a topic again, from a time or an offset to the end that the log had at the start.

A replay belongs to no group and moves no group's position. It is an actor, so that in a simulation
its reading takes time while the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from ...model.events import kinds
from ...model.messages.client import (
    Fetch,
    Fetched,
    FindOffset,
    FoundOffset,
    NotLeader,
    OutOfRange,
    RecordsDamaged,
)
from ...model.topics import TopicPartition, partitions_of
from ..engine.actor import receives
from .client import Client

if TYPE_CHECKING:
    from ...model.settings import ConsumerSettings
    from ..engine.ref import Ref

REQUEST_TIMEOUT_US: Final = 1_000_000


@attrs.frozen
class RepeatRequests:
    """Time to repeat requests that have not been answered."""


@attrs.define(eq=False)
class ReplayPosition:
    """The progress of a replay in one partition."""

    partition: TopicPartition
    offset: int | None
    """Next offset to read; `None` until it has been looked up by time."""
    end: int | None = None
    """Offset at which to stop; `None` until the leader has answered."""
    request: int = 0
    """Number of the request in flight; 0 if there is none."""
    requested_us: int = 0

    def is_done(self) -> bool:
        """Whether all records up to the end have been read."""
        return self.end is not None and self.offset is not None and self.offset >= self.end


class Replayer(Client):
    """Reads each partition of a topic once, and stops."""

    def __init__(
        self,
        controllers: tuple[Ref, ...],
        settings: ConsumerSettings,
        topic: str,
        since_us: int | None,
        offset: int | None,
    ) -> None:
        super().__init__(controllers, settings)
        self.topic = topic
        self.since_us = since_us
        self.offset = offset
        self.positions: dict[TopicPartition, ReplayPosition] = {}

    def started(self) -> None:
        super().started()
        self.every(REQUEST_TIMEOUT_US, RepeatRequests())
        self.cluster.start()

    def metadata_changed(self) -> None:
        if not self.positions:
            for partition in partitions_of(self.topic, self.cluster.current.partitions(self.topic)):
                self.positions[partition] = ReplayPosition(partition, self.offset)
        for position in self.positions.values():
            self.request_next(position)

    def misses_something(self) -> bool:
        return not self.positions or any(self.cluster.leader(tp) is None for tp in self.positions)

    def connection_lost(self, ref: Ref) -> None:
        for position in self.positions.values():
            position.request = 0

    @receives(RepeatRequests)
    def on_look_again(self, again: RepeatRequests) -> None:
        for position in self.positions.values():
            if position.request and self.now - position.requested_us >= REQUEST_TIMEOUT_US:
                position.request = 0
            self.request_next(position)

    def request_next(self, position: ReplayPosition) -> None:
        """Ask a leader for offsets or records, unless a request is in flight or all is read."""
        leader = self.cluster.leader(position.partition)
        if position.request or position.is_done():
            return
        if leader is None:
            self.cluster.refresh()
            return
        position.request, position.requested_us = next(self.request_ids), self.now
        if position.end is None or position.offset is None:
            since_us = 0 if self.since_us is None else self.since_us
            self.send(leader, FindOffset(position.request, since_us))
        else:
            size = self.settings.max_partition_fetch_bytes
            self.send(leader, Fetch(position.request, position.offset, size, 0, 0))

    def take_answered(self, request: int) -> ReplayPosition | None:
        """The position that waits for the answer to a request; it waits no more."""
        for position in self.positions.values():
            if position.request == request:
                position.request = 0
                return position
        return None

    @receives(FoundOffset)
    def on_found(self, found: FoundOffset) -> None:
        position = self.take_answered(found.request)
        if position is not None:
            position.end = found.end_offset
            if position.offset is None:
                position.offset = found.offset
            self.continue_or_stop(position)

    @receives(Fetched)
    def on_fetched(self, fetched: Fetched) -> None:
        position = self.take_answered(fetched.request)
        if position is None:
            return
        assert position.end is not None
        position.offset = position.end
        for batch in fetched.batches:
            piece = batch[: max(0, position.end - batch.base_offset)]
            if piece.count:
                position.offset = piece.base_offset + piece.count
                self.record(
                    kinds.REPLAYED, topic=self.topic, partition=position.partition.partition,
                    consumer=self.ref.name, base_offset=piece.base_offset, count=piece.count,
                    bytes=piece.bytes, append_time_us=piece.append_time_us,
                )  # fmt: skip
        self.continue_or_stop(position)

    @receives(OutOfRange)
    def on_out_of_range(self, out: OutOfRange) -> None:
        position = self.take_answered(out.request)
        if position is not None:
            position.offset = max(position.offset or 0, out.start_offset)
            position.end = min(out.end_offset, position.end or out.end_offset)
            self.continue_or_stop(position)

    @receives(RecordsDamaged)
    def on_records_damaged(self, damaged: RecordsDamaged) -> None:
        position = self.take_answered(damaged.request)
        if position is not None:
            position.offset = damaged.end_offset
            self.continue_or_stop(position)

    @receives(NotLeader)
    def on_not_leader(self, refused: NotLeader) -> None:
        self.take_answered(refused.request)
        self.cluster.refresh()

    def continue_or_stop(self, position: ReplayPosition) -> None:
        self.request_next(position)
        if all(each.is_done() for each in self.positions.values()):
            self.stop()
