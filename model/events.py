"""What happened in a run: one flat schema for every kind of event, and what is made of its rows.

`Event` is the only declaration of the columns; the Arrow `SCHEMA` is derived from it. Events are
written in one of two forms, and both end as the same Arrow batches:

- a `Row`, a plain tuple in schema order without `sequence`, which is its position in the log. Rows
  are collected as numbers in one run of bytes (model/rows.py) and turned into columns thousands at
  a time, because an object or a dict for each event would cost more than all the rest;
- a columnar batch, a scalar or a sequence for each column that has values.

Nothing is carried over from one batch to the next: each has its own dictionaries of strings, so
that batches can be stored, merged and dropped freely. Only the `Digest` remembers.
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

from .errors import BadValueError, UnknownNameError

SCHEMA_VERSION: Final = 1
"""Goes up when a column is added, dropped or changes its meaning."""

NULL_INT: Final = -(2**63)
"""Stands for an absent int in a `Row`: unlike None it fits into an array of int64."""

Cell: TypeAlias = int | str | None

# time_us, kind, node, actor, topic, partition, group, member, producer,
# base_offset, count, bytes, epoch, lamport, append_time_us, clock_us, detail
Row: TypeAlias = tuple[
    int, str, str | None, str | None, str | None, int, str | None, str | None, str | None,
    int, int, int, int, int, int, int, str | None,
]  # fmt: skip
"""One event as the engines write it: absent ints are NULL_INT, absent strings None."""


@attrs.frozen
class Event:
    """One thing that happened. A data event speaks of a range of records, never of one each."""

    sequence: int
    """Position in the log, from 0."""
    time_us: int
    """Engine time in microseconds since the run began."""
    kind: str
    """What happened, in the past tense."""
    node: str | None = None
    """The node it happened on."""
    actor: str | None = None
    """The actor it happened to, or that recorded it."""
    topic: str | None = None
    """The topic it is about."""
    partition: int | None = None
    """The partition of that topic."""
    group: str | None = None
    """The consumer group it is about."""
    member: str | None = None
    """The member of that group."""
    producer: str | None = None
    """The producer of the records."""
    base_offset: int | None = None
    """The first offset of the range."""
    count: int | None = None
    """How many records the range has."""
    bytes: int | None = None
    """How large the range is."""
    epoch: int | None = None
    """The generation of the group or the epoch of the leader."""
    lamport: int | None = None
    """Lamport time of the actor: orders causes before effects across nodes."""
    append_time_us: int | None = None
    """Engine time at which the range was appended: latency and lag need no join."""
    clock_us: int | None = None
    """What the node's own clock said, which may be skewed."""
    detail: str | None = None
    """Anything else, for a person to read."""

    def __str__(self) -> str:
        rest = attrs.asdict(self, filter=lambda field, value: value is not None)
        head = f"#{rest.pop('sequence')} {rest.pop('time_us') / 1e6:.6f}s {rest.pop('kind')}"
        return " ".join([head, *(f"{name}={value!r}" for name, value in rest.items())])


_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())


def _arrow_field(column: "attrs.Attribute[Any]") -> pa.Field:
    """Say how a column of `Event` is stored.

    Strings are names that come again and again, hence dictionaries; only `detail` is free text,
    of which a dictionary would grow without bound.
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

ROW_FIELDS: Final = tuple(SCHEMA)[1:]
"""The columns that a `Row` has a cell for."""


# Columns to rows and to Arrow


def encode_columns(columns: Mapping[str, Any], rows: int, first: int) -> pa.RecordBatch:
    """Make a batch of columns: a scalar holds for all rows, a missing column is absent.

    Everything is copied: who changes an array afterwards does not change the past.
    """
    arrays = [
        _constant(field, value, rows) if _is_scalar(value) else _from_sequence(field, value)
        for field, value in _matched(columns, rows)
    ]
    return as_batch(arrays, rows, first)


def to_rows(columns: Mapping[str, Any], rows: int) -> list[Row]:
    """Lay columns out as rows: cheaper than a batch when they are few."""
    cells = [
        [checked(field, value)] * rows
        if _is_scalar(value)
        else [checked(field, item) for item in _as_list(value)]
        for field, value in _matched(columns, rows)
    ]
    return list(zip(*cells, strict=True))


def as_batch(arrays: list[pa.Array], rows: int, first: int) -> pa.RecordBatch:
    """Put the columns of rows together; `first` is the first one's sequence."""
    sequence = pa.array(np.arange(first, first + rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([sequence, *arrays], schema=SCHEMA)


def _matched(columns: Mapping[str, Any], rows: int) -> Iterator[tuple[pa.Field, Any]]:
    """Pair each field with what was given for it, once names and lengths are known to be right."""
    names = [field.name for field in ROW_FIELDS]
    for name, value in columns.items():
        if name == "sequence":
            raise BadValueError("event column 'sequence': the log itself numbers its rows")
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
        items = [checked(field, item) for item in items]  # Arrow would take bytes for text
    return _from_list(field, items)


def _from_list(field: pa.Field, values: list[Any]) -> pa.Array:
    """Encode the cells of one column.

    Most columns of most batches hold one value or none at all, which is quickly seen.
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
    """Encode a column of ints, of which NULL_INT are absent."""
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
    """Give back a cell that is sure to be encoded, or refuse the value."""
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
    kind = "an int of 64 bits" if field.name in INT_COLUMNS else "a str that UTF-8 can hold"
    absent = " or None" if field.nullable else ""
    got = "nothing" if value is None else f"{short(value)} ({type(value).__name__})"
    raise BadValueError(f"event column {field.name!r}: got {got}, expected {kind}{absent}")


# Arrow to what people and programs read


def select(data: pa.Table, kinds: Collection[str]) -> pa.Table:
    """Keep the events of these kinds; all of them if none is named."""
    if not kinds:
        return data
    return data.filter(pc.is_in(data["kind"], value_set=pa.array(kinds, pa.string())))


def to_events(data: pa.Table) -> Iterator[Event]:
    """Read rows as objects, in order."""
    for batch in data.to_batches():
        yield from map(Event, *map(_cells, batch.columns))


def _cells(column: pa.Array) -> list[Cell]:
    """List a column with None for what is absent; many times faster than Arrow's to_pylist."""
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
    """A fingerprint of the events in their order, however they were batched, stored and read.

    Each column is a stream of bytes or two: ints as they are; names as numbers in the order in
    which they first appear in the whole run, which no batch's own dictionary can change, and once
    as text; free text as lengths and bytes. It works on whole columns, never row by row.
    """

    def __init__(self) -> None:
        texts = [f"{name} text" for name in (*DICTIONARY_COLUMNS, "detail")]
        self._streams = {name: hashlib.sha256() for name in (*SCHEMA.names, *texts)}
        self._codes: dict[str, dict[str | None, int]] = {
            name: {None: -1} for name in DICTIONARY_COLUMNS
        }

    def update(self, data: pa.Table | pa.RecordBatch) -> None:
        """Take in what comes next. A batch counts as a whole or, if this is interrupted, not."""
        for batch in data.to_batches() if isinstance(data, pa.Table) else [data]:
            streams = {name: stream.copy() for name, stream in self._streams.items()}
            fresh = {}
            for name in INT_COLUMNS:
                numbers = batch[name].cast(pa.int64()).fill_null(NULL_INT)
                streams[name].update(numbers.to_numpy().astype("<i8", copy=False))
            for name in DICTIONARY_COLUMNS:
                codes, fresh[name] = _number(batch[name], self._codes[name])
                streams[name].update(codes.astype("<i4", copy=False).data)
                streams[f"{name} text"].update("".join(map(ascii, fresh[name])).encode())
            texts = batch["detail"].cast(pa.string())
            lengths = pc.binary_length(texts).fill_null(-1)
            streams["detail"].update(lengths.to_numpy().astype("<i4", copy=False))
            streams["detail text"].update(_text_bytes(texts.drop_null()))
            self._streams = streams
            for name, codes_of in fresh.items():
                self._codes[name].update(codes_of)

    def hexdigest(self) -> str:
        """Say the fingerprint of what was taken in so far."""
        whole = hashlib.sha256(f"wavetank events {SCHEMA_VERSION}".encode())
        for stream in self._streams.values():
            whole.update(stream.digest())
        return whole.hexdigest()


def _number(
    column: pa.Array, known: dict[str | None, int]
) -> tuple[npt.NDArray[np.int32], dict[str | None, int]]:
    """Number the names of a column by first appearance; give back the new ones beside."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    names = [*column.dictionary.to_pylist(), None]
    places = column.indices.fill_null(len(names) - 1).to_numpy()
    fresh: dict[str | None, int] = {}
    if any(name not in known for name in names):
        # Written backwards, the first place of each name is what remains.
        seen_at = np.full(len(names), len(places))
        seen_at[places[::-1]] = np.arange(len(places) - 1, -1, -1)
        for place in np.argsort(seen_at)[: np.count_nonzero(seen_at < len(places))]:
            if names[place] not in known:
                fresh.setdefault(names[place], len(known) - 1 + len(fresh))
    numbers = [known.get(name, fresh.get(name, -1)) for name in names]
    return np.array(numbers, dtype=np.int32)[places], fresh


def _text_bytes(texts: pa.Array) -> memoryview:
    """Give the bytes of an array of strings without nulls, of which it may be a slice."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[ends[0] : ends[-1]]
