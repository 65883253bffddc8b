"""Reader sessions: the times during which a reader has a continuous position in a partition.

A reader is a group, or one subscriber of a broadcast group. A few kinds of events, the boundaries,
start and end its sessions. A session starts when the reader gets a position (`assigned`,
`offset_reset`). It ends

- when the position is deleted (`subscription_removed`, `topic_deleted`)
- when the log is lost with its leader (`lost` without a group); the next session starts at once, so
  that records appended afterwards count as lag
- when the position is moved forward over unconsumed records (`offset_reset`); the next session
  starts there

A log that is lost or deleted starts a new incarnation. Offsets have no gaps within an incarnation.
Other events about positions can be ignored, because acknowledgements carry the same information.

Sessions and incarnations are numbered by the boundaries before them, in log order, so a number
never changes when more events arrive. In most logs each reader has one session.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ...model.events import kinds

Boundary: TypeAlias = dict[str, Any]
ReaderKey: TypeAlias = tuple[Any, ...]

READER: Final = ("group", "reader", "topic", "partition")
"""The columns that identify a reader of a partition. `reader` is empty if it is the group."""

_STARTS: Final = (kinds.ASSIGNED, kinds.OFFSET_RESET, kinds.OFFSET_REWOUND)
_ENDS: Final = (kinds.SUBSCRIPTION_REMOVED, kinds.TOPIC_DELETED)
_NEW_INCARNATIONS: Final = (kinds.LOST, kinds.TOPIC_DELETED)
_SESSIONS: Final = pa.schema([
    ("group", pa.string()), ("reader", pa.string()), ("topic", pa.string()),
    ("partition", pa.int64()), ("session", pa.int32()), ("incarnation", pa.int32()),
    ("start_sequence", pa.int64()), ("from_us", pa.int64()), ("until_us", pa.int64()),
    ("start_offset", pa.int64()), ("session_id", pa.int32()),
])  # fmt: skip


def reader_name(broadcast: Collection[str]) -> Column:
    """Return the consumer that an event is about, or "" if its group is not a broadcast."""
    if not broadcast:
        return F.lit("")
    return F.coalesce(F.when(F.col("group").isin(*broadcast), F.col("consumer")), F.lit(""))


def session_boundaries(events: DataFrame, broadcast: Collection[str] = ()) -> DataFrame:
    """Select the events that may start or end sessions.

    Columns: those of `READER`, sequence, time_us, kind, offset. The boundaries of several parts of
    a log are merged with a union.
    """
    offset = F.col("base_offset")
    return (
        events.where(F.col("kind").isin(*_STARTS, *_ENDS, kinds.LOST))
        .where((F.col("kind") != kinds.LOST) | F.col("group").isNull())
        .where(~F.col("kind").isin(*_STARTS) | offset.isNotNull())
        .select(
            F.coalesce("group", F.lit("")).alias("group"),
            reader_name(broadcast).alias("reader"), "topic", "partition", "sequence", "time_us",
            "kind", offset.alias("offset"),
        )
    )  # fmt: skip


def reader_sessions(boundaries: DataFrame) -> DataFrame:
    """List the sessions of all readers, including the times without a position.

    Columns: those of `READER`, and

    - session, incarnation: their numbers, from 0
    - start_sequence: sequence number of the boundary that starts it; null for the first session
    - from_us: when the reader gets its position; null if it gets none
    - until_us: when the next session starts; null if none does
    - start_offset: its first position; null means the first record of the incarnation
    - session_id: unique number of the row

    A row without a group is about the log: an incarnation that starts in one partition, or in all
    partitions of a topic (partition is null).

    This loops in Python, because there are few boundaries and the same rules as Spark windows would
    take a dozen jobs.
    """
    known = boundaries.toArrow().sort_by("sequence").to_pylist()
    sessions = [row for reader, own in _by_reader(known) for row in _sessions(reader, own)]
    incarnations = [
        {**boundary, "group": "", "reader": "", "start_sequence": boundary["sequence"]}
        for boundary in known
        if boundary["kind"] in _NEW_INCARNATIONS
    ]
    rows = [{**row, "session_id": number} for number, row in enumerate(sessions + incarnations)]
    return boundaries.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _SESSIONS))


def _by_reader(boundaries: list[Boundary]) -> Iterator[tuple[ReaderKey, list[Boundary]]]:
    """Return the boundaries that concern each reader, in log order."""
    own: dict[ReaderKey, list[Boundary]] = defaultdict(list)
    lost: dict[tuple[str, int], list[Boundary]] = defaultdict(list)
    deleted: dict[str, list[Boundary]] = defaultdict(list)
    for boundary in boundaries:
        if boundary["kind"] == kinds.LOST:
            lost[boundary["topic"], boundary["partition"]].append(boundary)
        elif boundary["kind"] == kinds.TOPIC_DELETED:
            deleted[boundary["topic"]].append(boundary)
        else:
            own[tuple(boundary[name] for name in READER)].append(boundary)
    for reader, known in own.items():
        if any(boundary["kind"] in _STARTS for boundary in known):
            _, _, topic, partition = reader
            of_log = lost.get((topic, partition), []) + deleted.get(topic, [])
            yield reader, sorted(known + of_log, key=lambda boundary: boundary["sequence"])


def _sessions(reader: ReaderKey, boundaries: list[Boundary]) -> list[dict[str, Any]]:
    sessions: list[dict[str, Any]] = []
    number = incarnation = 0
    has_position = commits = False
    highest: int | None = None  # position that the session was set to
    for boundary in boundaries:
        kind, offset = boundary["kind"], boundary["offset"]
        positions = kind in _STARTS
        if kind in _ENDS:
            has_position = False
        reset = kind == kinds.OFFSET_RESET
        rewound = kind == kinds.OFFSET_REWOUND
        commits = commits or reset or rewound
        forward = reset and highest is not None and offset > highest
        # After a loss, a group that acknowledges records keeps its session: what it acknowledged
        # since then still counts.
        after_loss = commits and has_position and highest is None
        new = not positions or forward or after_loss or rewound
        number, incarnation = number + new, incarnation + (kind in _NEW_INCARNATIONS)
        if new or not sessions:
            if sessions:
                sessions[-1]["until_us"] = boundary["time_us"]
            sessions.append({
                **dict(zip(READER, reader, strict=True)),
                "session": number, "incarnation": incarnation,
                "start_sequence": boundary["sequence"] if new else None,
                "from_us": None, "until_us": None, "start_offset": None,
            })  # fmt: skip
        session = sessions[-1]
        if session["from_us"] is None and (positions or (kind == kinds.LOST and has_position)):
            session["from_us"] = boundary["time_us"]
            session["start_offset"] = offset if positions else None
        if positions:
            has_position, highest = True, offset if rewound else max(offset, highest or 0)
        else:
            highest = None
    return sessions


def add_session_numbers(rows: DataFrame, sessions: DataFrame) -> DataFrame:
    """Add the column `session` to rows with `READER` and sequence.

    Rows without a group get the number of the log's incarnation.
    """
    started = sessions.where("start_sequence is not null")
    if started.isEmpty():
        return rows.withColumn("session", F.lit(0))
    keys = [name for name in READER if name != "partition"]
    starts = started.where("partition is not null").groupBy(*READER)
    topic_starts = started.where("partition is null").groupBy(*keys)
    return (
        rows.join(F.broadcast(starts.agg(_start_sequences("starts"))), list(READER), "left")
        .join(F.broadcast(topic_starts.agg(_start_sequences("topic_starts"))), keys, "left")
        .withColumn("session", _starts_before("starts") + _starts_before("topic_starts"))
        .drop("starts", "topic_starts")
    )


def _start_sequences(name: str) -> Column:
    return F.collect_set("start_sequence").alias(name)


def _starts_before(starts: str) -> Column:
    """Count the starts that a row comes after."""
    before = F.size(F.filter(starts, lambda start: start < F.col("sequence")))
    return F.when(F.col(starts).isNull(), 0).otherwise(before)
