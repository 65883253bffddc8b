"""Events that wait to be encoded, each packed into one row of bytes.

Actors record the same combinations of names (kind, node, actor, topic, group, reason …) again and
again. Such a combination, the `Subject` of an event, gets a number once. A free text gets a number
until it is encoded. The other columns are numbers already. A row is thus packed
in one step, is smaller than a tuple, and rows become columns without a Python step for each cell.

Values are checked before a row is packed, so that every waiting row can be encoded.
"""

import struct
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import BadValueError
from .schema import INT_COLUMNS, NULL_INT, ROW_FIELDS, Row, as_batch, checked, from_int64

Subject: TypeAlias = tuple[Any, ...]
"""The names of an event and its partition: kind, node, actor, topic, partition, group, member,
consumer, producer, peer, message, key, mode and reason."""

_NAMES_END: Final = 15
_SUBJECT_FIELDS: Final = ROW_FIELDS[1:_NAMES_END]
_NUMBER_FIELDS: Final = ROW_FIELDS[_NAMES_END:-1]
"""The columns of a `Row` between its subject and its detail."""

_FORM: Final = struct.Struct(f"={3 + len(_NUMBER_FIELDS)}q")
ROW_BYTES: Final = _FORM.size
pack = _FORM.pack
"""Packs a row: the number of its subject, the number of its detail (or NULL_INT), time_us,
base_offset, count, bytes, epoch, retries, total, peak, lamport, append_time_us and clock_us."""


class PendingRows:
    """Rows in order, added by any thread and removed by one.

    There is no lock: adding a row, like everything else that threads share here, is one atomic
    operation of the interpreter.
    """

    def __init__(self) -> None:
        self.packed = bytearray()
        """The packed rows. Extend it to add rows; only `drop` and `clear` remove some."""
        self.numbers: dict[Subject, int] = {}
        """The numbers of subjects that were used before."""
        self._subjects: dict[int, Subject] = {}
        self._details: dict[int, str] = {}
        self._next_subject, self._next_detail = count(1), count()

    def __len__(self) -> int:
        return len(self.packed) // ROW_BYTES

    def subject(self, subject: Subject) -> int:
        """Return the number of a subject, from 1 on. It never changes."""
        try:
            number = self.numbers.get(subject)
        except TypeError:
            number = None  # an unhashable cell is no name: `_add` refuses it with its column
        return self._add(subject) if number is None else number

    def _add(self, subject: Subject) -> int:
        pairs = zip(_SUBJECT_FIELDS, subject, strict=True)
        known: Any = tuple([checked(field, cell) for field, cell in pairs])
        number = self.numbers.get(known)
        if number is None:
            # Two threads may add the same subject at once. It has two numbers then: no harm.
            number = next(self._next_subject)
            self._subjects[number] = known
            self.numbers[known] = number
        self.numbers[subject] = number
        return number

    def detail(self, text: str) -> int:
        """Return a number for a text, for rows that are added right afterwards."""
        number = next(self._next_detail)
        self._details[number] = checked(ROW_FIELDS[-1], text)  # type: ignore[assignment]
        return number

    def pack(self, row: Row) -> bytes:
        """Pack a row; raise `BadValueError` if a cell is invalid."""
        if len(row) != len(ROW_FIELDS):
            raise BadValueError(
                f"a row of the event log: got {len(row)} cells, expected {len(ROW_FIELDS)}"
            )
        time_us, numbers, detail = row[0], row[_NAMES_END:-1], row[-1]
        try:
            subject = self.numbers[row[1:_NAMES_END]]
        except (KeyError, TypeError):
            subject = self.subject(row[1:_NAMES_END])
        text = NULL_INT if detail is None else self.detail(detail)
        try:
            if time_us != NULL_INT:
                return pack(subject, text, time_us, *numbers)
        except struct.error:
            pass
        pairs = zip((ROW_FIELDS[0], *_NUMBER_FIELDS), (time_us, *numbers), strict=True)
        return pack(subject, text, *[checked(field, cell) for field, cell in pairs])

    def drop(self, rows: int) -> None:
        """Remove the first rows."""
        if self._details:
            texts = _matrix(self, rows)[:, 1]
            for text in texts[texts != NULL_INT].tolist():
                self._details.pop(text, None)
        del self.packed[: rows * ROW_BYTES]

    def clear(self) -> None:
        """Remove all rows."""
        self.packed.clear()
        self._details.clear()

    def subjects(self, numbers: npt.NDArray[np.int64]) -> list[Subject]:
        """Return the subjects with these numbers."""
        return [self._subjects[number] for number in numbers.tolist()]

    def details(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return the texts with these numbers; NULL_INT stands for no text."""
        there = numbers != NULL_INT
        texts = [self._details[number] for number in numbers[there].tolist()]
        positions = pa.array(np.cumsum(there) - 1, mask=~there)
        return pa.array(texts, pa.string()).take(positions)


def encode_rows(waiting: PendingRows, rows: int, first: int) -> pa.RecordBatch:
    """Make a batch of the first rows. `first` is the sequence number of the first one."""
    matrix = _matrix(waiting, rows)
    about, detail, time_us, *numbers = map(np.ascontiguousarray, matrix.T)
    # Each subject is looked up once, however many rows it has.
    times = np.bincount(about)
    subjects = waiting.subjects(np.flatnonzero(times))
    positions = (np.cumsum(times > 0, dtype=np.int32) - 1)[about]
    of_subject = [
        _spread(field, [subject[position] for subject in subjects], positions)
        for position, field in enumerate(_SUBJECT_FIELDS)
    ]
    of_row = [
        from_int64(field, column) for field, column in zip(_NUMBER_FIELDS, numbers, strict=True)
    ]
    return as_batch([pa.array(time_us), *of_subject, *of_row, waiting.details(detail)], rows, first)


def _matrix(waiting: PendingRows, rows: int) -> npt.NDArray[np.int64]:
    """Return the first rows as a matrix. A copy, as a bytearray with a view cannot be extended."""
    packed = waiting.packed[: rows * ROW_BYTES]
    return np.frombuffer(packed, dtype=np.int64).reshape(rows, ROW_BYTES // 8)


def _spread(field: pa.Field, cells: list[Any], positions: npt.NDArray[np.int32]) -> pa.Array:
    """Make a column from the cells of the subjects, each repeated at its positions."""
    if field.name in INT_COLUMNS:
        return from_int64(field, np.array(cells, dtype=np.int64)[positions])
    names = pa.array(cells, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(pa.array(positions)), names.dictionary)
