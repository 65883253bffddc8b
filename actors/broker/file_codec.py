"""Batches and journal entries as the bytes of real files.

Segments are Kafka's: record batches of version 2 (model/log/record_batch.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...model.disk import Damage, FileContents
from ...model.journal import encode_entry, scan_entries
from ...model.log import record_batch, segment
from ...model.log.batch import Batch
from .journal import JOURNAL, SNAPSHOT
from .partition_storage import LogFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...model.serializers import Serializer
    from ..engine.disk import Scanners
    from .journal import Entry


class FileCodec:
    """The codec of one partition on a real disk."""

    has_indexes = True

    def __init__(self, serializer: Serializer, origin_us: int) -> None:
        """Store values with a serialiser; `origin_us` is the Unix time of time zero."""
        self._serializer = serializer
        self._origin_us = origin_us

    def encode_batch(self, frame: LogFrame, number: int) -> bytes:
        """Make the bytes of a batch of the producer with this number."""
        return record_batch.encode(
            _storable(frame.batch), producer_id=number, producer_epoch=frame.producer_epoch,
            origin_us=self._origin_us, dumps=self._serializer.dumps,
        )  # fmt: skip

    def encode_entry(self, entry: Entry) -> bytes:
        """Make the bytes of an entry of the journal."""
        return encode_entry(entry)

    def state_scanners(self) -> Scanners:
        """Read the files of the journal."""
        return {JOURNAL: scan_entries, SNAPSHOT: scan_entries}

    def log_scanners(self, names: Mapping[int, tuple[str, str]]) -> Scanners:
        """Read segments, whose producers have these names by number."""
        decode = partial(
            record_batch.decode, names=names, origin_us=self._origin_us,
            loads=self._serializer.loads,
        )  # fmt: skip
        return {segment.LOG: partial(scan_log, decode)}


def scan_log(
    decode: Callable[[bytes], Batch], name: str, read: Callable[[int, int], bytes], size: int
) -> FileContents:
    """Read the batches of a segment, up to the first damaged one."""
    found = segment.scan(read, size, checksums=True)
    frames, ends = [], []
    for index, position in enumerate(found.positions.tolist()):
        header = found.header(index)
        data = read(position, header.size)
        frames.append(LogFrame(decode(data), header.producer_epoch))
        ends.append(position + header.size)
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
    return made.stamped(batch.base_offset, batch.append_time_us, batch.epoch)
