"""`wavetank log`."""

import datetime as dt
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import click

from ...model.errors import BadValueError, WavetankError
from ...model.log.record_batch import BatchHeader, StoredRecords, read_records
from ...model.log.segment import (
    INDEX,
    LOG,
    TIME_INDEX,
    Read,
    SegmentScan,
    index_problems,
    parse_file_name,
    scan,
    time_index_problems,
)
from ..exit_status import FAILURE
from ..terminal import make_console, make_table

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@click.command(epilog="Example: wavetank log data/broker-1/orders-0 --verify")
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("--verify", "verifies", is_flag=True, help="Check all checksums and index files.")
@click.option("--records", "with_records", is_flag=True, help="Print batches and records as well.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
def log(directory: str, verifies: bool, with_records: bool, as_json: bool) -> None:
    """List the segments of a log on disk, in Kafka's format.

    DIR is a data directory, the folder of a partition, or a .log file. A key or value is printed as
    text if it is UTF-8, otherwise in hexadecimal.

    Exit status: 0 if the log can be read, 1 if --verify finds damage, 2 for bad input.
    """
    root = Path(directory)
    segments = [_scan(root, path, verifies or with_records) for path in _log_files(root)]
    problems = _problems(segments) if verifies else []
    if as_json:
        _print_json(segments, problems, with_records)
    else:
        _print_text(segments, problems, with_records)
    if problems:
        sys.exit(FAILURE)


@attrs.frozen
class _Segment:
    """A segment on disk."""

    path: Path
    """Path of its .log file."""
    name: str
    """The path inside the directory that was asked for."""
    base_offset: int
    """The offset in its name."""
    size: int
    """Size of the file."""
    scan: SegmentScan
    """What it holds."""

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.scan.headers["count"].sum())

    @property
    def first_ms(self) -> int | None:
        """Timestamp of the first record."""
        times = self.scan.headers["base_timestamp_ms"]
        return int(times[0]) if len(times) else None

    @property
    def last_ms(self) -> int | None:
        """Highest timestamp."""
        times = self.scan.headers["max_timestamp_ms"]
        return int(times.max()) if len(times) else None

    @property
    def damage(self) -> str:
        """What cannot be read; empty if all can."""
        damage = self.scan.damage
        if damage is None:
            return ""
        follows = "; valid batches follow" if damage.in_the_middle else ""
        return f"byte {damage.position}: {damage.reason}{follows}"

    def batches(self) -> Iterator[tuple[int, BatchHeader, StoredRecords | str]]:
        """Read each batch: its position, header and records, or why they cannot be read."""
        with _reader(self.path) as read:
            for index, position in enumerate(self.scan.positions.tolist()):
                header = self.scan.header(index)
                try:
                    records = read_records(read(position, header.size), header)
                except WavetankError as error:
                    yield position, header, str(error)
                else:
                    yield position, header, records


# Finding and checking


def _log_files(root: Path) -> list[Path]:
    """List the .log files of a data directory, of a partition's folder, or the file itself."""
    if root.is_file():
        if root.suffix != LOG or parse_file_name(root.name) is None:
            raise BadValueError(f"{root}: expected a name of 20 digits and {LOG}")
        return [root]
    if not root.is_dir():
        raise BadValueError(f"{root}: there is no such file or directory")
    depths = ("*", "*/*", "*/*/*")
    found = chain.from_iterable(root.glob(f"{depth}{LOG}") for depth in depths)
    paths = [path for path in found if parse_file_name(path.name) is not None]
    if not paths:
        raise BadValueError(
            f"{root} has no segments: expected a data directory or the folder of a partition"
        )
    return sorted(paths)


@contextmanager
def _reader(path: Path) -> Iterator[Read]:
    with path.open("rb") as file:
        number = file.fileno()
        yield lambda position, size: os.pread(number, size, position)


def _scan(root: Path, path: Path, checksums: bool) -> _Segment:
    parsed = parse_file_name(path.name)
    assert parsed is not None
    name = path.name if path == root else path.relative_to(root).as_posix()
    with _reader(path) as read:
        size = path.stat().st_size
        scanned = scan(read, size, base_offset=parsed[0], checksums=checksums)
    return _Segment(path, name, parsed[0], size, scanned)


def _problems(segments: list[_Segment]) -> list[tuple[Path, int, str]]:
    """List all damage: the file, the position in it, and a text."""
    found = []
    for segment in segments:
        damage = segment.scan.damage
        if damage is not None:
            text = segment.damage.partition(": ")[2]
            found.append((segment.path, damage.position, text))
        for suffix, check in ((INDEX, index_problems), (TIME_INDEX, time_index_problems)):
            path = segment.path.with_suffix(suffix)
            if path.exists():
                wrong = check(segment.scan, segment.base_offset, path.read_bytes())
                found += [(path, position, text) for position, text in wrong]
    for before, segment in pairwise(segments):
        reached = before.scan.next_offset
        if before.path.parent == segment.path.parent and segment.base_offset < reached:
            text = f"it begins before offset {reached}, where {before.path.name} ends"
            found.append((segment.path, 0, text))
    return found


# Printing text


def _print_text(
    segments: list[_Segment], problems: list[tuple[Path, int, str]], with_records: bool
) -> None:
    if with_records:
        for segment in segments:
            click.echo(f"{segment.name}: {segment.records:,} records, {segment.size:,} bytes")
            for position, header, records in segment.batches():
                click.echo(_describe(position, header))
                for line in _record_lines(header, records):
                    click.echo(f"  {line}")
            if segment.damage:
                click.echo(f"damage at {segment.damage}")
    else:
        _print_table(segments)
    for path, position, text in problems:
        click.echo(f"{path}: byte {position}: {text}")


def _print_table(segments: list[_Segment]) -> None:
    table = make_table(
        "segment", "base offset", "next offset", "batches", "records", "bytes", "first", "last",
        "damage",
    )  # fmt: skip
    for segment in segments:
        table.add_row(
            segment.name, f"{segment.base_offset:,}", f"{segment.scan.next_offset:,}",
            f"{len(segment.scan):,}", f"{segment.records:,}", f"{segment.size:,}",
            _format_time(segment.first_ms), _format_time(segment.last_ms), segment.damage or "-",
        )  # fmt: skip
    make_console().print(table)


def _describe(position: int, header: BatchHeader) -> str:
    """Describe a batch in one line."""
    parts = [
        f"offsets {header.base_offset} to {header.next_offset - 1}",
        "1 record" if header.count == 1 else f"{header.count} records",
        f"{header.size} bytes",
        f"leader epoch {header.leader_epoch}",
        f"producer {header.producer_id}, epoch {header.producer_epoch}, "
        f"sequence {header.base_sequence}",
        *_flags(header),
    ]
    return f"batch at byte {position}: {'; '.join(parts)}"


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        header.compression: header.compression != "none",
        "append time": header.has_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
    return [name for name, has in flags.items() if has]


def _record_lines(header: BatchHeader, records: StoredRecords | str) -> Iterator[str]:
    if isinstance(records, str):
        yield f"not readable: {records}"
        return
    for offset, time_ms, key, value, headers in _rows(header, records):
        pairs = [f"{name}={_format_data(data)}" for name, data in headers]
        cells = [str(offset), _format_time(time_ms), _format_data(key), _format_data(value), *pairs]
        yield "  ".join(cells)


def _rows(header: BatchHeader, records: StoredRecords) -> Iterator[tuple[Any, ...]]:
    """Yield offset, timestamp, key, value and headers of each record."""
    times_ms = (
        [header.max_timestamp_ms] * header.count
        if header.has_append_time
        else [header.base_timestamp_ms + delta for delta in records.timestamp_deltas_ms]
    )
    offsets = [header.base_offset + delta for delta in records.offset_deltas]
    yield from zip(offsets, times_ms, records.keys, records.values, records.headers, strict=True)


def _format_time(time_ms: int | None) -> str:
    """Return a time in UTC; as a number if no calendar has it."""
    if time_ms is None or time_ms == -1:
        return "-"
    try:
        time = _EPOCH + dt.timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format_data(data: bytes | None) -> str:
    """Return a text in quotes, other bytes as 0x…, or null: no two look the same."""
    if data is None:
        return "null"
    try:
        return json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


# Printing JSON


def _print_json(
    segments: list[_Segment], problems: list[tuple[Path, int, str]], with_records: bool
) -> None:
    for segment in segments:
        _echo_json("segment", _segment_data(segment))
        for position, header, records in segment.batches() if with_records else ():
            reason = {"unreadable": records} if isinstance(records, str) else {}
            _echo_json("batch", {"position": position, **attrs.asdict(header), **reason})
            for row in () if isinstance(records, str) else _rows(header, records):
                _echo_json("record", _record_data(*row))
    for path, position, text in problems:
        _echo_json("damage", {"file": str(path), "position": position, "reason": text})


def _echo_json(kind: str, data: dict[str, Any]) -> None:
    click.echo(json.dumps({"type": kind, **data}))


def _segment_data(segment: _Segment) -> dict[str, Any]:
    damage = segment.scan.damage
    return {
        "file": str(segment.path),
        "base_offset": segment.base_offset,
        "next_offset": segment.scan.next_offset,
        "batches": len(segment.scan),
        "records": segment.records,
        "bytes": segment.size,
        "first_timestamp_ms": segment.first_ms,
        "last_timestamp_ms": segment.last_ms,
        "damage": None if damage is None else attrs.asdict(damage),
    }


def _record_data(
    offset: int,
    time_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> dict[str, Any]:
    pairs = [{"name": name, **_data("value", data)} for name, data in headers]
    numbers = {"offset": offset, "timestamp_ms": time_ms}
    return {**numbers, **_data("key", key), **_data("value", value), "headers": pairs}


def _data(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a key or value under its name; `…_hex` if it is not text."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}
