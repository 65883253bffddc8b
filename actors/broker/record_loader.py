"""Reads records of a partition from its disk again.

A partition on disk keeps its newest records in memory (model/log/record_cache.py). Whatever needs
older ones asks here, and goes on when they have been read: nothing waits for the disk. A batch that
is damaged on the disk is never delivered. It is recorded once, and its offsets cannot be read until
the broker has been started again, which cuts the log off there.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import attrs

from ...model.events import kinds
from ...model.log.record_cache import RecordCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ...model.log.batch import Batch
    from ...model.log.log import MemoryLog
    from ...model.log.offset_ranges import OffsetRange
    from ..engine.disk import FramesRead
    from ..engine.effects import Effects
    from .partition_storage import BatchesRead, PartitionStorage


@attrs.define(eq=False)
class PendingLoad:
    """Batches that are being read."""

    then: Callable[[], None]
    """What to do when all of them have been read."""
    reads: int = 0
    """Number of reads that are not done."""


class RecordLoader:
    """The records of one partition that are in memory, and the way to the others."""

    def __init__(
        self,
        effects: Effects,
        storage: PartitionStorage,
        log: MemoryLog,
        limit: int,
        in_use: Callable[[], Sequence[OffsetRange]],
    ) -> None:
        """Keep `limit` bytes of records in memory, and the ranges that `in_use` returns."""
        self._effects = effects
        self._storage = storage
        self._log = log
        self._cache = RecordCache(log, limit)
        self._in_use = in_use
        self._loads: dict[BatchesRead, tuple[PendingLoad, list[Batch | None]]] = {}
        """What each read is for; `None` stands for a batch that is no longer in the log."""
        self._waiting: deque[tuple[Callable[[], list[Batch]], Callable[[], None]]] = deque()
        """Work to be done in order: which batches it needs, and what it does."""
        self._damaged: dict[int, int] = {}
        """Offsets of damaged batches: the first one, and the one after the last."""

    def added(self, batch: Batch) -> None:
        """Count a batch that was appended, and forget older ones that are too many."""
        self._cache.add(batch)
        self.evict()

    def evict(self) -> None:
        """Forget the records that are too many, unless some are being read."""
        if not self._loads:
            self._cache.evict(self._in_use())

    def truncated(self) -> None:
        """Forget what is no longer in the log, as that was cut off: others may take its offsets."""
        end = self._log.end_offset
        self._cache.truncated()
        self._damaged = {first: last for first, last in self._damaged.items() if last <= end}
        for message, (pending, batches) in self._loads.items():
            left = [
                None if each is None or each.base_offset + each.count > end else each
                for each in batches
            ]
            self._loads[message] = pending, left

    # What can be read

    def is_simple(self, offset: int) -> bool:
        """Whether all records from an offset on are in memory."""
        return offset >= self._cache.complete_from

    def readable_to(self, offset: int) -> int:
        """Return the end of the records that can be read from an offset on."""
        ends = [start for start, end in self._damaged.items() if end > offset]
        return max(offset, min(ends, default=self._log.end_offset))

    def damaged_at(self, offset: int) -> OffsetRange | None:
        """Return the damaged batch with an offset, if there is one."""
        for start, end in self._damaged.items():
            if start <= offset < end:
                return start, end
        return None

    def missing(self, start: int, end: int) -> list[Batch]:
        """List the batches of a range that have to be read first and can be."""
        batches = self._cache.missing(start, end)
        if self._damaged:
            batches = [batch for batch in batches if batch.base_offset not in self._damaged]
        return batches

    # Reading

    def load(self, batches: Sequence[Batch], then: Callable[[], None]) -> None:
        """Read batches, then do something."""
        self._read(batches, PendingLoad(then))

    def _read(self, batches: Sequence[Batch], pending: PendingLoad) -> None:
        for message, part in self._storage.read_batches(batches):
            pending.reads += 1
            self._loads[message] = pending, [*part]

    def on_read(self, read: FramesRead) -> None:
        """Take the records that were read, and go on with what waited for them."""
        message: Any = read.message
        pending, batches = self._loads.pop(message)
        for batch, frame in zip(batches, read.contents.frames, strict=False):
            if batch is not None:
                self._cache.put(self._storage.reload(batch, frame))
        damage = read.contents.damage
        if damage is not None:
            first, *rest = batches[len(read.contents.frames) :]
            if first is not None:
                self._note_damage(first, damage)
            start = self._log.start_offset  # segments before it may be gone
            again = [each for each in rest if each is not None and each.base_offset >= start]
            self._read(again, pending)
        pending.reads -= 1
        if not pending.reads:
            pending.then()
        self.evict()

    def _note_damage(self, batch: Batch, damage: Any) -> None:
        """Record a damaged batch, unless the log begins after it by now: its file may be gone."""
        end = batch.base_offset + batch.count
        if end <= self._log.start_offset or batch.base_offset in self._damaged:
            return
        self._damaged[batch.base_offset] = end
        self._storage.record(
            kinds.LOG_DAMAGED, base_offset=batch.base_offset, count=batch.count,
            bytes=batch.bytes, epoch=batch.epoch, append_time_us=batch.append_time_us,
            detail=f"{damage.file} at {damage.position}: {damage.reason}",
        )  # fmt: skip

    # Work that needs records, in order

    def when_divisible(self, offsets: Iterable[int], act: Callable[[], None]) -> None:
        """Do something that divides batches at some offsets: the sizes of the parts are known then.

        Such work is done in order. If a batch is damaged, the sizes of its parts are estimated.
        """
        points = tuple(offsets)
        self._enqueue(lambda: self._cache.missing_around(points), act)

    def when_loaded(self, start: int, end: int, act: Callable[[], None]) -> None:
        """Do something that needs all records of a range, as far as they are not damaged."""
        self._enqueue(lambda: self._cache.missing(start, end), act)

    def _enqueue(self, needs: Callable[[], list[Batch]], act: Callable[[], None]) -> None:
        self._waiting.append((needs, act))
        if len(self._waiting) == 1:
            self._work()

    def _work(self) -> None:
        """Do the work whose records are there; `load` goes on with the rest."""
        while self._waiting:
            needs, act = self._waiting[0]
            batches = [each for each in needs() if each.base_offset not in self._damaged]
            if batches:
                self.load(batches, self._work)
                return
            act()
            self._waiting.popleft()
