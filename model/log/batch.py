"""Batches of records in columns: the form in which records travel and are stored.

A `Batch` is a few numbers (producer, first sequence number, count, base offset) over a shared tuple
of columns. Stamping it with offsets and slicing it make another few numbers over the same columns,
so ten thousand records cost as much as ten. A `Record` is made only when it is accessed.

A column is a tuple, a range or a read-only NumPy array with one item for each record. Any other
object is one value that all records share; `None` means absent. Lists and writable arrays are
copied, so that a batch cannot change. Values of unknown type, such as those of a user, which may be
tuples themselves, must be put into a column even if there is only one. The columns of a batch that
comes from a file (`lazy_batch`) are made when they are first accessed. A batch whose records are
only in a file has no columns (`is_loaded`): it stands for the place of its records in the log.

Batches of one record are made a hundred thousand times a second. A frozen attrs class with these
eleven fields takes 0.7 µs to make. Here it takes 0.2 µs: a batch is filled in as an `_Unsealed` and
then becomes a `Batch`, which refuses every assignment.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from reprlib import repr as short
from typing import Any, NoReturn, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import BadValueError
from .record import NOT_IDEMPOTENT, NOWHERE, Header, Record, record_of

Columns: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""Keys, values, headers, timestamps and sizes; none of them can be changed."""


class _Unsealed:
    """A batch while it is being filled in."""

    __slots__ = (
        "_columns", "_start", "append_time_us", "base_offset", "bytes", "count", "epoch",
        "instance", "producer", "producer_epoch", "sequence",
    )  # fmt: skip


class Batch(_Unsealed):
    """Records of one producer in columns. Immutable."""

    __slots__ = ()

    producer: str
    """Id of the producer."""
    instance: str
    """The process that sent it: no two producers have the same one, nor two lives of one."""
    sequence: int
    """Sequence number of the first record; the others follow without gaps."""
    count: int
    """Number of records."""
    base_offset: int
    """Offset of the first record; NOWHERE until appended."""
    append_time_us: int
    """Time of the append; NOWHERE until appended."""
    epoch: int
    """Epoch of the leader that appended it; NOWHERE until appended."""
    producer_epoch: int
    """Epoch of the producer; NOT_IDEMPOTENT until appended, or if the producer is not."""
    _columns: "Columns | _LazyColumns | _NotLoaded"
    """Keys, values, headers, timestamps and sizes, of this batch and those it was sliced from."""
    _start: int
    """Index of the first record in the columns."""
    bytes: int
    """Size of all records together."""

    def __new__(
        cls,
        producer: str,
        sequence: int,
        count: int,
        *,
        keys: Any = None,
        values: Any = None,
        headers: Sequence[Iterable[Header]] | None = None,
        timestamps_us: int | Sequence[int] | npt.NDArray[Any],
        sizes: int | Sequence[int] | npt.NDArray[Any],
    ) -> "Batch":
        """Make a batch of columns. Mutable columns are copied; an invalid one is an error."""
        if keys is not None:
            keys = _frozen("keys", keys, count)
        if values is not None:
            values = _frozen("values", values, count)
        if headers is not None:
            pairs = [tuple((name, value) for name, value in each) for each in headers]
            headers = _frozen("headers", pairs, count)
        if type(timestamps_us) is not int:
            timestamps_us = _frozen_ints("timestamps_us", timestamps_us, count)
        if type(sizes) is int:
            lowest, total = sizes, sizes * count
        else:
            sizes = _frozen_ints("sizes", sizes, count)
            lowest, total = int(np.min(sizes, initial=0)), int(np.sum(sizes))
        if lowest < 0:
            raise BadValueError(f"column sizes: got {lowest}, expected zero or more")
        columns = (keys, values, headers, timestamps_us, sizes)
        return _seal(producer, producer, sequence, count, columns, 0, total)

    @classmethod
    def of(cls, producer: str, sequence: int, values: Sequence[Any], **columns: Any) -> "Batch":
        """Make a batch with one record for each value."""
        return cls(producer, sequence, len(values), values=tuple(values), **columns)

    def stamped(
        self, base_offset: int, append_time_us: int, epoch: int,
        producer_epoch: int = NOT_IDEMPOTENT,
    ) -> "Batch":  # fmt: skip
        """Return the same records with offsets, append time, and epochs of leader and producer."""
        return _seal(
            self.producer, self.instance, self.sequence, self.count, self._columns, self._start,
            self.bytes, base_offset, append_time_us, epoch, producer_epoch,
        )  # fmt: skip

    def numbered(self, sequence: int, instance: str) -> "Batch":
        """Return the same records with other sequence numbers, of this instance of a producer."""
        return _seal(
            self.producer, instance, sequence, self.count, self._columns, self._start, self.bytes,
            self.base_offset, self.append_time_us, self.epoch, self.producer_epoch,
        )  # fmt: skip

    def unloaded(self) -> "Batch":
        """Return a batch with the same numbers and without records, which are in a file.

        It keeps the sizes of its records, unless they would have to be decoded.
        """
        sizes = self.known_sizes
        if isinstance(sizes, np.ndarray):
            sizes = _locked(sizes.astype(np.uint32 if self.bytes < 2**32 else np.int64))
        return _seal(
            self.producer, self.instance, self.sequence, self.count, _NotLoaded(sizes), 0,
            self.bytes, self.base_offset, self.append_time_us, self.epoch, self.producer_epoch,
        )  # fmt: skip

    def loaded(self, make_columns: Callable[[], Columns]) -> "Batch":
        """Return a batch with the same numbers, whose records are made when they are accessed."""
        columns = _LazyColumns(make_columns, self.known_sizes)
        return _seal(
            self.producer, self.instance, self.sequence, self.count, columns, 0, self.bytes,
            self.base_offset, self.append_time_us, self.epoch, self.producer_epoch,
        )  # fmt: skip

    @property
    def is_loaded(self) -> bool:
        """Whether its records are in memory, or can be made of bytes that are."""
        return type(self._columns) is not _NotLoaded

    @property
    def known_sizes(self) -> int | npt.NDArray[Any] | None:
        """Size of each record, or one that all share; `None` if a frame has to be decoded first."""
        columns = self._columns
        if not isinstance(columns, tuple) and columns.sizes is None:
            return None
        return self.sizes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> "Batch":
        """Return consecutive records, with their offsets and sequence numbers. Copies nothing."""
        if type(part) is not slice:
            raise TypeError(f"batch[{part!r}]: expected a slice; record() makes a single record")
        start, stop, step = part.indices(self.count)
        if step != 1:
            raise BadValueError(f"batch slice with step {step}: expected consecutive records")
        return self.part(start, stop)

    def part(self, start: int, stop: int) -> "Batch":
        """Return the records between two indices, which must be in range.

        The size of a part is estimated if the sizes of the records are not known.
        """
        count = stop - start if stop > start else 0
        columns = self._columns
        base, sizes, first = self.base_offset, columns[4], self._start + start
        if sizes is None:
            total = self.bytes * count // self.count if count else 0
        else:
            whole = type(sizes) is int
            total = sizes * count if whole else int(sizes[first : first + count].sum())
        return _seal(
            self.producer, self.instance, self.sequence + start, count, columns, first, total,
            base + start if base >= 0 else base, self.append_time_us, self.epoch,
            self.producer_epoch,
        )  # fmt: skip

    def split_by(self, partition_numbers: npt.NDArray[Any], partitions: int) -> dict[int, "Batch"]:
        """Split the records by partition, in order within each; empty partitions are left out.

        The pieces divide the batch's sequence numbers: the lowest partition gets the first ones.
        """
        numbers = partition_numbers
        if numbers.shape != (self.count,) or numbers.dtype.kind not in "iu":
            raise BadValueError(f"partition numbers: got {numbers!r}, expected {self.count} ints")
        if not self.count:
            return {}
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0 or highest >= partitions:
            got = f"{lowest} to {highest}"
            raise BadValueError(f"partition numbers: got {got}, expected 0 to {partitions - 1}")
        if lowest == highest:
            return {lowest: self}
        # NumPy uses a radix sort for 16 bits, which is several times faster than comparing.
        numbers = numbers.astype(np.uint16 if partitions <= 2**16 else np.int64)
        order = np.argsort(numbers, kind="stable")
        columns = tuple(_taken(self._column(position), order) for position in range(5))
        ordered = _seal(
            self.producer, self.instance, self.sequence, self.count, columns, 0, self.bytes
        )
        pieces = {}
        start = 0
        for partition, count in enumerate(np.bincount(numbers).tolist()):
            if count:
                pieces[partition] = ordered[start : start + count]
                start += count
        return pieces

    @property
    def keys(self) -> Any:
        """Key of each record, or one key that all share."""
        return self._column(0)

    @property
    def values(self) -> Any:
        """Value of each record, or one value that all share."""
        return self._column(1)

    @property
    def headers(self) -> tuple[tuple[Header, ...], ...] | None:
        """Headers of each record; `None` if no record has any."""
        return self._column(2)  # type: ignore[no-any-return]

    @property
    def timestamps_us(self) -> int | npt.NDArray[Any]:
        """Timestamp of each record, or one that all share."""
        return self._column(3)  # type: ignore[no-any-return]

    @property
    def sizes(self) -> int | npt.NDArray[Any]:
        """Size of each record in bytes, or one that all share."""
        return self._column(4)  # type: ignore[no-any-return]

    @property
    def latest_us(self) -> int:
        """Highest timestamp."""
        times = self.timestamps_us
        return times if isinstance(times, int) else int(times.max())

    def fitting(self, max_bytes: int) -> int:
        """Count the first records that fit into `max_bytes` together."""
        sizes = self.sizes
        if isinstance(sizes, int):
            return min(self.count, max_bytes // sizes) if sizes else self.count
        return int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))

    def first_at(self, timestamp_us: int) -> int:
        """Return the index of the first record with this timestamp or a later one, or `count`."""
        times = self.timestamps_us
        if isinstance(times, int):
            return 0 if times >= timestamp_us else self.count
        late = times >= timestamp_us
        return int(late.argmax()) if late.any() else self.count

    def record(
        self, index: int, topic: str, partition: int, retries: int = 0, read_us: int = NOWHERE
    ) -> Record:
        """Make the record at an index. A batch does not know its topic and partition."""
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} of a batch of {self.count}")
        at = self._start + index
        key, value, headers, timestamp_us, size = [_cell(column, at) for column in self._columns]
        offset = self.base_offset + index if self.base_offset >= 0 else self.base_offset
        return Record(
            topic, partition, offset, timestamp_us, key, value, self.producer,
            self.sequence + index, size, self.append_time_us, headers or (), retries, read_us,
            self.instance,
        )  # fmt: skip

    def records(
        self, topic: str, partition: int, retries: int = 0, read_us: int = NOWHERE
    ) -> list[Record]:
        """Make all records. A batch does not know its topic and partition."""
        if self.count == 1:
            return [self.record(0, topic, partition, retries, read_us)]
        columns = [self._column(position) for position in range(5)]
        keys, values, headers, timestamps_us, sizes = map(_cells, columns)
        base = self.base_offset
        offsets = range(base, base + self.count) if base >= 0 else repeat(base)
        sequences = range(self.sequence, self.sequence + self.count)
        fields = zip(
            repeat(topic), repeat(partition), offsets, timestamps_us, keys, values,
            repeat(self.producer), sequences, sizes, repeat(self.append_time_us),
            headers if columns[2] else repeat(()), repeat(retries), repeat(read_us),
            repeat(self.instance),
        )  # fmt: skip
        return list(map(record_of, fields))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise attrs.exceptions.FrozenInstanceError

    def __delattr__(self, name: str) -> NoReturn:
        raise attrs.exceptions.FrozenInstanceError

    def __repr__(self) -> str:
        """Show the identity of a batch: short, and the same in every run."""
        return (
            f"Batch({self.producer!r}, sequence={self.sequence}, count={self.count}, "
            f"bytes={self.bytes}, base_offset={self.base_offset})"
        )

    def _column(self, position: int) -> Any:
        column = self._columns[position]
        if _is_column(column):
            return column[self._start : self._start + self.count]
        return column


def lazy_batch(
    producer: str, instance: str, sequence: int, count: int, make_columns: Callable[[], Columns],
    total: int, base_offset: int, append_time_us: int, epoch: int, producer_epoch: int,
) -> Batch:  # fmt: skip
    """Make a batch whose columns are made once, when somebody looks inside.

    Whoever stores or forwards it needs only its numbers. `total` is the sum of its sizes. A column
    of ints is an int or a read-only array, and an int if there is only one record.
    """
    columns = _LazyColumns(make_columns)
    return _seal(
        producer, instance, sequence, count, columns, 0, total, base_offset, append_time_us, epoch,
        producer_epoch,
    )  # fmt: skip


class _LazyColumns:
    """Stands for a tuple of columns, and makes it when it is first accessed."""

    __slots__ = ("_columns", "_make", "sizes")

    def __init__(
        self, make: Callable[[], Columns], sizes: int | npt.NDArray[Any] | None = None
    ) -> None:
        self._make: Callable[[], Columns] | None = make
        self._columns: Columns | None = None
        self.sizes = sizes
        """The column of sizes, if it is known before the others are made."""

    def __getitem__(self, position: int) -> Any:
        if position == 4 and self.sizes is not None:
            return self.sizes
        return self._made()[position]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._made())

    def _made(self) -> Columns:
        # Two threads may both make them, which is harmless, as they make the same. The order of
        # reading counts: once there is nothing left to make them of, there are columns.
        make, columns = self._make, self._columns
        if columns is None:
            assert make is not None
            columns = self._columns = make()
            self._make = None  # with it goes what they were made of
        return columns


class _NotLoaded:
    """Stands for columns that are not in memory, except perhaps the sizes."""

    __slots__ = ("sizes",)

    def __init__(self, sizes: int | npt.NDArray[Any] | None) -> None:
        self.sizes = sizes

    def __getitem__(self, position: int) -> Any:
        assert position == 4, "the records of this batch are on the disk: they have to be read"
        return self.sizes

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(5))


def unloaded_batch(
    producer: str, instance: str, sequence: int, count: int, total: int, base_offset: int,
    append_time_us: int, epoch: int, producer_epoch: int,
) -> Batch:  # fmt: skip
    """Make a batch whose records are in a file; `total` is the sum of their sizes."""
    return _seal(
        producer, instance, sequence, count, _NotLoaded(None), 0, total, base_offset,
        append_time_us, epoch, producer_epoch,
    )  # fmt: skip


def _seal(
    producer: str, instance: str, sequence: int, count: int,
    columns: "tuple[Any, ...] | _LazyColumns | _NotLoaded", start: int, total: int,
    base_offset: int = NOWHERE, append_time_us: int = NOWHERE, epoch: int = NOWHERE,
    producer_epoch: int = NOT_IDEMPOTENT,
) -> Batch:  # fmt: skip
    batch: Any = _Unsealed()
    batch.producer = producer
    batch.instance = instance
    batch.sequence = sequence
    batch.count = count
    batch._columns = columns
    batch._start = start
    batch.bytes = total
    batch.base_offset = base_offset
    batch.append_time_us = append_time_us
    batch.epoch = epoch
    batch.producer_epoch = producer_epoch
    batch.__class__ = Batch
    return batch  # type: ignore[no-any-return]


# Columns


def _is_column(column: object) -> bool:
    """Whether an object is a column; otherwise, like a named tuple, it is one shared value."""
    kind = type(column)
    return kind is tuple or kind is range or kind is np.ndarray


def _cell(column: Any, index: int) -> Any:
    """Return the item of a column at an index, as a plain Python value."""
    if type(column) is np.ndarray:
        return column.item(index)
    return column[index] if _is_column(column) else column


def _cells(column: Any) -> Any:
    """Return the items of a column as plain Python values; endless if all records share one."""
    if type(column) is np.ndarray:
        return column.tolist()
    return column if _is_column(column) else repeat(column)


def _frozen(name: str, column: Any, count: int) -> Any:
    """Return an immutable column with an item for each record."""
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise BadValueError(f"column {name}: got shape {column.shape}, expected ({count},)")
        column = _frozen_array(column)
    elif type(column) is list:
        column = tuple(column)
    elif not _is_column(column):
        return column
    if len(column) != count:
        raise BadValueError(f"column {name}: got {len(column)} items, expected {count}")
    return column


def _frozen_array(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy an array, unless it and the arrays it is a view of are read-only."""
    owner: Any = column
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    if type(column) is np.ndarray and (owner is None or type(owner) is bytes):
        return column
    return _locked(np.array(column))


def _locked(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    column.flags.writeable = False
    return column


def _frozen_ints(name: str, column: Any, count: int) -> Any:
    """Return an int for all records, or a read-only array of ints."""
    if isinstance(column, int | np.integer):
        return int(column)
    try:
        if type(column) is range:
            column = _locked(np.arange(column.start, column.stop, column.step))
        elif isinstance(column, tuple | list):
            column = _locked(np.array(array("q", column)))
    except (TypeError, OverflowError):
        pass
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "iu":
        raise BadValueError(f"column {name}: got {short(column)}, expected ints of 64 bits")
    column = _frozen(name, column, count)
    return column.item(0) if count == 1 else column


def _taken(column: Any, order: npt.NDArray[np.intp]) -> Any:
    if type(column) is tuple:
        return tuple([column[index] for index in order.tolist()])
    if type(column) is range:
        column = np.arange(column.start, column.stop, column.step)
    return _locked(column[order]) if type(column) is np.ndarray else column
