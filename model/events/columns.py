"""Batches of events as NumPy arrays, for the counters of a run summary."""

from collections.abc import Collection, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..durations import SECOND_US
from ..summary.series import Ints
from .schema import Event, to_events

Indices: TypeAlias = npt.NDArray[np.intp]
"""Indices of rows in a batch."""


class Columns:
    """A batch of events as arrays. Absent values are -1, absent counts and sizes 0."""

    def __init__(self, batch: pa.RecordBatch, clock_us: Ints) -> None:
        self.batch = batch
        self.clock_us = clock_us
        self.seconds = clock_us // SECOND_US
        self.kinds, self.kind = numbered(batch["kind"])
        self.topics, self.topic = numbered(batch["topic"])
        self.groups, self.group = numbered(batch["group"])
        self.time_us = ints(batch["time_us"])
        self.partition = ints(batch["partition"])
        self.base = ints(batch["base_offset"])
        self.count = np.maximum(ints(batch["count"]), 0)
        self.bytes = np.maximum(ints(batch["bytes"]), 0)
        self.append_us = ints(batch["append_time_us"])

    def where(self, column: str, name: str) -> npt.NDArray[np.bool_]:
        """Return for each row whether a column of names has this name."""
        names, codes = numbered(self.batch[column])
        found: npt.NDArray[np.bool_] = codes == (names.index(name) if name in names else len(names))
        return found

    def of(self, kind: str) -> Indices:
        """Return the rows of a kind."""
        if kind not in self.kinds:
            return np.zeros(0, np.intp)
        return np.flatnonzero(self.kind == self.kinds.index(kind))

    def by_group(self, rows: Indices) -> Iterator[tuple[str, Indices]]:
        """Divide rows by their groups."""
        mine = self.group[rows]
        for number, name in enumerate(self.groups):
            found = rows[mine == number]
            if len(found):
                yield name, found

    def events(self, wanted: Collection[str]) -> dict[int, Event]:
        """Return the events of some kinds as objects, by row. For rare kinds, as it is slow."""
        rows = np.flatnonzero(np.array([kind in wanted for kind in self.kinds])[self.kind])
        if not len(rows):
            return {}
        taken = pa.Table.from_batches([self.batch.take(pa.array(rows))])
        return dict(zip(rows.tolist(), to_events(taken), strict=True))


def numbered(column: pa.Array) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the distinct names of a column, and the number of each row's name."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.fill_null(-1).to_numpy()


def ints(column: pa.Array) -> Ints:
    """Return the numbers of a column, with -1 for absent ones."""
    values: Ints = (column.fill_null(-1) if column.null_count else column).to_numpy()
    return values
