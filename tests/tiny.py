"""Hand-written logs: events in a line each, and DataFrames of them."""

from collections.abc import Iterable
from typing import Any

import attrs
import pyarrow as pa

from wavetank.model.events import SCHEMA, Event
from wavetank.model.rows import Waiting, encode_rows

PLAIN = pa.schema(
    [(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA]
)


def event(time_us: int, kind: str, **cells: Any) -> Event:
    """Something that happened to partition 0 of the orders, unless it says otherwise."""
    place = {"topic": "orders", "partition": 0} if "topic" not in cells else {}
    return Event(0, time_us, kind, **{**place, **cells})


def appended(time_us: int, base: int, count: int, **cells: Any) -> Event:
    """A batch came."""
    return event(
        time_us, "appended", base_offset=base, count=count, bytes=100 * count,
        append_time_us=time_us, **cells,
    )  # fmt: skip


def about(kind: str, time_us: int, base: int, count: int, since_us: int, **cells: Any) -> Event:
    """Something happened to records of a group."""
    return event(
        time_us, kind, base_offset=base, count=count, bytes=100 * count, append_time_us=since_us,
        **{"group": "readers", "member": "a", **cells},
    )  # fmt: skip


def committed(time_us: int, base: int, count: int, since_us: int, **cells: Any) -> Event:
    """A position was committed."""
    return about("acknowledged", time_us, base, count, since_us, epoch=1, **cells)


def acked(time_us: int, base: int, count: int, since_us: int, **cells: Any) -> Event:
    """Records were acknowledged."""
    return about("acknowledged", time_us, base, count, since_us, **cells)


def assigned(time_us: int, base: int = 0, **cells: Any) -> Event:
    """A member got the partition, at an offset."""
    known = {"group": "readers", "member": "a", "node": "a", "base_offset": base}
    return event(time_us, "assigned", **{**known, **cells})


def reset(time_us: int, base: int, **cells: Any) -> Event:
    """A position was set, for there was none."""
    return event(
        time_us, "offset_reset", group="readers", member="a", base_offset=base, detail="latest",
        **cells,
    )  # fmt: skip


def batch_of(events: Iterable[Event]) -> pa.RecordBatch:
    """The events as a run makes them, numbered in their order."""
    waiting = Waiting()
    for each in events:
        waiting.packed.extend(waiting.pack(attrs.astuple(each)[1:]))
    return encode_rows(waiting, len(waiting), 0)


def table_of(events: Iterable[Event]) -> pa.Table:
    """The events as they would be in a file."""
    return pa.Table.from_batches([batch_of(events)])


def frame(spark: Any, *logs: pa.Table) -> Any:
    """One DataFrame of some logs: all of them are one job."""
    return spark.createDataFrame(pa.concat_tables([log.cast(PLAIN) for log in logs]))


def renamed(log: pa.Table, name: str) -> pa.Table:
    """The same log with other topics and groups, so that several can be read as one."""
    plain = log.cast(PLAIN)
    for column in ("topic", "group"):
        values = [None if cell is None else f"{name}/{cell}" for cell in plain[column].to_pylist()]
        place = plain.column_names.index(column)
        plain = plain.set_column(place, column, pa.array(values, pa.string()))
    return plain
