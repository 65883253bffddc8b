"""The files of a partition's log, as Kafka lays them out: segments, indexes and leader epochs.

A log is a chain of segments. Each is named by the offset of its first record, in 20 digits, and has
three files: frames one after the other (.log, see record_batch.py), and two sparse indexes, which
lead to a position by offset (.index) and to an offset by time (.timeindex). Numbers in an index are
relative to the segment's first offset, so that 32 bits suffice.

| file | entry | meaning |
|---|---|---|
| .index | offset, position: 4 bytes each | the batch at this position ends with this offset |
| .timeindex | timestamp in ms: 8 bytes, offset: 4 bytes | no batch up to this offset is later |
| leader-epoch-checkpoint | epoch, offset: a line of text | the first offset of a leader's epoch |

Indexes can be made again from the log, and after a crash they are. Nothing here does I/O: `scan`
takes a function that reads.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from reprlib import repr as short
from struct import Struct
from typing import Any, Final, TypeAlias

import attrs
import google_crc32c
import numpy as np
import numpy.typing as npt

from ..errors import BadValueError
from .record_batch import (
    COVERED_AT,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    DamagedBatchError,
    HeaderFields,
    read_fields,
    verify_checksum,
)

LOG: Final = ".log"
"""Suffix of the file with the batches."""
INDEX: Final = ".index"
"""Suffix of the offset index."""
TIME_INDEX: Final = ".timeindex"
"""Suffix of the time index."""
EPOCHS_FILE: Final = "leader-epoch-checkpoint"
"""Name of the file with the leader epochs of a partition."""

Read: TypeAlias = Callable[[int, int], bytes]
"""Reads so many bytes at a position: `read(position, size)`. At the end of a file, fewer."""

_DIGITS: Final = 20
_MAX_RELATIVE: Final = 2**31 - 1


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file."""
    return f"{base_offset:0{_DIGITS}}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Return the base offset and the suffix in the name of a segment's file; `None` for others."""
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    known = suffix in (LOG, INDEX, TIME_INDEX)
    if not known or len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits), suffix


# Scanning


@attrs.frozen
class Damage:
    """The first place of a segment that cannot be read."""

    position: int
    """Position of the batch that is damaged: the end of the valid ones before it."""
    reason: str
    """What is wrong, as a text for people."""
    in_the_middle: bool
    """Whether valid batches follow, or the batch is valid but for its offset. A crash while writing
    damages only the end of a segment, which can be cut off; damage in the middle has another cause,
    and cutting there loses records."""


HEADER_DTYPE: Final = np.dtype(
    [
        ("base_offset", "i8"), ("size", "i8"), ("leader_epoch", "i4"), ("crc", "u4"),
        ("attributes", "i2"), ("last_offset_delta", "i4"), ("base_timestamp_ms", "i8"),
        ("max_timestamp_ms", "i8"), ("producer_id", "i8"), ("producer_epoch", "i2"),
        ("base_sequence", "i4"), ("count", "i4"),
    ]
)  # fmt: skip
"""The fields of a `BatchHeader`, for arrays of them."""


@attrs.frozen(eq=False)
class SegmentScan:
    """The batches of a segment, up to its end or the first damage."""

    positions: npt.NDArray[np.int64]
    """Position of each batch."""
    headers: npt.NDArray[Any]
    """Header of each batch, as an array of `HEADER_DTYPE`."""
    valid_size: int
    """Position after the last batch that is valid."""
    next_offset: int
    """Offset after the last record that is valid."""
    damage: Damage | None
    """What follows them, if it is not the end."""

    def __len__(self) -> int:
        return len(self.positions)

    def header(self, index: int) -> BatchHeader:
        """Return the header of one batch."""
        return BatchHeader(*self.headers[index].item())


_CHUNK: Final = 2**20
"""Bytes that are read at once where all are looked at."""
_GLANCE: Final = 2**12
"""Bytes that are read at once where only headers are looked at: a page costs as much as a byte."""


def scan(
    read: Read, size: int, start: int = 0, base_offset: int = 0, *, checksums: bool,
    verified_before: int = 0,
) -> SegmentScan:  # fmt: skip
    """Walk through the batches of a segment from a position on, which must be that of a batch.

    `base_offset` is the lowest offset that the first batch may have. Offsets rise from batch to
    batch; compaction leaves gaps. With `checksums` every byte is read and verified, a chunk at a
    time, otherwise the headers only. Of batches below the offset `verified_before` only the headers
    are read, too.
    """
    walk = _Walk(read, size, start, base_offset)
    try:
        while walk.at < size:
            verifying = checksums and walk.next_offset >= verified_before
            walk.add(_CHUNK if verifying else _GLANCE, verified_before if checksums else None)
    except DamagedBatchError as error:
        follows = _is_followed(read, size, walk.at, walk.lowest)
        return walk.result(Damage(walk.at, error.reason, follows))
    return walk.result(None)


_STORED_DTYPE: Final = np.dtype(
    [
        ("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"),
        ("crc", ">u4"), ("attributes", ">i2"), ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"), ("max_timestamp_ms", ">i8"), ("producer_id", ">i8"),
        ("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("count", ">i4"),
    ]
)  # fmt: skip
"""A header as it stands in a file."""


class _Walk:
    """How far a scan has come. Headers are kept as bytes: a segment may have millions."""

    def __init__(self, read: Read, size: int, start: int, base_offset: int) -> None:
        self._read = read
        self._size = size
        self._chunk = b""
        self._chunk_at = start
        self._positions = array("q")
        self._headers = bytearray()
        self.at = start
        """Position of the next batch."""
        self.next_offset = base_offset
        """Lowest offset that it may have."""
        self.lowest = base_offset
        """Lowest offset of a batch that would show that damage is in the middle."""

    def add(self, step: int, verified_before: int | None) -> None:
        """Add the next batch; `step` bytes are read if more are needed than were read before.

        Its checksum is verified from an offset on; `None`: never.
        """
        at = self.at
        inside = at - self._chunk_at
        if inside + HEADER_SIZE > len(self._chunk):
            inside = self._fetch(step)
        fields = read_fields(self._chunk, inside)
        self._check_place(fields)
        size = fields[1]
        if verified_before is not None and fields[0] >= verified_before:
            if inside + size > len(self._chunk) and size <= step:
                inside = self._fetch(step)
            if size <= step:
                crc = google_crc32c.value(self._chunk[inside + COVERED_AT : inside + size])
            else:
                crc = _checksum(self._read, at, size)
            verify_checksum(at, crc, fields[3])
        self._positions.append(at)
        self._headers += self._chunk[inside : inside + HEADER_SIZE]
        self.at = at + size
        self.lowest = self.next_offset = fields[0] + fields[5] + 1

    def _fetch(self, step: int) -> int:
        """Read what stands at the present position, and return its position in what was read."""
        self._chunk = self._read(self.at, min(step, self._size - self.at))
        self._chunk_at = self.at
        return 0

    def _check_place(self, fields: HeaderFields) -> None:
        base_offset, size = fields[:2]
        if self.at + size > self._size:
            left = self._size - self.at
            raise DamagedBatchError(self.at, f"{left} bytes are left, expected {size}")
        if base_offset < self.next_offset:
            # Valid bytes with a wrong offset are no torn write: this batch itself shows that.
            self.lowest = base_offset
            expected = f"expected {self.next_offset} or more"
            raise DamagedBatchError(self.at, f"base offset is {base_offset}, {expected}")

    def result(self, damage: Damage | None) -> SegmentScan:
        """Return what was found so far."""
        stored = np.frombuffer(bytes(self._headers), _STORED_DTYPE)
        headers = np.empty(len(stored), HEADER_DTYPE)
        for name in HEADER_DTYPE.names or ():
            headers[name] = stored["length"] + LENGTH_END if name == "size" else stored[name]
        positions = np.array(self._positions, np.int64)
        return SegmentScan(positions, headers, self.at, self.next_offset, damage)


def _checksum(read: Read, position: int, size: int) -> int:
    """Compute the checksum of a frame of any size, a chunk at a time."""
    crc = 0
    end = position + size
    for at in range(position + COVERED_AT, end, _CHUNK):
        crc = google_crc32c.extend(crc, read(at, min(_CHUNK, end - at)))
    return crc


# Looking for batches after a damage

_MAX_GAP: Final = 2**40
"""Offsets that a batch after a damage may be ahead. It rules out most bytes that are no batch."""
_SEARCHED: Final = 2**28
"""Bytes of seeming batches after which the search for a real one ends."""


def _is_followed(read: Read, size: int, position: int, lowest: int) -> bool:
    """Whether a valid batch with an offset of at least `lowest` stands at a position or later.

    Where very much looks like batches but is not valid, the search ends early and the answer is
    yes: cutting off what could be valid is worse than asking.
    """
    searched = 0
    for at in range(position, size - HEADER_SIZE + 1, _CHUNK):
        chunk = read(at, min(_CHUNK + HEADER_SIZE - 1, size - at))
        for inside in _candidates(chunk, size - at, lowest):
            try:
                fields = read_fields(chunk, inside)
            except DamagedBatchError:
                continue
            searched += fields[1]
            if searched > _SEARCHED or _checksum(read, at + inside, fields[1]) == fields[3]:
                return True
    return False


def _candidates(chunk: bytes, left: int, lowest: int) -> list[int]:
    """List the positions where magic, size and base offset are possible; `left` limits the size."""
    data = np.frombuffer(chunk, np.uint8)
    magic = data[MAGIC_AT : len(data) - HEADER_SIZE + MAGIC_AT + 1]
    places = np.flatnonzero(magic == MAGIC)
    offsets = _numbers(data, places, 8)
    places = places[(offsets >= lowest) & (offsets <= lowest + _MAX_GAP)]
    sizes = _numbers(data, places + 8, 4) + LENGTH_END
    fitting = (sizes >= HEADER_SIZE) & (sizes <= left - places)
    return places[fitting].tolist()  # type: ignore[no-any-return]


def _numbers(
    data: npt.NDArray[np.uint8], places: npt.NDArray[np.intp], width: int
) -> npt.NDArray[np.int64]:
    """Read a number of `width` bytes at each place."""
    cells = data[places[:, np.newaxis] + np.arange(width)]
    return np.array(cells.view(f">i{width}")[:, 0], np.int64)


# Indexes

_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ENTRY_DTYPE: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY_DTYPE: Final = np.dtype([("timestamp_ms", ">i8"), ("offset", ">i4")])


class Indexer:
    """Makes the entries of a segment's indexes while batches are appended, as Kafka does.

    There is an entry for the first batch after more than `log_index_interval_bytes`. The highest
    timestamp so far goes into the time index if it is higher than in the entry before.
    """

    def __init__(self, base_offset: int, log_index_interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval = log_index_interval_bytes
        self._bytes = 0
        self._latest = (-1, base_offset)
        self._entered_ms = -1

    def add(
        self, position: int, size: int, last_offset: int, max_timestamp_ms: int
    ) -> tuple[bytes, bytes]:
        """Take notice of a batch. Return what is to be appended to either index, mostly nothing."""
        if max_timestamp_ms > self._latest[0]:
            self._latest = (max_timestamp_ms, last_offset)
        entry = time_entry = b""
        if self._bytes > self._interval:
            entry = _ENTRY.pack(self._relative(last_offset), position)
            time_entry = self.finish()
            self._bytes = 0
        self._bytes += size
        return entry, time_entry

    def finish(self) -> bytes:
        """Return what is to be appended to the time index when the segment is closed."""
        timestamp_ms, offset = self._latest
        if timestamp_ms <= self._entered_ms:
            return b""
        self._entered_ms = timestamp_ms
        return _TIME_ENTRY.pack(timestamp_ms, self._relative(offset))

    def _relative(self, offset: int) -> int:
        relative = offset - self._base_offset
        if not 0 <= relative <= _MAX_RELATIVE:
            first, last = self._base_offset, self._base_offset + _MAX_RELATIVE
            raise BadValueError(f"offset {offset} in a segment: expected {first} to {last}")
        return relative


def build_indexes(
    scanned: SegmentScan, base_offset: int, log_index_interval_bytes: int
) -> tuple[bytes, bytes]:
    """Return the offset index and the time index of a segment that is closed."""
    indexer = Indexer(base_offset, log_index_interval_bytes)
    headers = scanned.headers
    last_offsets = headers["base_offset"] + headers["last_offset_delta"]
    columns = (scanned.positions, headers["size"], last_offsets, headers["max_timestamp_ms"])
    entries = [indexer.add(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    index = b"".join(entry for entry, _ in entries)
    return index, b"".join([*(entry for _, entry in entries), indexer.finish()])


def find_position(index: bytes | memoryview, base_offset: int, offset: int) -> int:
    """Return a position in the log that is at or before the batch with an offset.

    `index` is the segment's offset index, and `base_offset` its first offset.
    """
    relative = offset - base_offset
    entries = range(len(index) // _ENTRY.size)
    after = bisect_right(entries, relative, key=lambda i: _ENTRY.unpack_from(index, 8 * i)[0])
    position: int = _ENTRY.unpack_from(index, 8 * (after - 1))[1] if after else 0
    return position


def find_offset(time_index: bytes | memoryview, base_offset: int, timestamp_ms: int) -> int:
    """Return an offset that is at or before the first batch with a timestamp or a later one.

    `time_index` is the segment's time index, and `base_offset` its first offset.
    """
    entries = range(len(time_index) // _TIME_ENTRY.size)
    after = bisect_right(
        entries, timestamp_ms, key=lambda i: _TIME_ENTRY.unpack_from(time_index, 12 * i)[0]
    )
    relative: int = _TIME_ENTRY.unpack_from(time_index, 12 * (after - 1))[1] if after else 0
    return base_offset + relative


def index_problems(scanned: SegmentScan, base_offset: int, index: bytes) -> list[tuple[int, str]]:
    """List what is wrong in an offset index: the position in it, and a text for people.

    Zeros at the end are not looked at: Kafka makes the file larger than it needs.
    """
    entries, problems = _entries(index, _ENTRY_DTYPE)
    last_offsets = scanned.headers["base_offset"] + scanned.headers["last_offset_delta"]
    for i, (relative, position) in enumerate(entries.tolist()):
        at = int(np.searchsorted(scanned.positions, position))
        offset = base_offset + relative
        if at == len(scanned) or scanned.positions[at] != position:
            problems.append((i * _ENTRY.size, f"no batch begins at byte {position} of the log"))
        elif last_offsets[at] != offset:
            text = f"offset {offset} for byte {position}, expected {last_offsets[at]}"
            problems.append((i * _ENTRY.size, text))
    return problems


def time_index_problems(
    scanned: SegmentScan, base_offset: int, time_index: bytes
) -> list[tuple[int, str]]:
    """List what is wrong in a time index, as `index_problems` does."""
    entries, problems = _entries(time_index, _TIME_ENTRY_DTYPE)
    last_offsets = scanned.headers["base_offset"] + scanned.headers["last_offset_delta"]
    highest = np.maximum.accumulate(scanned.headers["max_timestamp_ms"])
    for i, (timestamp_ms, relative) in enumerate(entries.tolist()):
        offset = base_offset + relative
        at = int(np.searchsorted(last_offsets, offset))
        if at == len(scanned):
            problems.append((i * _TIME_ENTRY.size, f"offset {offset} is beyond the log"))
        elif highest[at] != timestamp_ms:
            text = f"timestamp {timestamp_ms} for offset {offset}, expected {highest[at]}"
            problems.append((i * _TIME_ENTRY.size, text))
    return problems


def _entries(index: bytes, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], list[tuple[int, str]]]:
    """Return the entries of an index, and a problem if the last one is cut off."""
    whole = len(index) // dtype.itemsize
    entries = np.frombuffer(index, dtype, whole)
    zero = np.zeros((), dtype)
    used = np.flatnonzero(entries != zero)
    end = whole * dtype.itemsize
    problems = [] if end == len(index) else [(end, "its last entry is cut off")]
    return entries[: used[-1] + 1 if len(used) else 0], problems


# Leader epochs


def format_epochs(entries: Iterable[tuple[int, int]]) -> str:
    """Return the text of the file with the leader epochs: pairs of epoch and first offset."""
    lines = [f"{epoch} {start_offset}\n" for epoch, start_offset in entries]
    return f"0\n{len(lines)}\n{''.join(lines)}"


def parse_epochs(text: str) -> list[tuple[int, int]]:
    """Return the pairs in the text of the file with the leader epochs."""
    lines = text.splitlines()
    version, count, rest = lines[:1], lines[1:2], lines[2:]
    if version != ["0"]:
        raise BadValueError(f"{EPOCHS_FILE}: {short(text)}: expected version 0 in the first line")
    entries = [_parse_epoch(line) for line in rest]
    if count != [str(len(entries))]:
        raise BadValueError(f"{EPOCHS_FILE}: {len(entries)} entries, expected {''.join(count)!r}")
    for before, entry in pairwise(entries):
        if entry[0] <= before[0] or entry[1] < before[1]:
            raise BadValueError(
                f"{EPOCHS_FILE}: {entry} after {before}: "
                "expected a higher epoch and no lower offset"
            )
    return entries


def _parse_epoch(line: str) -> tuple[int, int]:
    words = line.split(" ")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise BadValueError(f"{EPOCHS_FILE}: {line!r}: expected an epoch and an offset")
    return int(words[0]), int(words[1])
