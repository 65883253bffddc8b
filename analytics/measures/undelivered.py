"""Records that wait at the end of a log, and delivery gaps: times in which records only waited.

Each partition is followed by the counters of the run's own summary (model/summary/counters.py), in
parallel: what is delivered is a set of ranges, which has no simple form in SQL. A Spark cluster
therefore needs Wavetank on its workers, as sweeps do.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...model.events import kinds
from ...model.events.schema import SCHEMA, to_events
from ...model.summary.counters import ROLES, Counters
from ...model.summary.ownership import Ownership
from .ownership import end_of

GAP: Final = "gap"
_MEMBERS: Final = (kinds.MEMBER_JOINED, kinds.MEMBER_LEFT, kinds.ASSIGNED)
_COLUMNS: Final = (
    "sequence", "time_us", "kind", "topic", "partition", "group", "member", "consumer", "mode",
    "reason", "base_offset", "count", "retries", "append_time_us",
)  # fmt: skip
_RESULT: Final = pa.schema([
    ("row", pa.string()), ("group", pa.string()), ("topic", pa.string()), ("partition", pa.int64()),
    ("from_us", pa.int64()), ("until_us", pa.int64()), ("records", pa.int64()),
])  # fmt: skip
_TYPES: Final = (
    "row string, group string, topic string, partition long, from_us long, until_us long, "
    "records long"
)


def undelivered(
    events: DataFrame,
    broadcast: Collection[str] = (),
    end_us: int | None = None,
    warm_up_us: int = 0,
) -> DataFrame:
    """Return the delivery gaps of each partition, and the records that wait at the end.

    Columns: row, group, topic, partition, from_us, until_us, records.

    - row "gap": records of the partition waited from from_us to until_us, and none was delivered to
      the group. Of a gap, the longest part in which the group had members is left; of gaps, the
      thousand longest of each partition and reader. Time before warm_up_us does not count.
    - row "delivered" or "acknowledged": the group still waits at the end for this stage of so many
      records, appended at from_us; until_us is the end

    The end is end_us, or else the time of the last event. See `DeliveryGaps` in
    model/summary/summary.py for the definition of a gap. A broadcast group has the gaps and records
    of all its consumers.
    """
    if end_us is None:
        end_us = end_of(events).toArrow()["end_us"][0].as_py() or 0
    owners = _owners(events)
    deleted = events.where(F.col("kind") == kinds.TOPIC_DELETED).select(*_COLUMNS).toArrow()
    deletions = _by_topic(deleted)

    def follow(table: pa.Table) -> pa.Table:
        topic, partition = table["topic"][0].as_py(), table["partition"][0].as_py()
        rows = pa.Table.from_pylist(deletions.get(topic, []), table.schema)
        counters = Counters(broadcast, warm_up_us)
        for batch in _as_events(pa.concat_tables([table, rows])).to_batches():
            counters.add(batch)
        found = [
            {**row, "topic": topic, "partition": partition}
            for row in _rows(counters, owners, end_us)
        ]
        return pa.Table.from_pylist(found, _RESULT)

    return (
        events.where(F.col("kind").isin(*ROLES) & F.expr("topic is not null and partition >= 0"))
        .select(*_COLUMNS)
        .groupBy("topic", "partition")
        .applyInArrow(follow, _TYPES)
    )


def _rows(
    counters: Counters, owners: dict[str, Ownership], end_us: int
) -> Iterator[dict[str, Any]]:
    for group, ends in counters.reader_ends(end_us).items():
        for end in ends:
            for outage in end.gaps:
                gap = owners[group].with_members(outage) if group in owners else outage
                if gap is not None:
                    until_us = gap.at_us + gap.lasted_us
                    yield {"row": GAP, "group": group, "from_us": gap.at_us, "until_us": until_us}
            stages = ((kinds.DELIVERED, end.undelivered), (kinds.ACKNOWLEDGED, end.unacknowledged))
            for stage, waiting in stages:
                for each in waiting:
                    for append_us, count in zip(
                        each.append_us.tolist(), each.count.tolist(), strict=True
                    ):
                        yield {
                            "row": stage, "group": group, "from_us": append_us, "until_us": end_us,
                            "records": count,
                        }  # fmt: skip


def _owners(events: DataFrame) -> dict[str, Ownership]:
    """Follow the members of each group. These events are few."""
    table = events.where(F.col("kind").isin(*_MEMBERS) & F.col("group").isNotNull()).toArrow()
    owners: dict[str, Ownership] = defaultdict(Ownership)
    for event in to_events(_as_events(table)):
        owners[event.group or ""].follow(event, event.time_us)
    return dict(owners)


def _as_events(table: pa.Table) -> pa.Table:
    """Return rows in their order, with all columns of events; absent ones are empty."""
    rows = table.sort_by("sequence")
    return pa.table(
        [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    ).combine_chunks()


def _by_topic(deleted: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in deleted.to_pylist():
        found[row["topic"]].append(row)
    return dict(found)
