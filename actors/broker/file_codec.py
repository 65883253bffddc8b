"""Batches and journal entries as the bytes of real files.

Segments are Kafka's: record batches of version 2 (model/log/record_batch.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from ...model.disk import Damage, FileContents
from ...model.journal import encode_entry, scan_entries
from ...model.log import record_batch, segment
from ...model.log.batch import Batch
from .journal import JOURNAL, SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...model.serializers import Serializer
    from ..engine.disk import Scan, Scanners
    from .journal import Entry


class FileCodec:
    """The codec of one partition on a real disk."""

    has_indexes = True

    def __init__(self, serializer: Serializer, origin_us: int) -> None:
        """Store values with a serialiser; `origin_us` is the Unix time of time zero."""
        self._serializer = serializer
        self._origin_us = origin_us

    def encode_batch(self, batch: Batch, number: int) -> bytes:
        """Make the bytes of a batch of the producer with this number."""
        return record_batch.encode(
            _storable(batch), producer_id=number, origin_us=self._origin_us,
            dumps=self._serializer.dumps,
        )  # fmt: skip

    def encode_entry(self, entry: Entry) -> bytes:
        """Make the bytes of an entry of the journal."""
        return encode_entry(entry)

    def state_scanners(self) -> Scanners:
        """Read the files of the journal."""
        return {JOURNAL: scan_entries, SNAPSHOT: scan_entries}

    def log_scanners(
        self, names: Mapping[int, tuple[str, str]], verified_before: int, *, loaded: bool
    ) -> Scanners:
        """Read segments, whose producers have these names by number."""
        scan = partial(self._scan_log, names, verified_before, loaded)
        return {segment.LOG: scan}

    def frame_scan(self, start: int) -> Scan:
        """Read whole frames from a position on, and verify them."""
        return partial(scan_frames, start)

    def reload(self, batch: Batch, frame: bytes) -> Batch:
        """Return a batch with its records, which its frame has."""
        return record_batch.reload(
            batch, frame, origin_us=self._origin_us, loads=self._serializer.loads
        )

    def _scan_log(
        self,
        names: Mapping[int, tuple[str, str]],
        verified_before: int,
        loaded: bool,
        name: str,
        read: Callable[[int, int], bytes],
        size: int,
    ) -> FileContents:
        """Read the batches of a segment, up to the first damaged one."""
        found = segment.scan(read, size, checksums=True, verified_before=verified_before)
        batches = []
        for index, position in enumerate(found.positions.tolist()):
            header = found.header(index)
            if loaded:
                batch = record_batch.decode(
                    read(position, header.size), names=names, origin_us=self._origin_us,
                    loads=self._serializer.loads,
                )  # fmt: skip
            else:
                batch = record_batch.locate(header, names=names, origin_us=self._origin_us)
            batches.append(batch)
        return _contents(name, size, found, batches)


def scan_frames(start: int, name: str, read: Callable[[int, int], bytes], end: int) -> FileContents:
    """Read the frames of a segment between two positions as bytes, up to the first damaged one."""
    data = read(start, end - start)

    def read_part(position: int, size: int) -> bytes:
        return data[position - start : position - start + size]

    found = segment.scan(read_part, start + len(data), start, checksums=True)
    sizes = found.headers["size"].tolist()
    frames = [read_part(*each) for each in zip(found.positions.tolist(), sizes, strict=True)]
    contents = _contents(name, end - start, found, frames)
    if contents.damage is None and start + len(data) < end:
        cut_off = Damage(name, start + len(data), "the file ends here")
        return attrs.evolve(contents, damage=cut_off)
    return contents


def _contents(
    name: str, size: int, found: segment.SegmentScan, frames: Sequence[object]
) -> FileContents:
    ends = (found.positions + found.headers["size"]).tolist()
    damage = found.damage
    return FileContents(
        tuple(frames), tuple(ends), size,
        None if damage is None else Damage(name, damage.position, damage.reason),
    )  # fmt: skip


def _storable(batch: Batch) -> Batch:
    """Return a batch whose keys can be stored: those of a load generator are numbers."""
    keys = batch.keys
    if keys is None or batch.values is not None:
        return batch
    texts = tuple(str(record.key) for record in batch.records("", 0))
    made = Batch(
        batch.producer, batch.sequence, batch.count, keys=texts, values=None,
        timestamps_us=batch.timestamps_us, sizes=batch.sizes,
    )  # fmt: skip
    return made.stamped(batch.base_offset, batch.append_time_us, batch.epoch, batch.producer_epoch)
