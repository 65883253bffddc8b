"""Batches of events as NumPy arrays, for those who count."""

from collections.abc import Collection, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .durations import SECOND_US
from .events import Event, to_events
from .series import Ints

Places: TypeAlias = npt.NDArray[np.intp]


class Columns:
    """A part of a batch as arrays; what is absent is -1."""

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

    def of(self, kind: str) -> Places:
        """The rows of a kind."""
        if kind not in self.kinds:
            return np.zeros(0, np.intp)
        return np.flatnonzero(self.kind == self.kinds.index(kind))

    def by_group(self, rows: Places) -> Iterator[tuple[str, Places]]:
        """Divide rows by their groups."""
        mine = self.group[rows]
        for number, name in enumerate(self.groups):
            found = rows[mine == number]
            if len(found):
                yield name, found

    def events(self, wanted: Collection[str]) -> dict[int, Event]:
        """The events of some kinds, by row: for what is rare."""
        rows = np.flatnonzero(np.array([kind in wanted for kind in self.kinds])[self.kind])
        if not len(rows):
            return {}
        taken = pa.Table.from_batches([self.batch.take(pa.array(rows))])
        return dict(zip(rows.tolist(), to_events(taken), strict=True))


def numbered(column: pa.Array) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The names of a column, and of each row the number of its name."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.fill_null(-1).to_numpy()


def ints(column: pa.Array) -> Ints:
    """The numbers of a column, -1 for what is absent."""
    values: Ints = (column.fill_null(-1) if column.null_count else column).to_numpy()
    return values
