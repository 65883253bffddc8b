"""How the shell prints records, counts and tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...model.log.record import Record


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 record", "2 records"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def format_table(headings: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Align columns to their widest cell."""
    cells = [[str(cell) for cell in row] for row in [headings, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def record_position(record: Record) -> str:
    """Return where a record is: "orders-0@3"."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def format_record(record: Record) -> str:
    """Return the position, key and value of a record on one line; headers and retries if any."""
    parts = [record_position(record), _format_value(record.key), _format_value(record.value)]
    if record.headers:
        parts.append("[" + ", ".join(f"{n}:{_format_header(v)}" for n, v in record.headers) + "]")
    if record.retries:
        parts.append(f"(retry {record.retries})")
    return " ".join(parts)


def _format_value(value: object) -> str:
    """Return a key or value as text without line breaks or control characters."""
    if isinstance(value, str):
        return value if value.isprintable() and value else json.dumps(value)
    return "-" if value is None else json.dumps(value, default=repr)


def _format_header(value: bytes | str) -> str:
    return _format_value(value.decode(errors="replace") if isinstance(value, bytes) else value)
