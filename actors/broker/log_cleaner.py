"""Removes records from a partition's log, and groups that are gone.

The topic's clean-up policy says which records are removed: those that are too old or exceed the
size limit ("delete"), those that a later record of the same key replaces ("compact"), or those that
every group has consumed and whose retention time is over ("acknowledged"). Records that a group has
not consumed are retained unless the topic says otherwise; if they are removed, an event records
what the group has lost. A group that has been silent for its time to live retains nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from ...model.errors import BadValueError
from ...model.events import kinds
from ...model.log.offset_ranges import OffsetRange, merge
from ...model.payloads import references
from .payload_drops import PayloadDrops
from .share_partition import ALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ...model.log.batch import Batch
    from ...model.log.cursor import Cursor
    from ...model.log.log import MemoryLog
    from ...model.payloads import Payload
    from ...model.topics import Topic, TopicPartition
    from ..engine.effects import Effects
    from .journal import Entry
    from .partition_storage import PartitionStorage
    from .record_loader import RecordLoader
    from .share_partition import SharePartition


@attrs.frozen
class CleanUp:
    """The interval between two clean-ups has passed."""


@attrs.define(eq=False)
class GroupLease:
    """How long the cursor of a group that commits offsets is kept."""

    heard_us: int
    """Time of the group's last request; whoever handles one sets it."""
    ttl_us: int
    """The cursor is removed when the group has been silent for this long."""


@attrs.define(eq=False)
class ReservedRecords:
    """The records that are kept for a group without a consumer so far."""

    offset: int
    """The first of them."""
    since_us: int
    """When the group was created, or this partition."""
    ttl_us: int
    """They are kept for this long at most."""


class LogCleaner:
    """Cleans up the log and the cursors of one partition."""

    def __init__(
        self,
        effects: Effects,
        partition: TopicPartition,
        topic: Topic,
        epoch: int,
        log: MemoryLog,
        cursors: dict[str, Cursor],
        share_partitions: Mapping[str, SharePartition],
        leases: Iterable[tuple[str, int, int]] = (),
        reservations: Iterable[tuple[str, int, int, int]] = (),
        *,
        storage: PartitionStorage | None = None,
        loader: RecordLoader | None = None,
    ) -> None:
        """Begin with leases and reservations of the leader before, as in `PartitionState`."""
        self.leases = {group: GroupLease(heard_us, ttl_us) for group, heard_us, ttl_us in leases}
        """The lease of each group that commits offsets."""
        self.reservations = {group: ReservedRecords(*reserved) for group, *reserved in reservations}
        """Records kept for groups that were created and have had no consumer here."""
        self.payload_drops = PayloadDrops(effects)
        self._effects = effects
        self._topic = topic
        self._epoch = epoch
        self._log = log
        self._cursors = cursors
        self._share_partitions = share_partitions
        self._storage = storage
        self._loader = loader
        self._record = partial(effects.record, topic=partition.topic, partition=partition.partition)

    def clean_up(self) -> None:
        """Forget groups whose time to live is over, and remove records by the topic's policy."""
        self._expire_leases()
        if self._topic.cleanup == "compact":
            self._compact()
        else:
            limit = self._removal_limit()
            if limit > self._log.start_offset:
                self._when_loaded(limit, partial(self._remove_before, limit))

    def _when_loaded(self, limit: int, act: Callable[[], None]) -> None:
        """Remove records once those are in memory that have to be looked at."""
        log, loader = self._log, self._loader
        if loader is None:
            act()
        elif self._topic.payloads == "external":
            loader.when_loaded(log.start_offset, limit, act)
        else:
            positions = [cursor.committed or 0 for cursor in self._cursors.values()]
            positions += [reserved.offset for reserved in self.reservations.values()]
            loader.when_divisible((limit, *positions), act)

    def _expire_leases(self) -> None:
        now_us = self._effects.now
        for group, lease in list(self.leases.items()):
            if now_us - lease.heard_us > lease.ttl_us:
                del self.leases[group]
                self._cursors.pop(group, None)
                self._note(("forget", group))
                self._record(kinds.SUBSCRIPTION_REMOVED, group=group, reason="time to live expired")
        for group, reserved in list(self.reservations.items()):
            if now_us - reserved.since_us > reserved.ttl_us:
                del self.reservations[group]
                self._note(("unreserve", group))
                self._record(kinds.SUBSCRIPTION_REMOVED, group=group, reason="time to live expired")

    def reserve(self, group: str, offset: int, ttl_us: int) -> None:
        """Keep records for a group without a consumer, from an offset on."""
        now_us = self._effects.now
        self.reservations[group] = ReservedRecords(offset, now_us, ttl_us)
        self._note(("reserve", group, offset, now_us, ttl_us))

    def _note(self, entry: Entry) -> None:
        if self._storage is not None:
            self._storage.journal.add(entry)

    # Which records to remove

    def _first_unconsumed(self) -> int:
        """The first offset that some group has not consumed."""
        log = self._log
        positions = [cursor.committed or log.start_offset for cursor in self._cursors.values()]
        positions += [reserved.offset for reserved in self.reservations.values()]
        return min(positions, default=log.high_watermark)

    def _removal_limit(self) -> int:
        """The offset before which all records can be removed."""
        topic, log = self._topic, self._log
        limit = log.start_offset
        if topic.retention_us is not None:
            limit = log.offset_at_append_time(self._effects.true_now - topic.retention_us)
        elif topic.cleanup == "acknowledged":
            limit = log.high_watermark
        if topic.retention_bytes is not None:
            limit = max(limit, log.offset_for_bytes(topic.retention_bytes))
        if topic.retain_unconsumed:
            limit = min(limit, self._first_unconsumed())
        limit = min(limit, log.high_watermark)
        if self._storage is not None and topic.cleanup == "delete" and limit > log.start_offset:
            limit = max(log.start_offset, self._storage.segment_start(limit, log.end_offset))
        return limit

    def _compact(self) -> None:
        topic, log = self._topic, self._log
        up_to = self._first_unconsumed() if topic.retain_unconsumed else log.high_watermark
        if self._storage is not None:
            up_to = min(up_to, self._storage.active_offset)
        age_us = topic.retention_us
        tombstones_us = None if age_us is None else self._effects.true_now - age_us
        try:
            removed = log.compact(up_to, tombstones_us)
        except BadValueError as error:  # a key that cannot be compared with others
            self._record(kinds.CLEANUP_FAILED, detail=str(error))
            return
        if removed:
            spans = [(batch.base_offset, batch.base_offset + batch.count) for batch in removed]
            self._record_removed(removed, merge(spans))
            payloads = self._payloads(removed)
            if self._storage is None:
                self.payload_drops.drop(payloads)
            else:
                number = self._storage.compacted(log)
                self.payload_drops.drop_compacted(number, payloads)

    def _remove_before(self, limit: int) -> None:
        log = self._log
        if limit > log.start_offset:
            batches = log.read(log.start_offset, max_bytes=ALL_BYTES, up_to=limit)
            self._record_removed(batches, [(log.start_offset, limit)])
            log.truncate_before(limit)
            payloads = self._payloads(batches)
            if self._storage is None:
                self.payload_drops.drop(payloads)
            else:
                self.payload_drops.drop_before(limit, payloads)
                self._storage.start_moved(limit)

    def drop_all_payloads(self, then: Callable[[], None]) -> None:
        """Have the payloads of all records removed, as the topic was deleted; then go on."""
        log, loader = self._log, self._loader

        def drop() -> None:
            self.payload_drops.drop_waiting()
            self.payload_drops.drop(self._payloads(log.pieces(log.start_offset, log.end_offset)))
            then()

        if loader is None or self._topic.payloads == "inline":
            drop()
        else:
            loader.when_loaded(log.start_offset, log.end_offset, drop)

    def _payloads(self, batches: Iterable[Batch]) -> tuple[Payload, ...]:
        if self._topic.payloads == "inline":
            return ()
        known = [batch for batch in batches if batch.is_loaded]  # the others are damaged
        return tuple(each for batch in known for each in references(batch))

    # What follows from it

    def _record_removed(self, batches: Sequence[Batch], spans: Iterable[OffsetRange]) -> None:
        """Record a removal, and move the groups' cursors over it."""
        if batches:
            self._record(
                kinds.REMOVED,
                base_offset=batches[0].base_offset, count=sum(batch.count for batch in batches),
                bytes=sum(batch.bytes for batch in batches), epoch=self._epoch,
                reason=self._topic.cleanup,
            )  # fmt: skip
        for name, cursor in self._cursors.items():
            for span in spans:
                self._record_lost(name, cursor, span, batches)
        for name, reserved in self.reservations.items():
            for start, end in spans:
                self._record_missed(name, [(max(start, reserved.offset), end)], batches)

    def _record_lost(
        self, name: str, cursor: Cursor, span: OffsetRange, batches: Sequence[Batch]
    ) -> None:
        """Move a group's cursor over removed records, and record those it has not consumed."""
        share = self._share_partitions.get(name)
        start, end = span
        if share is not None and start <= cursor.next:
            missed = []
            if end > (cursor.committed or 0):
                self._note(("change", name, "archive", (start, end)))
                missed = cursor.archive(start, end)
        else:  # a cursor without a window, or with a window that ends before the removed records
            start = max(start, cursor.committed or 0)
            missed = [(start, end)] if start < end else []
        group = name if share is None else share.terms.group
        self._record_missed(group, missed, batches, None if share is None else share.subscriber)

    def _record_missed(
        self,
        group: str,
        missed: Sequence[OffsetRange],
        batches: Sequence[Batch],
        subscriber: str | None = None,
    ) -> None:
        """Record the removed records that a group has not consumed."""
        for lost in _parts_within(batches, missed):
            self._record(
                kinds.LOST, group=group, member=subscriber, consumer=subscriber,
                base_offset=lost.base_offset, count=lost.count, bytes=lost.bytes,
                epoch=self._epoch, append_time_us=lost.append_time_us,
                reason=f"removed before the group had it ({self._topic.cleanup})",
            )  # fmt: skip


def _parts_within(batches: Sequence[Batch], spans: Sequence[OffsetRange]) -> Iterator[Batch]:
    """Yield the parts of batches that lie in some ranges; both are in order."""
    for first, last in spans:
        for batch in batches:
            start = max(first - batch.base_offset, 0)
            end = min(last - batch.base_offset, batch.count)
            if start < end:
                yield batch[start:end]
