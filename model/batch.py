"""What travels from producer to partition to consumer: batches of records, in columns.

A `Batch` is a handful of numbers (whose records, from which sequence number, how many, where in
the log) over a shared tuple of columns. Whatever is done to it, stamping by the log or slicing for
a reader, makes a new handful of numbers over the same columns, so ten thousand records cost as
much as ten. A `Record` is made only for who wants to look at one.

A column is a tuple, a range or a read-only NumPy array with an item for each record; anything else
is one value that all records share, and None is the value of who has none. Lists and writable
arrays are copied, so that nobody can change the past. What a caller cannot vouch for, such as the
values of a user, which may be tuples themselves, belongs into a column even if there is only one.

Batches of a single record are made a hundred thousand times a second, and attrs' frozen classes
pay for each field: 0.7 µs for these nine, against 0.2 µs here, where a batch is filled in as an
`_Unsealed` and then becomes a `Batch`, which refuses every assignment.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from reprlib import repr as short
from typing import Any, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from .errors import BadValueError
from .record import NOWHERE, Header, Record, record_of


class _Unsealed:
    """A batch while it is being filled in."""

    __slots__ = (
        "_columns", "_start", "append_time_us", "base_offset", "bytes", "count", "epoch",
        "producer", "sequence",
    )  # fmt: skip


class Batch(_Unsealed):
    """Records of one producer in columns; immutable."""

    __slots__ = ()

    producer: str
    """Who made the records."""
    sequence: int
    """The number of the first record among its producer's; the others follow without gap."""
    count: int
    """How many records there are."""
    base_offset: int
    """The offset of the first record; NOWHERE until appended."""
    append_time_us: int
    """When the log took it; NOWHERE until appended."""
    epoch: int
    """The epoch of the leader that took it; NOWHERE until appended."""
    _columns: tuple[Any, Any, Any, Any, Any]
    """Keys, values, headers, timestamps and sizes of this batch and all it was cut from."""
    _start: int
    """The index of the first record in those columns."""
    bytes: int
    """The size of all records together."""

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
        """Put columns together; one that is mutable is copied, and a wrong one refused by name."""
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
        return _seal(producer, sequence, count, columns, 0, total)

    @classmethod
    def of(cls, producer: str, sequence: int, values: Sequence[Any], **columns: Any) -> "Batch":
        """Make a batch of what was sent record by record: as many as there are values."""
        return cls(producer, sequence, len(values), values=tuple(values), **columns)

    def stamped(self, base_offset: int, append_time_us: int, epoch: int) -> "Batch":
        """Return the same records as a log has them."""
        return _seal(
            self.producer, self.sequence, self.count, self._columns, self._start, self.bytes,
            base_offset, append_time_us, epoch,
        )  # fmt: skip

    def numbered(self, sequence: int) -> "Batch":
        """Return the same records, numbered from here: a producer counts for each partition."""
        return _seal(
            self.producer, sequence, self.count, self._columns, self._start, self.bytes,
            self.base_offset, self.append_time_us, self.epoch,
        )  # fmt: skip

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice) -> "Batch":
        """Return consecutive records; nothing is copied, and offsets and sequences follow."""
        if type(part) is not slice:
            raise TypeError(f"batch[{part!r}]: expected a slice; record() makes a single record")
        start, stop, step = part.indices(self.count)
        if step != 1:
            raise BadValueError(f"batch slice with step {step}: expected consecutive records")
        return self.part(start, stop)

    def part(self, start: int, stop: int) -> "Batch":
        """Return the records between two places, which there are."""
        count = stop - start if stop > start else 0
        base, sizes, first = self.base_offset, self._columns[4], self._start + start
        whole = type(sizes) is int
        total = sizes * count if whole else int(sizes[first : first + count].sum())
        return _seal(
            self.producer, self.sequence + start, count, self._columns, first, total,
            base + start if base >= 0 else base, self.append_time_us, self.epoch,
        )  # fmt: skip

    def split_by(self, partition_numbers: npt.NDArray[Any], partitions: int) -> dict[int, "Batch"]:
        """Deal the records out to partitions, each in order; a partition without any is left out.

        The pieces share the batch's sequence numbers: partition 0 has the first of them, and so on.
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
        # NumPy sorts 16 bits by their digits, which is several times faster than by comparison.
        numbers = numbers.astype(np.uint16 if partitions <= 2**16 else np.int64)
        order = np.argsort(numbers, kind="stable")
        columns = tuple(_taken(self._column(position), order) for position in range(5))
        ordered = _seal(self.producer, self.sequence, self.count, columns, 0, self.bytes)
        pieces = {}
        start = 0
        for partition, count in enumerate(np.bincount(numbers).tolist()):
            if count:
                pieces[partition] = ordered[start : start + count]
                start += count
        return pieces

    @property
    def keys(self) -> Any:
        """The key of each record, or the one they share."""
        return self._column(0)

    @property
    def values(self) -> Any:
        """The value of each record, or the one they share."""
        return self._column(1)

    @property
    def headers(self) -> tuple[tuple[Header, ...], ...] | None:
        """The headers of each record; None if none has any."""
        return self._column(2)  # type: ignore[no-any-return]

    @property
    def timestamps_us(self) -> int | npt.NDArray[Any]:
        """When each record was made, or all of them."""
        return self._column(3)  # type: ignore[no-any-return]

    @property
    def sizes(self) -> int | npt.NDArray[Any]:
        """The size of each record, or of every one, in bytes."""
        return self._column(4)  # type: ignore[no-any-return]

    @property
    def latest_us(self) -> int:
        """The highest timestamp; the last record's, unless clocks or retries disagree."""
        times = self.timestamps_us
        return times if isinstance(times, int) else int(times.max())

    def fitting(self, max_bytes: int) -> int:
        """Count the first records that are no larger than this together."""
        sizes = self.sizes
        if isinstance(sizes, int):
            return min(self.count, max_bytes // sizes) if sizes else self.count
        return int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))

    def first_at(self, timestamp_us: int) -> int:
        """Find the index of the first record made at this time or later; `count` if none was."""
        times = self.timestamps_us
        if isinstance(times, int):
            return 0 if times >= timestamp_us else self.count
        late = times >= timestamp_us
        return int(late.argmax()) if late.any() else self.count

    def record(
        self, index: int, topic: str, partition: int, retries: int = 0, read_us: int = NOWHERE
    ) -> Record:
        """Make the record at this index, for who asks by topic and partition."""
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} of a batch of {self.count}")
        at = self._start + index
        key, value, headers, timestamp_us, size = [_cell(column, at) for column in self._columns]
        offset = self.base_offset + index if self.base_offset >= 0 else self.base_offset
        return Record(
            topic, partition, offset, timestamp_us, key, value, self.producer,
            self.sequence + index, size, self.append_time_us, headers or (), retries, read_us,
        )  # fmt: skip

    def records(
        self, topic: str, partition: int, retries: int = 0, read_us: int = NOWHERE
    ) -> list[Record]:
        """Make all records, for who asks by topic and partition."""
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
        )  # fmt: skip
        return list(map(record_of, fields))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise attrs.exceptions.FrozenInstanceError

    def __delattr__(self, name: str) -> NoReturn:
        raise attrs.exceptions.FrozenInstanceError

    def __repr__(self) -> str:
        """Name what tells batches apart: short, and the same in every run."""
        return (
            f"Batch({self.producer!r}, sequence={self.sequence}, count={self.count}, "
            f"bytes={self.bytes}, base_offset={self.base_offset})"
        )

    def _column(self, position: int) -> Any:
        column = self._columns[position]
        if _is_column(column):
            return column[self._start : self._start + self.count]
        return column


def _seal(
    producer: str, sequence: int, count: int, columns: tuple[Any, ...], start: int, total: int,
    base_offset: int = NOWHERE, append_time_us: int = NOWHERE, epoch: int = NOWHERE,
) -> Batch:  # fmt: skip
    batch: Any = _Unsealed()
    batch.producer = producer
    batch.sequence = sequence
    batch.count = count
    batch._columns = columns
    batch._start = start
    batch.bytes = total
    batch.base_offset = base_offset
    batch.append_time_us = append_time_us
    batch.epoch = epoch
    batch.__class__ = Batch
    return batch  # type: ignore[no-any-return]


# Columns


def _is_column(column: object) -> bool:
    """Tell a column from a value that all share; a named tuple, say, is a value."""
    kind = type(column)
    return kind is tuple or kind is range or kind is np.ndarray


def _cell(column: Any, index: int) -> Any:
    """Read a column at an index as a plain Python value."""
    if type(column) is np.ndarray:
        return column.item(index)
    return column[index] if _is_column(column) else column


def _cells(column: Any) -> Any:
    """Go through a column as plain Python values; without end if all records share one."""
    if type(column) is np.ndarray:
        return column.tolist()
    return column if _is_column(column) else repeat(column)


def _frozen(name: str, column: Any, count: int) -> Any:
    """Give back a column that nobody can change, with an item for each record."""
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
    """Copy an array unless neither it nor what it is a view of can be written to."""
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
    """Give back an int for all records or an array, which is what can be calculated with."""
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
