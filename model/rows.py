"""Events that wait to be encoded: a few numbers in a row of bytes each.

Actors record about the same things again and again: this actor appended to this partition what that
producer made. What stays the same, the `Subject` of an event, gets a number once; free text gets
one until it is encoded. The rest are numbers as it is. So a row is packed in one step, takes less
room than a tuple, and becomes columns without a look at each cell.

What cannot be stored is refused before it is packed: whatever waits here can be encoded.
"""

import struct
from itertools import count
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import BadValueError
from .events import INT_COLUMNS, NULL_INT, ROW_FIELDS, Row, as_batch, checked, from_int64

Subject: TypeAlias = tuple[
    str, str | None, str | None, str | None, int, str | None, str | None, str | None
]
"""What an event is about: kind, node, actor, topic, partition, group, member and producer."""

_SUBJECT_FIELDS: Final = ROW_FIELDS[1:9]
_NUMBER_FIELDS: Final = ROW_FIELDS[9:16]
"""A `Row` has these after its time_us, and at its end a detail."""

_FORM: Final = struct.Struct("=10q")
ROW_BYTES: Final = _FORM.size
pack = _FORM.pack
"""Pack the numbers of a row: of its subject, of its detail (or NULL_INT), its time_us, base_offset,
count, bytes, epoch, lamport, append_time_us and clock_us."""


class Waiting:
    """Rows in their order, added by any thread and taken away by one.

    A row is added in one step of the interpreter, and so is everything else that threads share:
    there is no lock.
    """

    def __init__(self) -> None:
        self.packed = bytearray()
        """The rows; to be extended, and by `drop` shortened."""
        self._numbers: dict[Subject, int] = {}
        self._subjects: dict[int, Subject] = {}
        self._details: dict[int, str] = {}
        self._next_subject, self._next_detail = count(1), count()

    def __len__(self) -> int:
        return len(self.packed) // ROW_BYTES

    def subject(self, subject: Subject) -> int:
        """Give the number of a subject, from 1 on, which stays the same."""
        try:
            number = self._numbers.get(subject)
        except TypeError:
            number = None  # nothing that cannot be a key is a name: it is refused by name below
        return self._add(subject) if number is None else number

    def _add(self, subject: Subject) -> int:
        pairs = zip(_SUBJECT_FIELDS, subject, strict=True)
        known: Any = tuple([checked(field, cell) for field, cell in pairs])
        number = self._numbers.get(known)
        if number is None:
            # Two threads may both come here for the same subject: it has two numbers then.
            number = next(self._next_subject)
            self._subjects[number] = known
            self._numbers[known] = number
        self._numbers[subject] = number
        return number

    def detail(self, text: str) -> int:
        """Give a number for a text, to be used for the rows that are added next, at once."""
        number = next(self._next_detail)
        self._details[number] = checked(ROW_FIELDS[-1], text)  # type: ignore[assignment]
        return number

    def pack(self, row: Row) -> bytes:
        """Pack a row, or say what is wrong with it."""
        try:
            (
                time_us, kind, node, actor, topic, partition, group, member, producer,
                base_offset, count, size, epoch, lamport, append_time_us, clock_us, detail,
            ) = row  # fmt: skip
        except ValueError:
            raise BadValueError(
                f"a row of the event log: got {len(row)} cells, expected {len(ROW_FIELDS)}"
            ) from None
        subject = self.subject((kind, node, actor, topic, partition, group, member, producer))
        text = NULL_INT if detail is None else self.detail(detail)
        try:
            if time_us != NULL_INT:
                return pack(
                    subject, text, time_us, base_offset, count, size, epoch, lamport,
                    append_time_us, clock_us,
                )  # fmt: skip
        except struct.error:
            pass
        pairs = zip((ROW_FIELDS[0], *_NUMBER_FIELDS), (time_us, *row[9:16]), strict=True)
        return pack(subject, text, *[checked(field, cell) for field, cell in pairs])

    def drop(self, rows: int) -> None:
        """Take the first rows away."""
        if self._details:
            texts = _matrix(self, rows)[:, 1]
            for text in texts[texts != NULL_INT].tolist():
                self._details.pop(text, None)
        del self.packed[: rows * ROW_BYTES]

    def clear(self) -> None:
        """Take all rows away."""
        self.packed.clear()
        self._details.clear()

    def subjects(self, numbers: npt.NDArray[np.int64]) -> list[Subject]:
        """Look up subjects."""
        return [self._subjects[number] for number in numbers.tolist()]

    def details(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Look up texts; NULL_INT stands for none."""
        there = numbers != NULL_INT
        texts = [self._details[number] for number in numbers[there].tolist()]
        places = pa.array(np.cumsum(there) - 1, mask=~there)
        return pa.array(texts, pa.string()).take(places)


def encode_rows(waiting: Waiting, rows: int, first: int) -> pa.RecordBatch:
    """Make a batch of the first rows; `first` is the first one's sequence."""
    matrix = _matrix(waiting, rows)
    about, detail, time_us, *numbers = map(np.ascontiguousarray, matrix.T)
    # A subject that comes a thousand times is looked at once.
    times = np.bincount(about)
    subjects = waiting.subjects(np.flatnonzero(times))
    places = (np.cumsum(times > 0, dtype=np.int32) - 1)[about]
    of_subject = [
        _spread(field, [subject[position] for subject in subjects], places)
        for position, field in enumerate(_SUBJECT_FIELDS)
    ]
    of_row = [
        from_int64(field, column) for field, column in zip(_NUMBER_FIELDS, numbers, strict=True)
    ]
    return as_batch([pa.array(time_us), *of_subject, *of_row, waiting.details(detail)], rows, first)


def _matrix(waiting: Waiting, rows: int) -> npt.NDArray[np.int64]:
    """See the first rows as numbers: of a copy, for what is looked at could not grow."""
    packed = waiting.packed[: rows * ROW_BYTES]
    return np.frombuffer(packed, dtype=np.int64).reshape(rows, ROW_BYTES // 8)


def _spread(field: pa.Field, cells: list[Any], places: npt.NDArray[np.int32]) -> pa.Array:
    """Make a column of what a few subjects say, each in its places."""
    if field.name in INT_COLUMNS:
        return from_int64(field, np.array(cells, dtype=np.int64)[places])
    names = pa.array(cells, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(pa.array(places)), names.dictionary)
