"""The indexes of a segment and the leader epochs of a log, written beside them as Kafka does.

Kafka's tools use them. A broker here has all that it needs in memory, so nothing waits for them,
and those of the segment that is written are made again at each start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.log.segment import EPOCHS_FILE, INDEX, TIME_INDEX, Indexer, file_name, format_epochs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.log.batch import Batch
    from ..engine.disk import ActorDisk


class SegmentIndexes:
    """The indexes of the segment that is written."""

    def __init__(
        self, disk: ActorDisk, folder: str, base_offset: int, interval_bytes: int, origin_us: int
    ) -> None:
        """Begin empty indexes; an entry follows at least `interval_bytes` after the last."""
        self._indexer = Indexer(base_offset, interval_bytes)
        self._origin_us = origin_us
        self._files = [
            disk.open(f"{folder}/{file_name(base_offset, suffix)}")
            for suffix in (INDEX, TIME_INDEX)
        ]
        for file in self._files:
            file.truncate(0)

    def add(self, batch: Batch, latest_us: int, position: int, size: int) -> None:
        """Add a batch with its highest timestamp, and where it stands."""
        last = batch.base_offset + batch.count - 1
        latest_ms = (self._origin_us + latest_us) // 1_000
        self._append(*self._indexer.add(position, size, last, latest_ms))

    def finish(self) -> None:
        """Write the last entries: the segment is complete."""
        self._append(b"", self._indexer.finish())

    def _append(self, *entries: bytes) -> None:
        for file, entry in zip(self._files, entries, strict=True):
            if entry:
                file.append(entry, len(entry))


def write_epochs(disk: ActorDisk, folder: str, epochs: Iterable[tuple[int, int]]) -> None:
    """Write at which offset each leader epoch begins."""
    text = format_epochs(epochs).encode()
    path = f"{folder}/{EPOCHS_FILE}"
    file = disk.open(f"{path}.writing")
    file.truncate(0)
    file.append(text, len(text))
    disk.rename(f"{path}.writing", path)
