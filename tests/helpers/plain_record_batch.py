"""Kafka's record batch written record by record: slow, and easy to check by reading."""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import attrs
import google_crc32c

Header: TypeAlias = tuple[str, bytes | None]


@attrs.frozen
class PlainRecord:
    """A record as it is stored."""

    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


def plain_varint(number: int) -> bytes:
    """Encode a number with zigzag, in groups of seven bits."""
    rest = 2 * number if number >= 0 else -2 * number - 1
    groups = bytearray()
    while rest >= 128:
        groups.append(rest % 128 + 128)
        rest //= 128
    groups.append(rest)
    return bytes(groups)


def plain_data(data: bytes | None) -> bytes:
    """Encode a key or a value."""
    return plain_varint(-1) if data is None else plain_varint(len(data)) + data


def plain_record(record: PlainRecord, index: int, first_ms: int) -> bytes:
    """Encode one record."""
    body = b"\0" + plain_varint(record.timestamp_ms - first_ms) + plain_varint(index)
    body += plain_data(record.key) + plain_data(record.value) + plain_varint(len(record.headers))
    for name, value in record.headers:
        body += plain_data(name.encode()) + plain_data(value)
    return plain_varint(len(body)) + body


def plain_frame(
    records: Sequence[PlainRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Encode a batch."""
    first_ms = records[0].timestamp_ms
    highest_ms = max(record.timestamp_ms for record in records)
    body = b"".join(plain_record(record, i, first_ms) for i, record in enumerate(records))
    return plain_envelope(
        body, len(records), first_ms, highest_ms, base_offset=base_offset,
        leader_epoch=leader_epoch, attributes=attributes, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence,
    )  # fmt: skip


def plain_envelope(
    body: bytes, count: int, first_ms: int = 0, highest_ms: int = 0, *, base_offset: int = 0,
    leader_epoch: int = 0, attributes: int = 0, producer_id: int = -1, producer_epoch: int = -1,
    base_sequence: int = -1, last_offset_delta: int | None = None,
) -> bytes:  # fmt: skip
    """Put a header with a valid checksum before encoded records."""
    covered = struct.pack(
        ">hiqqqhii", attributes, count - 1 if last_offset_delta is None else last_offset_delta,
        first_ms, highest_ms, producer_id, producer_epoch, base_sequence, count,
    ) + body  # fmt: skip
    rest = struct.pack(">ibI", leader_epoch, 2, google_crc32c.value(covered)) + covered
    return struct.pack(">qi", base_offset, len(rest)) + rest


def plain_segment(batches: Iterable[Sequence[PlainRecord]]) -> bytes:
    """Encode batches one after the other, with rising offsets."""
    segment = b""
    offset = 0
    for records in batches:
        segment += plain_frame(records, base_offset=offset)
        offset += len(records)
    return segment
