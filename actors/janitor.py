"""The tidying half of a partition: what is removed, when, and what is lost by it.

Records go when their topic's rule says so: too old or too many ("delete"), superseded by a later
record of their key ("compact"), or done with by every group and past their time to live
("acknowledged"). What a group has still to consume stays, unless the topic says otherwise; then
an event says what the group has lost. Groups that have not been heard of for their time to live
are owed nothing any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..model import kinds
from ..model.errors import BadValueError
from ..model.payloads import DropPayloads, references
from ..model.spans import Span, merged
from .actor import receives
from .dispatcher import ALL, Dispatcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..model.batch import Batch
    from ..model.cursor import Cursor
    from ..model.settings import ClusterSettings
    from ..model.topics import Topic


@attrs.frozen
class CleanUp:
    """Time to see what can go."""


class Janitor(Dispatcher):
    """Keeps a partition's log and cursors no larger than they need to be."""

    config: Topic
    epoch: int

    def __init__(self, settings: ClusterSettings) -> None:
        super().__init__()
        self.settings = settings
        self.leases: dict[str, tuple[int, int]] = {}
        """When groups that commit were last heard of, and how long they are waited for."""

    def started(self) -> None:
        self.every(self.settings.log_retention_check_interval_ms * 1_000, CleanUp())

    @receives(CleanUp)
    def on_clean_up(self, clean_up: CleanUp) -> None:
        if self.resigned:
            return
        self.forget_groups()
        if self.config.cleanup == "compact":
            self.compact()
        else:
            self.remove_before(self.limit())

    def forget_groups(self) -> None:
        for group, (heard_us, ttl_us) in list(self.leases.items()):
            if self.now - heard_us > ttl_us:
                del self.leases[group]
                self.cursors.pop(group, None)
                detail = "away for its time to live"
                self.note_here(kinds.SUBSCRIPTION_REMOVED, group=group, detail=detail)

    # What may go

    def owed_from(self) -> int:
        """The first offset that some group has still to consume."""
        log = self.log
        positions = [cursor.committed or log.start_offset for cursor in self.cursors.values()]
        return min(positions, default=log.end_offset)

    def limit(self) -> int:
        """Below which offset everything can go."""
        topic, log = self.config, self.log
        limit = log.start_offset
        if topic.retention_us is not None:
            limit = log.offset_at_append_time(self.true_now - topic.retention_us)
        elif topic.cleanup == "acknowledged":
            limit = log.end_offset
        if topic.retention_bytes is not None:
            limit = max(limit, log.offset_for_bytes(topic.retention_bytes))
        return min(limit, self.owed_from()) if topic.keep_owed else limit

    def compact(self) -> None:
        topic, log = self.config, self.log
        up_to = self.owed_from() if topic.keep_owed else log.end_offset
        age_us = topic.retention_us
        tombstones_us = None if age_us is None else self.true_now - age_us
        try:
            removed = log.compact(up_to, tombstones_us)
        except BadValueError as error:  # a key that cannot be told from others
            self.note_here(kinds.CLEANUP_FAILED, detail=str(error))
            return
        if removed:
            spans = [(batch.base_offset, batch.base_offset + batch.count) for batch in removed]
            self.went(removed, merged(spans))

    def remove_before(self, limit: int) -> None:
        log = self.log
        if limit > log.start_offset:
            batches = log.read(log.start_offset, max_bytes=ALL, up_to=limit)
            self.went(batches, [(log.start_offset, limit)])
            log.truncate_before(limit)

    # What goes with it

    def went(self, batches: Sequence[Batch], spans: Iterable[Span]) -> None:
        """Take note of records that go: for the log, for the groups, for the payload store."""
        if batches:
            self.note_here(
                kinds.REMOVED,
                base_offset=batches[0].base_offset, count=sum(batch.count for batch in batches),
                bytes=sum(batch.bytes for batch in batches), epoch=self.epoch,
                detail=self.config.cleanup,
            )  # fmt: skip
        for group, cursor in self.cursors.items():
            for span in spans:
                self.lose_to(group, cursor, span, batches)
        if self.config.keeper is not None:
            gone = tuple(each for batch in batches for each in references(batch))
            self.send(self.config.keeper, DropPayloads(gone))

    def lose_to(self, group: str, cursor: Cursor, span: Span, batches: Sequence[Batch]) -> None:
        """Move a group's position over what is gone, and record what it has not consumed of it."""
        sub = self.subscriptions.get(group)
        start, end = span
        if sub is not None and start <= cursor.next:
            missed = cursor.drop(start, end) if end > (cursor.committed or 0) else []
        else:  # it has no window, or has not come so far: it will find a gap
            start = max(start, cursor.committed or 0)
            missed = [(start, end)] if start < end else []
        for lost in parts_of(batches, missed):
            self.note_here(
                kinds.LOST,
                group=group if sub is None else sub.terms.group,
                member=None if sub is None else sub.subscriber,
                base_offset=lost.base_offset, count=lost.count, bytes=lost.bytes,
                epoch=self.epoch, append_time_us=lost.append_time_us,
                detail=f"removed before the group had it ({self.config.cleanup})",
            )  # fmt: skip


def parts_of(batches: Sequence[Batch], spans: Sequence[Span]) -> Iterator[Batch]:
    """Cut out what batches have in some ranges; both are in order."""
    for first, last in spans:
        for batch in batches:
            start = max(first - batch.base_offset, 0)
            end = min(last - batch.base_offset, batch.count)
            if start < end:
                yield batch[start:end]
