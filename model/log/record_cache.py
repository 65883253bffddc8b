"""Which batches of a log on disk have their records in memory.

The newest records stay in memory, up to a limit, as consumers without lag read them. Older batches
keep their numbers only (`Batch.unloaded`). Records that are read from the disk again stay until
others take their place.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from .batch import Batch
from .log import MemoryLog
from .offset_ranges import OffsetRange


class RecordCache:
    """The records of one log that are in memory."""

    def __init__(self, log: MemoryLog, limit: int) -> None:
        """Keep records of so many bytes."""
        self._log = log
        self._limit = limit
        self._bytes = 0
        self._loaded: deque[Batch] = deque()
        """The batches in memory, oldest first; some may have been removed from the log."""
        self.complete_from = log.start_offset
        """All batches from this offset on are in memory."""
        for batch in log.whole_batches(log.start_offset, log.end_offset):
            if batch.is_loaded:
                self.add(batch)
            else:
                self.complete_from = batch.base_offset + batch.count

    def add(self, batch: Batch) -> None:
        """Count a batch that was appended."""
        self._loaded.append(batch)
        self._bytes += batch.bytes

    def put(self, batch: Batch) -> None:
        """Put a batch into the log that was read from the disk."""
        self._log.replace(batch)
        self.add(batch)

    def truncated(self) -> None:
        """Forget what is no longer in the log, as that was cut off."""
        end = self._log.end_offset
        self._loaded = deque(each for each in self._loaded if each.base_offset + each.count <= end)
        self._bytes = sum(each.bytes for each in self._loaded)
        self.complete_from = min(self.complete_from, end)

    def evict(self, in_use: Sequence[OffsetRange] = ()) -> None:
        """Forget the oldest records beyond the limit, except those in some ranges of offsets.

        The newest batch stays, however large it is.
        """
        kept: list[Batch] = []
        while self._bytes > self._limit and len(self._loaded) > 1:
            batch = self._loaded.popleft()
            self._bytes -= batch.bytes
            start, end = batch.base_offset, batch.base_offset + batch.count
            if any(start < last and first < end for first, last in in_use):
                kept.append(batch)
            else:
                self._log.replace(batch.unloaded())
                self.complete_from = max(self.complete_from, end)
        for batch in reversed(kept):
            self._loaded.appendleft(batch)
            self._bytes += batch.bytes

    def missing(self, start: int, end: int) -> list[Batch]:
        """List the batches in a range of offsets whose records are not in memory."""
        if start >= self.complete_from:
            return []
        end = min(end, self.complete_from)
        return [each for each in self._log.whole_batches(start, end) if not each.is_loaded]

    def missing_around(self, offsets: Iterable[int]) -> list[Batch]:
        """List the batches that one of the offsets divides, if their parts have no known size."""
        found: dict[int, Batch] = {}
        for offset in offsets:
            for batch in self.missing(offset, offset + 1):
                if batch.base_offset < offset and batch.known_sizes is None:
                    found[batch.base_offset] = batch
        return list(found.values())
