"""Kafka's record batch, version 2: the form in which a batch stands in a segment file.

A frame is a header of 61 bytes and the records. The header's first fields, up to the checksum, are
not covered by the checksum, so that a leader stamps a frame with its offset and its epoch without
reading the records (`stamp`).

| bytes | field |
|---|---|
| 0–7 | base offset |
| 8–11 | length: number of bytes after this field |
| 12–15 | leader epoch |
| 16 | magic: 2 |
| 17–20 | CRC-32C of all bytes that follow |
| 21–22 | attributes: compression (bits 0–2), append time (3), transactional (4), control (5) |
| 23–26 | last offset delta |
| 27–34, 35–42 | timestamp of the first record, highest timestamp; in ms |
| 43–50, 51–52, 53–56 | producer id, producer epoch, sequence number of the first record |
| 57–60 | number of records |

A record is its length, an attribute byte that is always 0, the differences of its timestamp and
its offset to those of the batch, key, value and headers. Numbers in a record are varints with
zigzag: 7 bits for each byte, the lowest first, and the sign in the lowest bit. A length of -1
stands for null.

Both directions are written for speed. Records that all have the same layout, such as those of a
load generator, are written and read as the rows of a NumPy array; others are written by iterators
that run in C, and read in one loop without calls.
"""

import gzip
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import accumulate, chain, repeat
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias, cast

import attrs
import google_crc32c
import numpy as np
import numpy.typing as npt

from ..errors import BadValueError, WavetankError
from ..serializers import make_serializer, to_header, to_key
from .batch import Batch, Columns, lazy_batch, unloaded_batch
from .record import Header

HEADER_SIZE: Final = 61
"""Size of the header of a frame."""
MAX_SIZE: Final = 2**30
"""Largest size of a frame. A larger number in a header is damage: it is the size of a segment."""
MAGIC: Final = 2
"""Version of the format."""
MAGIC_AT: Final = 16
"""Position of the version in a frame."""
LENGTH_END: Final = 12
"""Position in a frame after the length, which counts the bytes from here on."""
COVERED_AT: Final = 21
"""Position in a frame from which on the checksum covers it."""

_MIN_RECORD: Final = 7
"""Size of the smallest record: one byte for each of its fields."""
_MAX_OFFSET: Final = 2**63 - 2**31
"""Largest base offset, so that the offset of any record in the batch fits into 64 bits."""
_SEQUENCES: Final = 2**31
"""Sequence numbers begin at 0 again after this many."""
_MAX_MS: Final = 2**62 // 1000
"""Largest timestamp, before or after 1970, that in µs is sure to fit into 64 bits."""

_WHOLE: Final = Struct(">qiibIhiqqqhii")
_HEAD: Final = Struct(">qiibI")
_TAIL: Final = Struct(">hiqqqhii")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_CODEC_BITS: Final = 0b111
_APPEND_TIME: Final = 0b1000
_TRANSACTIONAL: Final = 0b1_0000
_CONTROL: Final = 0b10_0000

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader`, in order."""
_Bytes: TypeAlias = bytes | bytearray | memoryview
_Stored: TypeAlias = bytes | list[bytes | None] | tuple[bytes | None, ...] | None
"""The keys or values of all records as they are stored; one object if all records share it."""
_Rows: TypeAlias = npt.NDArray[np.uint8]


class DamagedBatchError(WavetankError):
    """The bytes at a position are not a record batch, or not the one that was written."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        """Position of the batch in the data."""
        self.reason = reason
        """What is wrong with it, as a text for people."""
        super().__init__(f"batch at byte {position}: {reason}")


@attrs.frozen
class BatchHeader:
    """The header of a frame."""

    base_offset: int
    """Offset of the first record."""
    size: int
    """Size of the whole frame in bytes."""
    leader_epoch: int
    """Epoch of the leader that appended it."""
    crc: int
    """CRC-32C of all bytes from the attributes on."""
    attributes: int
    """Compression and flags."""
    last_offset_delta: int
    """Offset of the last record, minus that of the first."""
    base_timestamp_ms: int
    """Timestamp of the first record."""
    max_timestamp_ms: int
    """Highest timestamp."""
    producer_id: int
    """Id of the producer; -1 for none."""
    producer_epoch: int
    """Epoch of the producer; -1 for none."""
    base_sequence: int
    """Sequence number of the first record; -1 for none."""
    count: int
    """Number of records. After a compaction by Kafka it is less than offsets are spanned."""

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> str:
        """Name of the codec of the records; "none" if they are not compressed."""
        return _CODECS[self.attributes & _CODEC_BITS]

    @property
    def has_append_time(self) -> bool:
        """Whether all records have the time of their append, the highest, as their timestamp."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the records are part of a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it marks the end of a transaction instead of having records of a user."""
        return bool(self.attributes & _CONTROL)


def read_header(data: _Bytes, position: int) -> BatchHeader:
    """Read the header of the frame at a position; `DamagedBatchError` if it cannot be one."""
    return BatchHeader(*read_fields(data, position))


def read_fields(data: _Bytes, position: int) -> HeaderFields:
    """Read the fields of a header, as `read_header` does: quicker, for many of them."""
    try:
        (
            base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta,
            base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
        ) = _WHOLE.unpack_from(data, position)  # fmt: skip
    except StructError:
        left = max(0, len(data) - position)
        raise DamagedBatchError(
            position, f"{left} bytes are left, expected a header of {HEADER_SIZE}"
        ) from None
    size = length + LENGTH_END
    if magic != MAGIC:
        raise DamagedBatchError(position, f"magic is {magic}, expected {MAGIC}")
    if not HEADER_SIZE <= size <= MAX_SIZE:
        expected = f"{HEADER_SIZE} to {MAX_SIZE}"
        raise DamagedBatchError(position, f"its size is {size}, expected {expected}")
    if not -1 <= base_offset <= _MAX_OFFSET:
        expected = f"-1 to {_MAX_OFFSET}"
        raise DamagedBatchError(position, f"base offset is {base_offset}, expected {expected}")
    if leader_epoch < -1:
        raise DamagedBatchError(position, f"leader epoch is {leader_epoch}, expected -1 or more")
    codec = attributes & _CODEC_BITS
    if codec >= len(_CODECS):
        raise DamagedBatchError(position, f"codec {codec}, expected 0 to {len(_CODECS) - 1}")
    if not 0 <= count <= last_offset_delta + 1:
        numbers = f"{count} records in {last_offset_delta + 1} offsets"
        raise DamagedBatchError(position, f"{numbers}, expected at most one for each offset")
    if not codec and count * _MIN_RECORD > size - HEADER_SIZE:
        numbers = f"{count} records in {size - HEADER_SIZE} bytes"
        raise DamagedBatchError(position, f"{numbers}, expected {_MIN_RECORD} or more for each")
    return (
        base_offset, size, leader_epoch, crc, attributes, last_offset_delta, base_timestamp_ms,
        max_timestamp_ms, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip


def verify(data: _Bytes, position: int, header: BatchHeader) -> None:
    """Raise `DamagedBatchError` if the frame at a position is cut off or its checksum is wrong."""
    covered = bytes(data[position + COVERED_AT : position + header.size])
    if len(covered) != header.size - COVERED_AT:
        left = len(data) - position
        raise DamagedBatchError(position, f"{left} bytes are left, expected {header.size}")
    verify_checksum(position, google_crc32c.value(covered), header.crc)


def verify_checksum(position: int, crc: int, expected: int) -> None:
    """Raise `DamagedBatchError` if the checksum of the frame at a position is not the expected."""
    if crc != expected:
        raise DamagedBatchError(position, f"its CRC is {crc:#010x}, expected {expected:#010x}")


def stamp(frame: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a frame with another base offset and leader epoch. The checksum stays valid."""
    length = frame[_OFFSET.size : LENGTH_END]
    rest = memoryview(frame)[MAGIC_AT:]
    return b"".join((_OFFSET.pack(base_offset), length, _EPOCH.pack(leader_epoch), rest))


# Encoding


class _Varints(dict[int, bytes]):
    """The encoded form of each number: looked up if it is small, computed if not."""

    def __missing__(self, number: int) -> bytes:
        rest = (number << 1) ^ (number >> 63)
        groups = []
        while rest > 127:
            groups.append(rest & 127 | 128)
            rest >>= 7
        return bytes((*groups, rest))


_VARINTS: Final = _Varints()
_VARINTS.update((number, _VARINTS[number]) for number in range(-64, 8192))  # up to two bytes
_varint: Final = _VARINTS.__getitem__
_ZERO: Final = _varint(0)
_NULL: Final = _varint(-1)


def encode(
    batch: Batch,
    *,
    producer_id: int,
    origin_us: int,
    dumps: Callable[[Any], bytes | None],
) -> bytes:
    """Encode a batch, with the offsets and the epochs that it has.

    `origin_us` is the Unix time of the cluster's time zero; a file has ms, so the last three digits
    of a timestamp are lost. `dumps` makes bytes of a value. A batch without values is synthetic: a
    load generator made it, and only the sizes of its records are known. Each value is then as many
    zero bytes as the record's size, so that the log has a real size on disk.
    """
    if not batch.count:
        raise BadValueError(f"{batch!r}: expected at least one record to encode")
    first_ms, highest_ms, deltas = _timestamps(batch.timestamps_us, origin_us)
    keys = _stored(batch.keys, to_key)
    synthetic = batch.values is None
    headers = batch.headers
    records = None
    values: _Stored
    if headers is None and type(batch.values) is tuple and dumps in _KEEP_BYTES:
        # Nearly always these are bytes, and then nothing has to be converted.
        records = _encode_in_rows(batch.count, deltas, keys, batch.values)
    if records is None:
        values = _stored(batch.sizes, bytes) if synthetic else _stored(batch.values, dumps)
        if headers is None:
            records = _encode_in_rows(batch.count, deltas, keys, values)
    if records is None:
        records = _encode_in_turn(batch.count, deltas, keys, values, headers)
    sequence = batch.sequence % _SEQUENCES if batch.sequence >= 0 else -1
    tail = _TAIL.pack(
        0, batch.count - 1, first_ms, highest_ms, producer_id, batch.producer_epoch, sequence,
        batch.count,
    )  # fmt: skip
    length = HEADER_SIZE - LENGTH_END + len(records)
    if length > MAX_SIZE - LENGTH_END:
        raise BadValueError(f"{batch!r}: expected at most {MAX_SIZE} bytes when it is encoded")
    crc = google_crc32c.extend(google_crc32c.value(tail), records)
    head = _HEAD.pack(batch.base_offset, length, batch.epoch, MAGIC, crc)
    return b"".join((head, tail, records))


_KEEP_BYTES: Final = frozenset((to_key, make_serializer("bytes").dumps))
"""Functions that leave bytes as they are."""


def _timestamps(
    times_us: int | npt.NDArray[Any], origin_us: int
) -> tuple[int, int, npt.NDArray[np.int64] | None]:
    """Return the first and the highest timestamp in ms, and how later ones differ from the first.

    `None` stands for no difference.
    """
    if isinstance(times_us, int):
        time_ms = (origin_us + times_us) // 1000
        return time_ms, time_ms, None
    times_ms = (times_us.astype(np.int64) + origin_us) // 1000
    first_ms = int(times_ms[0])
    deltas = times_ms - first_ms
    return first_ms, int(times_ms.max()), deltas if deltas.any() else None


def _stored(column: Any, convert: Callable[[Any], bytes | None]) -> _Stored:
    """Convert the items of a column, or the one that all records share."""
    if type(column) is np.ndarray:
        return list(map(convert, column.tolist()))
    if type(column) is tuple and convert in _KEEP_BYTES and set(map(type, column)) == {bytes}:
        return list(column)
    if type(column) in (tuple, range):
        return list(map(convert, column))
    return convert(column)


def _encode_in_turn(
    count: int,
    deltas: npt.NDArray[np.int64] | None,
    keys: _Stored,
    values: _Stored,
    headers: tuple[tuple[Header, ...], ...] | None,
) -> bytes:
    """Encode records of any layout."""
    fields = zip(
        repeat(_ZERO),
        repeat(_ZERO) if deltas is None else map(_varint, deltas.tolist()),
        map(_varint, range(count)),
        *_sized(keys),
        *_sized(values),
        repeat(_ZERO) if headers is None else map(_encode_headers, headers),
        strict=False,  # what all records share has no end
    )
    bodies = list(map(b"".join, fields))
    lengths = map(_varint, map(len, bodies))
    return b"".join(chain.from_iterable(zip(lengths, bodies, strict=True)))


def _sized(stored: _Stored) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """Return the length of each key or value, and itself; null has a length and is empty."""
    if stored is None or isinstance(stored, bytes):
        return repeat(_field(stored)), repeat(b"")
    if type(None) in set(map(type, stored)):
        lengths = [_NULL if data is None else _varint(len(data)) for data in stored]
        return lengths, [data or b"" for data in stored]
    present = cast(list[bytes], stored)
    return map(_varint, map(len, present)), present


def _field(data: bytes | None) -> bytes:
    """Return a key or value after its length."""
    return _NULL if data is None else _varint(len(data)) + data


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    fields = chain.from_iterable(to_header(name, value) for name, value in headers)
    return b"".join((_varint(len(headers)), *map(_field, fields)))


# Encoding in rows: records of one length, one below the other, are an array of bytes.

_MIN_ROWS: Final = 16
"""Records in a run, on average, from which on an array is quicker than encoding them in turn."""


def _encode_in_rows(
    count: int, deltas: npt.NDArray[np.int64] | None, keys: _Stored, values: _Stored
) -> bytes | None:
    """Encode records without headers in runs of one layout; `None` if there are no such runs."""
    if count < _MIN_ROWS:
        return None
    key, value = _row_field(keys), _row_field(values)
    if key is None or value is None:
        return None
    key_same, key_rows = key
    value_same, value_rows = value
    if deltas is None and count * (len(key_same) + len(value_same)) <= _MAX_SKELETON:
        runs = _skeleton(count, key_same, value_same)
    else:
        found = _lay_out_rows(count, deltas, key_same, value_same)
        if found is None:
            return None
        runs = found
    parts = []
    start = 0
    for run in runs:
        end = start + len(run.rows)
        rows = run.rows.copy()
        if key_rows is not None:
            at = run.key_end - key_rows.shape[1]
            rows[:, at : run.key_end] = key_rows[start:end]
        if value_rows is not None:
            at = run.value_end - value_rows.shape[1]
            rows[:, at : run.value_end] = value_rows[start:end]
        parts.append(rows.data)
        start = end
    return b"".join(parts)


@attrs.frozen(eq=False)
class _Run:
    """Records of one layout, one below the other, without their keys and values."""

    rows: _Rows
    key_end: int
    """Where the key ends in a row."""
    value_end: int
    """Where the value ends."""


_MAX_SKELETON: Final = 2**19
"""Largest size of rows that are kept for the next batch of the same layout."""


@lru_cache(maxsize=32)
def _skeleton(count: int, key: bytes, value: bytes) -> list[_Run]:
    """Lay out records that all have the same timestamp. Most batches of a producer are alike."""
    runs = _lay_out_rows(count, None, key, value)
    assert runs is not None  # only lengths of offsets differ
    return runs


def _lay_out_rows(
    count: int, deltas: npt.NDArray[np.int64] | None, key: bytes, value: bytes
) -> list[_Run] | None:
    """Lay out records with placeholders for keys and values; `None` if most runs are too short."""
    offsets = _zigzag(np.arange(count))
    times = None if deltas is None else _zigzag(deltas)
    ends = _run_ends(offsets, times)
    if len(ends) * _MIN_ROWS > count:
        return None
    runs = []
    start = 0
    for end in ends:
        part = slice(start, end)
        time: bytes | _Rows = _ZERO if times is None else _varint_rows(times[part])
        offset = _varint_rows(offsets[part])
        rows, places = _rows(end - start, [_ZERO, time, offset, key, value, _ZERO])
        runs.append(_Run(rows, places[4], places[5]))  # a field ends where the next begins
        start = end
    return runs


def _zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


_LIMITS: Final = (np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)).tolist()
"""The lowest number, after zigzag, that takes 2 bytes as a varint, 3 bytes, and so on."""


def _widths(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return the length of each number as a varint."""
    return np.searchsorted(_LIMITS, numbers, side="right") + 1


def _run_ends(offsets: npt.NDArray[np.uint64], times: npt.NDArray[np.uint64] | None) -> list[int]:
    """Return the end of each run of records whose timestamps and offsets have the same lengths."""
    widths = _widths(offsets)
    if times is not None:
        widths = widths + 16 * _widths(times)
    return [*(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(offsets)]


def _varint_rows(numbers: npt.NDArray[np.uint64]) -> _Rows:
    """Encode numbers whose varints have one length."""
    width = int(_widths(numbers[:1])[0])
    rows = (numbers[:, np.newaxis] >> np.arange(0, 7 * width, 7, dtype=np.uint64)).astype(np.uint8)
    rows &= 127
    rows[:, :-1] |= 128
    return rows


def _row_field(stored: _Stored) -> tuple[bytes, _Rows | None] | None:
    """Return a key or value as rows of one width; `None` if widths differ.

    The bytes are what stands in each row: all of it if records share it, or else the length and a
    placeholder, which the rows are put over.
    """
    if stored is None or isinstance(stored, bytes):
        return _field(stored), None
    try:
        joined = b"".join(cast(list[bytes], stored))
    except TypeError:  # some are null
        return (_NULL, None) if set(map(type, stored)) == {type(None)} else None
    length, *others = set(map(len, cast(list[bytes], stored)))
    if others:
        return None
    rows = np.frombuffer(joined, np.uint8).reshape(len(stored), length)
    return _varint(length) + bytes(length), rows


def _rows(count: int, columns: list[bytes | _Rows]) -> tuple[_Rows, list[int]]:
    """Put columns side by side, after the length of a row. Bytes are the same in all rows.

    Return the place of each column, too.
    """
    widths = [len(column) if isinstance(column, bytes) else column.shape[1] for column in columns]
    length = _varint(sum(widths))
    same = [
        column if isinstance(column, bytes) else bytes(width)
        for column, width in zip(columns, widths, strict=True)
    ]
    row = np.frombuffer(b"".join((length, *same)), np.uint8)
    rows = np.empty((count, len(row)), np.uint8)
    rows[:] = row
    places = list(accumulate(widths, initial=len(length)))
    for column, width, at in zip(columns, widths, places, strict=False):
        if not isinstance(column, bytes):
            rows[:, at : at + width] = column
    return rows, places


# Decoding


@attrs.frozen(eq=False)
class StoredRecords:
    """The records of a frame as they are stored, in columns."""

    offset_deltas: list[int]
    """Offset of each record, minus the base offset. A compaction by Kafka leaves gaps."""
    timestamp_deltas_ms: list[int]
    """Timestamp of each record, minus the base timestamp. Ignore them if it has an append time."""
    keys: list[bytes | None]
    """Key of each record."""
    values: list[bytes | None]
    """Value of each record."""
    headers: list[tuple[tuple[str, bytes | None], ...]]
    """Headers of each record."""
    ends: list[int]
    """Position after each record in the uncompressed records."""


def decode(
    frame: bytes | memoryview,
    *,
    names: Mapping[int, tuple[str, str]],
    origin_us: int,
    loads: Callable[[bytes | None], Any],
) -> Batch:
    """Make a batch of a frame. Its records are decoded once, when somebody looks inside.

    `names` has the producer and its instance for each producer id. `origin_us` is the Unix time of
    the cluster's time zero. `loads` makes a value of bytes; the values of control batches stay
    bytes. The append time is the highest timestamp, as the file has no other. The size of a record
    is its length in the file, or its share of the compressed records. The checksum is not verified.
    """
    data = bytes(frame)
    header = read_header(data, 0)
    _check_readable(data, header)
    producer, instance, append_time_us = _identity(header, names, origin_us)
    total = header.size - HEADER_SIZE
    return lazy_batch(
        producer, instance, header.base_sequence, header.count,
        partial(_decode_columns, data, header, origin_us, loads, total), total,
        header.base_offset, append_time_us, header.leader_epoch, header.producer_epoch,
    )  # fmt: skip


def reload(
    batch: Batch, frame: bytes, *, origin_us: int, loads: Callable[[bytes | None], Any]
) -> Batch:
    """Return a batch with its records, which its frame in a file has.

    What the batch knows stays, as it is more exact than the file: its append time, and the sizes of
    its records.
    """
    header = read_header(frame, 0)
    _check_readable(frame, header)
    skipped = batch.base_offset - header.base_offset  # the first batch of a log may have been cut
    assert 0 <= skipped <= header.count - batch.count
    part = slice(skipped, skipped + batch.count)
    return batch.loaded(
        partial(_decode_part, frame, header, origin_us, loads, part, batch.known_sizes)
    )


def _decode_part(
    frame: bytes,
    header: BatchHeader,
    origin_us: int,
    loads: Callable[[bytes | None], Any],
    part: slice,
    sizes: int | npt.NDArray[Any] | None,
) -> Columns:
    """Decode some records of a frame; `sizes` are theirs, if they are known."""
    total = header.size - HEADER_SIZE
    keys, values, headers, times_us, own_sizes = _decode_columns(
        frame, header, origin_us, loads, total
    )
    return (
        None if keys is None else keys[part],
        values[part],
        None if headers is None else headers[part],
        times_us if isinstance(times_us, int) else times_us[part],
        _part_of(own_sizes, part) if sizes is None else sizes,
    )


def _part_of(sizes: int | npt.NDArray[Any], part: slice) -> int | npt.NDArray[Any]:
    if isinstance(sizes, int):
        return sizes
    cut = sizes[part]
    return int(cut[0]) if len(cut) == 1 else cut


def locate(header: BatchHeader, *, names: Mapping[int, tuple[str, str]], origin_us: int) -> Batch:
    """Make a batch of the header of a frame. Its records stay in the file; see `decode`."""
    producer, instance, append_time_us = _identity(header, names, origin_us)
    return unloaded_batch(
        producer, instance, header.base_sequence, header.count, header.size - HEADER_SIZE,
        header.base_offset, append_time_us, header.leader_epoch, header.producer_epoch,
    )  # fmt: skip


def _identity(
    header: BatchHeader, names: Mapping[int, tuple[str, str]], origin_us: int
) -> tuple[str, str, int]:
    """Return the producer of a frame, its instance, and the append time."""
    _check_codec(header)
    if header.count and header.count <= header.last_offset_delta:
        raise BadValueError(
            f"batch at offset {header.base_offset}: {header.count} records in "
            f"{header.last_offset_delta + 1} offsets, expected a batch without gaps"
        )
    unnamed = f"producer-{header.producer_id}"
    producer, instance = names.get(header.producer_id, (unnamed, unnamed))
    return producer, instance, header.max_timestamp_ms * 1000 - origin_us


def read_records(frame: bytes, header: BatchHeader) -> StoredRecords:
    """Read the records of a frame without converting them."""
    _check_readable(frame, header)
    records = frame[HEADER_SIZE:]
    if header.compression == "gzip":
        try:
            records = gzip.decompress(records)
        except (OSError, EOFError, zlib.error) as error:
            raise DamagedBatchError(0, f"its records cannot be unzipped ({error})") from error
    try:
        return _unpack_rows(records, header.count) or _unpack(records, header.count)
    except IndexError:
        raise DamagedBatchError(0, "its last record is cut off") from None


def _check_readable(frame: bytes, header: BatchHeader) -> None:
    if len(frame) != header.size:
        raise DamagedBatchError(0, f"{len(frame)} bytes are given, expected {header.size}")
    _check_codec(header)


def _check_codec(header: BatchHeader) -> None:
    if header.compression not in ("none", "gzip"):
        raise BadValueError(
            f"batch at offset {header.base_offset} is compressed with {header.compression}: "
            "expected gzip or no compression"
        )


def _decode_columns(
    frame: bytes,
    header: BatchHeader,
    origin_us: int,
    loads: Callable[[bytes | None], Any],
    total: int,
) -> Columns:
    records = read_records(frame, header)
    if records.offset_deltas != list(range(header.count)):
        raise DamagedBatchError(0, "its offsets are not consecutive")
    keys = None if records.keys.count(None) == header.count else tuple(records.keys)
    values = tuple(records.values) if header.is_control else tuple(map(loads, records.values))
    headers = tuple(records.headers) if any(records.headers) else None
    timestamps_us = _timestamps_us(header, records.timestamp_deltas_ms, origin_us)
    return keys, values, headers, timestamps_us, _sizes(records.ends, total)


def _timestamps_us(
    header: BatchHeader, deltas_ms: list[int], origin_us: int
) -> int | npt.NDArray[np.int64]:
    if header.has_append_time:
        return header.max_timestamp_ms * 1000 - origin_us
    lowest, highest = min(deltas_ms, default=0), max(deltas_ms, default=0)
    base_ms = header.base_timestamp_ms
    if lowest == highest:
        return (base_ms + lowest) * 1000 - origin_us
    if base_ms + lowest < -_MAX_MS or base_ms + highest > _MAX_MS:
        span = f"{base_ms + lowest} to {base_ms + highest}"
        raise DamagedBatchError(0, f"its timestamps in ms are {span}, expected 64 bits in µs")
    times_us = np.array(deltas_ms, np.int64) * 1000 + (base_ms * 1000 - origin_us)
    times_us.flags.writeable = False
    return times_us


def _sizes(ends: list[int], total: int) -> int | npt.NDArray[np.int64]:
    """Return the sizes of the records, scaled to their total, which may be that of the
    compressed records.
    """
    if len(ends) == 1:
        return total
    positions = np.array([0, *ends], np.int64)
    if ends and ends[-1] != total:
        positions = positions * total // ends[-1]
    sizes = np.diff(positions)
    sizes.flags.writeable = False
    return sizes


def _unpack_rows(data: bytes, count: int) -> StoredRecords | None:
    """Read records that are all laid out as the first one; `None` if they are not."""
    if count < _MIN_ROWS:
        return None
    length, at = _read_varint(data, 0)
    first = _unpack(data[: at + (length >> 1)], 1)
    (key,), (value,) = first.keys, first.values
    key_size, value_size = len(key or b""), len(value or b"")
    if first.headers[0] or first.timestamp_deltas_ms[0] or len(data) > _MAX_SKELETON:
        return None
    runs = _skeleton(
        count,
        _NULL if key is None else _varint(key_size) + bytes(key_size),
        _NULL if value is None else _varint(value_size) + bytes(value_size),
    )
    if sum(run.rows.size for run in runs) != len(data):
        return None
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    ends: list[int] = []
    at = 0
    for run in runs:
        height, width = run.rows.shape
        rows = np.frombuffer(data, np.uint8, run.rows.size, at).reshape(height, width)
        holes = (run.key_end - key_size, run.key_end, run.value_end - value_size, run.value_end)
        same = zip((0, holes[1], holes[3]), (holes[0], holes[2], width), strict=True)
        if not all(np.array_equal(rows[:, a:b], run.rows[:, a:b]) for a, b in same):
            return None
        keys += [None] * height if key is None else _cells(rows[:, holes[0] : holes[1]])
        values += [None] * height if value is None else _cells(rows[:, holes[2] : holes[3]])
        ends += range(at + width, at + run.rows.size + 1, width)
        at += run.rows.size
    return StoredRecords(list(range(count)), [0] * count, keys, values, [()] * count, ends)


def _cells(rows: _Rows) -> list[bytes]:
    """Return each row as bytes."""
    height, width = rows.shape
    if not width:
        return [b""] * height
    data = rows.tobytes()
    return [data[at : at + width] for at in range(0, len(data), width)]


def _unpack(data: bytes, count: int) -> StoredRecords:
    """Read records. A varint of one or two bytes, as most are, is read without a call."""
    records = StoredRecords([], [], [], [], [], [])
    add_offset, add_time = records.offset_deltas.append, records.timestamp_deltas_ms.append
    add_key, add_value = records.keys.append, records.values.append
    add_headers, add_end = records.headers.append, records.ends.append
    at = 0
    for _ in range(count):
        number = data[at]
        at += 1
        if number > 127:
            high = data[at]
            at += 1
            number += (high << 7) - 128
            if high > 127:
                number, at = _read_varint(data, at - 2)
        end = at + (number >> 1)  # were it negative, the end would be wrong

        number = data[at + 1]  # after the attributes
        at += 2
        if number > 127:
            high = data[at]
            at += 1
            number += (high << 7) - 128
            if high > 127:
                number, at = _read_varint(data, at - 2)
        add_time((number >> 1) ^ -(number & 1))

        number = data[at]
        at += 1
        if number > 127:
            high = data[at]
            at += 1
            number += (high << 7) - 128
            if high > 127:
                number, at = _read_varint(data, at - 2)
        add_offset((number >> 1) ^ -(number & 1))

        number = data[at]
        at += 1
        if number == 1:
            add_key(None)
        elif number & 1:
            raise DamagedBatchError(0, f"record {len(records.ends)} has a key of negative length")
        else:
            if number > 127:
                high = data[at]
                at += 1
                number += (high << 7) - 128
                if high > 127:
                    number, at = _read_varint(data, at - 2)
            start = at
            at += number >> 1
            add_key(data[start:at])

        number = data[at]
        at += 1
        if number == 1:
            add_value(None)
        elif number & 1:
            raise DamagedBatchError(0, f"record {len(records.ends)} has a value of negative length")
        else:
            if number > 127:
                high = data[at]
                at += 1
                number += (high << 7) - 128
                if high > 127:
                    number, at = _read_varint(data, at - 2)
            start = at
            at += number >> 1
            add_value(data[start:at])

        if data[at]:
            headers, at = _read_headers(data, at)
            add_headers(headers)
        else:
            at += 1
            add_headers(())
        if at != end:
            raise DamagedBatchError(0, f"record {len(records.ends)} has not the length it states")
        add_end(at)
    if at != len(data):
        raise DamagedBatchError(0, f"{len(data) - at} bytes are left after its last record")
    return records


def _read_headers(data: bytes, at: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Read the headers of a record. Return the position after them as well."""
    count, at = _read_varint(data, at)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        number, at = _read_varint(data, at)
        start, at = at, at + (number >> 1)
        name = data[start:at].decode(errors="replace")
        number, at = _read_varint(data, at)
        if number == 1:
            headers.append((name, None))
        else:
            start, at = at, at + (number >> 1)
            headers.append((name, data[start:at]))
    return tuple(headers), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number, its sign still in the lowest bit. Return the position after it as well."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise DamagedBatchError(0, f"the number at byte {at} of its records has no end")
