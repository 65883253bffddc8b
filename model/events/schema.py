"""The schema of events: one flat table for every kind, with its encoders and its digest.

`Event` is the only declaration of the columns; the Arrow `SCHEMA` is derived from it. Events are
written in one of two forms, and both become the same Arrow batches:

- as a `Row`, a plain tuple in schema order without `sequence`, which is its position in the log.
  Rows are collected as packed numbers (model/events/rows.py) and turned into columns thousands at a
  time, because an object or a dict for each event would cost more than everything else;
- as columns, with a scalar or a sequence for each column that has values.

Batches are independent: each has its own dictionaries of strings, so that batches can be stored,
merged and dropped freely. Only the `Digest` keeps state from one batch to the next.
"""

import hashlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from reprlib import repr as short
from typing import Any, Final, NoReturn, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BadValueError, UnknownNameError

SCHEMA_VERSION: Final = 2
"""Goes up when a column is added, removed or changes its meaning."""

NULL_INT: Final = -(2**63)
"""Stands for an absent int in a `Row`; unlike `None` it fits into an array of int64."""

Cell: TypeAlias = int | str | None

Row: TypeAlias = tuple[Any, ...]
"""An event as the engines write it, with a cell for each of `ROW_FIELDS`: absent ints are NULL_INT,
absent strings `None`."""


@attrs.frozen
class Event:
    """Something that happened. An event about records covers a range of them."""

    sequence: int
    """Position in the log, from 0."""
    time_us: int
    """Engine time, in µs since the run began."""
    kind: str
    """Kind of the event, in the past tense."""
    node: str | None = None
    """Node on which it happened."""
    actor: str | None = None
    """Actor that recorded it, or to which it happened."""
    topic: str | None = None
    """Topic that it concerns."""
    partition: int | None = None
    """Partition of the topic."""
    group: str | None = None
    """Consumer group that it concerns."""
    member: str | None = None
    """Member of the group; a consumer is another member after each restart, unless it is static."""
    consumer: str | None = None
    """Name of the consumer behind the member: the same after each restart."""
    producer: str | None = None
    """Producer of the records."""
    peer: str | None = None
    """Other node or actor involved: the far end of a link, the sender of a message, a broker."""
    message: str | None = None
    """Type of the message that it concerns."""
    key: str | None = None
    """Record key that it concerns."""
    mode: str | None = None
    """How records were acknowledged: "commit" of an offset, or by "record"."""
    reason: str | None = None
    """Why it happened, in words from a fixed set."""
    base_offset: int | None = None
    """First offset of the range."""
    count: int | None = None
    """Number of records in the range."""
    bytes: int | None = None
    """Size of the range in bytes."""
    epoch: int | None = None
    """Generation of the group, or epoch of the leader."""
    retries: int | None = None
    """Failed attempts before this one; absent means none."""
    total: int | None = None
    """Number of which `count` is a part, or that was counted beside it."""
    peak: int | None = None
    """Highest number since the last sample."""
    lamport: int | None = None
    """Lamport time of the actor, which orders causes before effects across nodes."""
    append_time_us: int | None = None
    """Engine time at which the range was appended, so that latency and lag need no join."""
    clock_us: int | None = None
    """Time on the node's own clock, which may be skewed."""
    detail: str | None = None
    """Further information for people."""

    def remarks(self) -> str:
        """Say the rarer facts and the detail in a few words, for people."""
        repeated = self.reason and self.detail and self.detail.startswith(self.reason)
        facts = [
            self.message,
            self.peer and f"peer {self.peer}",
            self.key and f"key {self.key}",
            None if repeated else self.reason,
            self.retries and f"retry {self.retries}",
            self.total is not None and f"total {self.total}",
            self.peak is not None and f"peak {self.peak}",
            self.detail,
        ]
        return ", ".join(fact for fact in facts if fact)

    def __str__(self) -> str:
        rest = attrs.asdict(self, filter=lambda field, value: value is not None)
        head = f"#{rest.pop('sequence')} {rest.pop('time_us') / 1e6:.6f}s {rest.pop('kind')}"
        return " ".join([head, *(f"{name}={value!r}" for name, value in rest.items())])


_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


def _arrow_field(column: "attrs.Attribute[Any]") -> pa.Field:
    """Return the Arrow field of a column of `Event`.

    Strings are names that repeat, hence dictionaries; only `detail` is free text, whose dictionary
    would grow without bound.
    """
    if column.type in (int, int | None):
        arrow_type = pa.int64()
    else:
        arrow_type = pa.string() if column.name == "detail" else _DICTIONARY
    return pa.field(column.name, arrow_type, nullable=column.default is None)


SCHEMA: Final = pa.schema(
    [_arrow_field(column) for column in attrs.fields(Event)],
    metadata={"wavetank.schema_version": str(SCHEMA_VERSION)},
)
INT_COLUMNS: Final = tuple(field.name for field in SCHEMA if field.type == pa.int64())
DICTIONARY_COLUMNS: Final = tuple(field.name for field in SCHEMA if field.type == _DICTIONARY)
_SPARSE_COLUMNS: Final = frozenset({"peer", "message", "key", "reason", "retries", "total", "peak"})
"""Columns that nearly all events leave empty: the digest hashes only the cells with a value."""

ROW_FIELDS: Final = tuple(SCHEMA)[1:]
"""The columns of a `Row`."""
_ABSENT: Final[dict[str, Cell]] = {
    field.name: NULL_INT if field.type == pa.int64() else None for field in ROW_FIELDS
}


def make_row(time_us: int, kind: str, **cells: Cell) -> Row:
    """Make a row of the cells that are not absent."""
    return tuple((_ABSENT | cells | {"time_us": time_us, "kind": kind}).values())


# Encoding columns


def encode_columns(columns: Mapping[str, Any], rows: int, first: int) -> pa.RecordBatch:
    """Make a batch of columns. A scalar holds for all rows; a missing column is absent.

    Everything is copied, so that later changes to an array do not change the batch.
    """
    arrays = [
        _constant(field, value, rows) if _is_scalar(value) else _from_sequence(field, value)
        for field, value in _matched(columns, rows)
    ]
    return as_batch(arrays, rows, first)


def to_rows(columns: Mapping[str, Any], rows: int) -> list[Row]:
    """Convert columns to rows, which is cheaper than a batch if there are few."""
    cells = [
        [checked(field, value)] * rows
        if _is_scalar(value)
        else [checked(field, item) for item in _as_list(value)]
        for field, value in _matched(columns, rows)
    ]
    return list(zip(*cells, strict=True))


def as_batch(arrays: list[pa.Array], rows: int, first: int) -> pa.RecordBatch:
    """Make a batch of arrays. `first` is the sequence number of the first row."""
    sequence = pa.array(np.arange(first, first + rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([sequence, *arrays], schema=SCHEMA)


def _matched(columns: Mapping[str, Any], rows: int) -> Iterator[tuple[pa.Field, Any]]:
    """Check names and lengths of the given columns, and pair each field with its column."""
    names = [field.name for field in ROW_FIELDS]
    for name, value in columns.items():
        if name == "sequence":
            raise BadValueError(
                "event column 'sequence': expected none, as the log numbers its rows"
            )
        if name not in names:
            raise UnknownNameError("event column", name, names)
        if isinstance(value, np.ndarray) and value.ndim != 1:
            raise BadValueError(
                f"event column {name!r}: got an array of shape {value.shape}, expected ({rows},)"
            )
        if not _is_scalar(value) and len(value) != rows:
            raise BadValueError(
                f"event column {name!r}: got {len(value)} values, expected {rows} or a scalar"
            )
    return ((field, columns.get(field.name)) for field in ROW_FIELDS)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray)


def _as_list(values: Any) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _from_sequence(field: pa.Field, values: Any) -> pa.Array:
    if field.name in INT_COLUMNS:
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != "u8":
            return from_int64(field, values.astype(np.int64))
        if isinstance(values, range) and max(abs(values.start), abs(values.stop)) < 2**62:
            return from_int64(field, np.arange(values.start, values.stop, values.step))
    items = _as_list(values)
    if field.name not in INT_COLUMNS and bytes in map(type, items):
        items = [checked(field, item) for item in items]  # Arrow would accept bytes as text
    return _from_list(field, items)


def _from_list(field: pa.Field, values: list[Any]) -> pa.Array:
    """Encode the cells of a column.

    Most columns hold only one value or none, which is quick to check and to encode.
    """
    if not values:
        return pa.nulls(0, field.type)
    if values[0] == values[-1] and values.count(values[0]) == len(values):
        return _constant(field, values[0], len(values))
    if field.name in INT_COLUMNS:
        try:
            packed = array("q", values)
        except (TypeError, OverflowError):
            packed = array("q", [checked(field, value) for value in values])
        return from_int64(field, np.frombuffer(packed, dtype=np.int64))
    try:
        strings = pa.array(values, pa.string())
    except (pa.ArrowException, TypeError, UnicodeError):
        strings = pa.array([checked(field, value) for value in values], pa.string())
    if strings.null_count and not field.nullable:
        _refuse(field, None)
    return strings if field.name == "detail" else strings.dictionary_encode()


def from_int64(field: pa.Field, values: npt.NDArray[np.int64]) -> pa.Array:
    """Encode a column of ints, with NULL_INT for absent ones."""
    absent = values == NULL_INT
    if not absent.any():
        return pa.array(values)
    if not field.nullable:
        _refuse(field, None)
    return pa.array(values, mask=absent)


def _constant(field: pa.Field, value: object, rows: int) -> pa.Array:
    cell = checked(field, value)
    if cell is None or cell == NULL_INT:
        return pa.nulls(rows, field.type)
    if field.name in INT_COLUMNS:
        return pa.array(np.full(rows, cell, dtype=np.int64))
    if field.name == "detail":
        return pa.repeat(cell, rows)
    return pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array([cell]))


def checked(field: pa.Field, value: Any) -> Cell:
    """Return a cell that can be encoded; raise `BadValueError` if the value is invalid."""
    if value is None or (isinstance(value, int) and value == NULL_INT):
        if not field.nullable:
            _refuse(field, None)
        return NULL_INT if field.name in INT_COLUMNS else None
    try:
        if field.name in INT_COLUMNS:
            return int(array("q", [value])[0])
        if isinstance(value, str):
            return value.encode().decode()
    except (TypeError, OverflowError, UnicodeError):
        pass
    _refuse(field, value)


def _refuse(field: pa.Field, value: object) -> NoReturn:
    kind = (
        "an int of 64 bits" if field.name in INT_COLUMNS else "a str that can be encoded as UTF-8"
    )
    absent = " or None" if field.nullable else ""
    got = "nothing" if value is None else f"{short(value)} ({type(value).__name__})"
    raise BadValueError(f"event column {field.name!r}: got {got}, expected {kind}{absent}")


# Reading


def select(data: pa.Table, kinds: Collection[str]) -> pa.Table:
    """Return the events of some kinds; all events if no kind is given."""
    if not kinds:
        return data
    return data.filter(pc.is_in(data["kind"], value_set=pa.array(kinds, pa.string())))


def to_events(data: pa.Table) -> Iterator[Event]:
    """Convert rows to `Event` objects, in order."""
    for batch in data.to_batches():
        yield from map(Event, *map(_cells, batch.columns))


def _cells(column: pa.Array) -> list[Cell]:
    """List the cells of a column; many times faster than Arrow's to_pylist."""
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(column.type):
        values = [*column.dictionary.to_pylist(), None]
        codes = column.indices.fill_null(len(values) - 1).to_numpy().tolist()
        return [values[code] for code in codes]
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


class Digest:
    """A fingerprint of the events in order, independent of how they are batched and stored.

    Each column is hashed as one or two streams: ints as they are; names as numbers in the order of
    their first appearance in the run, which does not depend on the dictionaries of batches, and
    once as text; free text as lengths and bytes. Of a sparse column the cells with a value are
    hashed, and their row numbers. It works on whole columns, never row by row.
    """

    def __init__(self) -> None:
        texts = [f"{name} text" for name in (*DICTIONARY_COLUMNS, "detail")]
        rows = [f"{name} rows" for name in SCHEMA.names if name in _SPARSE_COLUMNS]
        self._streams = {name: hashlib.sha256() for name in (*SCHEMA.names, *texts, *rows)}
        self._rows = 0
        self._codes: dict[str, dict[str | None, int]] = {
            name: {None: -1} for name in DICTIONARY_COLUMNS
        }

    def update(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add events. If this is interrupted, a batch is either added as a whole or not at all."""
        for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
            streams = {name: stream.copy() for name, stream in self._streams.items()}
            fresh = {}
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in _SPARSE_COLUMNS:
                is_valid = columns[name].is_valid().to_numpy(zero_copy_only=False)
                rows = self._rows + np.flatnonzero(is_valid)
                streams[f"{name} rows"].update(rows.astype("<i8", copy=False).data)
                columns[name] = columns[name].drop_null()
            for name in INT_COLUMNS:
                numbers = columns[name].cast(pa.int64()).fill_null(NULL_INT)
                streams[name].update(numbers.to_numpy().astype("<i8", copy=False))
            for name in DICTIONARY_COLUMNS:
                codes, fresh[name] = _number(columns[name], self._codes[name])
                streams[name].update(codes.astype("<i4", copy=False).data)
                streams[f"{name} text"].update("".join(map(ascii, fresh[name])).encode())
            texts = batch["detail"].cast(pa.string())
            lengths = pc.binary_length(texts).fill_null(-1)
            streams["detail"].update(lengths.to_numpy().astype("<i4", copy=False))
            streams["detail text"].update(_text_bytes(texts.drop_null()))
            self._streams = streams
            self._rows += batch.num_rows
            for name, codes_of in fresh.items():
                self._codes[name].update(codes_of)

    def hexdigest(self) -> str:
        """Return the digest of the events added so far."""
        whole = hashlib.sha256(f"wavetank events {SCHEMA_VERSION}".encode())
        for stream in self._streams.values():
            whole.update(stream.digest())
        return whole.hexdigest()


def _number(
    column: pa.Array, known: dict[str | None, int]
) -> tuple[npt.NDArray[np.int32], dict[str | None, int]]:
    """Number the names of a column by first appearance. Return the numbers and the new names."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = [*column.dictionary.to_pylist(), None]
    codes = column.indices.fill_null(len(names) - 1).to_numpy()
    fresh: dict[str | None, int] = {}
    if any(name not in known for name in names):
        # Written backwards, so that the first position of each name remains.
        seen_at = np.full(len(names), len(codes))
        seen_at[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        for code in np.argsort(seen_at)[: np.count_nonzero(seen_at < len(codes))]:
            if names[code] not in known:
                fresh.setdefault(names[code], len(known) - 1 + len(fresh))
    numbers = [known.get(name, fresh.get(name, -1)) for name in names]
    return np.array(numbers, dtype=np.int32)[codes], fresh


def _text_bytes(texts: pa.Array) -> memoryview:
    """Return the bytes of an array of strings without nulls, which may be a slice."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[ends[0] : ends[-1]]
