"""Event logs written by hand, as tables and DataFrames, and the rows of measures.

Spark takes long for each job and little for each row, so tests measure many logs as one: with
`prefixed`, the topics and groups of each log get a name of their own.
"""

from collections.abc import Iterable
from typing import Any

import attrs
import pyarrow as pa

from wavetank.model.events.rows import PendingRows, encode_rows
from wavetank.model.events.schema import SCHEMA, Event
from wavetank.model.summary.counters import Counters
from wavetank.model.summary.summary import Summary

S = 1_000_000
"""A second in microseconds."""
PLAIN_SCHEMA = pa.schema(
    [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA]
)
"""The schema of events without dictionaries, which Spark does not accept."""


def event(time_us: int, kind: str, **cells: Any) -> Event:
    """An event; its sequence number is set by its place in a log."""
    return Event(0, time_us, kind, **cells)


def partition_event(time_us: int, kind: str, **cells: Any) -> Event:
    """An event of partition 0 of the topic orders, unless another topic is given."""
    place = {"topic": "orders", "partition": 0} if "topic" not in cells else {}
    return event(time_us, kind, **{**place, **cells})


def appended(time_us: int, base: int, count: int, **cells: Any) -> Event:
    """A batch was appended."""
    return partition_event(
        time_us, "appended", base_offset=base, count=count, bytes=100 * count,
        append_time_us=time_us, **cells,
    )  # fmt: skip


def record_event(
    kind: str, time_us: int, base: int, count: int, since_us: int, **cells: Any
) -> Event:
    """An event about records, appended at since_us, of member a of the group readers."""
    return partition_event(
        time_us, kind, base_offset=base, count=count, bytes=100 * count, append_time_us=since_us,
        **_of_member(cells),
    )  # fmt: skip


def _of_member(cells: dict[str, Any]) -> dict[str, Any]:
    """The cells of a member of the group readers, a unless another is given."""
    member = cells.get("member", "a")
    return {"group": "readers", "member": member, "consumer": member, **cells}


def committed(time_us: int, base: int, count: int, since_us: int, **cells: Any) -> Event:
    """An offset was committed: the end of this range."""
    return record_event(
        "acknowledged", time_us, base, count, since_us, epoch=1, mode="commit", **cells
    )


def acked(time_us: int, base: int, count: int, since_us: int, **cells: Any) -> Event:
    """Records were acknowledged."""
    return record_event("acknowledged", time_us, base, count, since_us, mode="record", **cells)


def assigned(time_us: int, base: int = 0, **cells: Any) -> Event:
    """A member got the partition, at an offset."""
    known = {"node": "a", "base_offset": base}
    return partition_event(time_us, "assigned", **{**known, **_of_member(cells)})


def offset_reset(time_us: int, base: int, **cells: Any) -> Event:
    """A group's position was set by its reset policy."""
    return partition_event(
        time_us, "offset_reset", base_offset=base, reason="latest", **_of_member(cells)
    )  # fmt: skip


def offset_rewound(time_us: int, base: int, **cells: Any) -> Event:
    """A group committed an offset before its committed one."""
    return partition_event(time_us, "offset_rewound", base_offset=base, **_of_member(cells))


def batch_of(events: Iterable[Event]) -> pa.RecordBatch:
    """Encode events as a run does, numbered in their order."""
    waiting = PendingRows()
    for each in events:
        waiting.packed.extend(waiting.pack(attrs.astuple(each)[1:]))
    return encode_rows(waiting, len(waiting), 0)


def table_of(events: Iterable[Event]) -> pa.Table:
    """The events as a table with the schema of a run directory."""
    return pa.Table.from_batches([batch_of(events)])


def frame_of(spark: Any, *logs: pa.Table | Iterable[Event]) -> Any:
    """A DataFrame of one or several logs."""
    tables = [log if isinstance(log, pa.Table) else table_of(log) for log in logs]
    return spark.createDataFrame(pa.concat_tables([each.cast(PLAIN_SCHEMA) for each in tables]))


def prefixed(log: pa.Table, name: str) -> pa.Table:
    """The same log with this name before its topics and groups."""
    plain = log.cast(PLAIN_SCHEMA)
    for column in ("topic", "group"):
        values = [None if cell is None else f"{name}/{cell}" for cell in plain[column].to_pylist()]
        place = plain.column_names.index(column)
        plain = plain.set_column(place, column, pa.array(values, pa.string()))
    return plain


def summary_of(events: list[Event], broadcast: Iterable[str] = ()) -> Summary:
    """The summary that the counters make of events, up to the last of them."""
    counters = Counters(list(broadcast))
    counters.add(batch_of(events))
    return counters.summary(events[-1].time_us)


def rows(measured: Any) -> list[tuple[Any, ...]]:
    """The rows of a measure as tuples."""
    return [tuple(row) for row in measured.collect()]


def sorted_rows(measured: Any) -> list[tuple[Any, ...]]:
    """The rows of a measure that has no order."""
    return sorted(rows(measured), key=repr)


def dicts(measured: Any) -> list[dict[str, Any]]:
    """The rows of a measure by column."""
    return [row.asDict() for row in measured.collect()]
