"""From when to when a reader has a position in a partition: told by a few events, its marks.

A reader is a group, or a subscriber of a broadcast. Its life in a partition begins when it gets a
position (`assigned`, `offset_reset`), and ends when that is forgotten (`subscription_removed`,
`topic_deleted`), when the log is lost with its leader (`lost` without a group: what comes next is
owed at once), or when it is set forward over records that it has not consumed (`offset_reset`): the
next life begins there. A log that is lost or deleted begins a new era, in which offsets are without
gaps. All other events about positions repeat what acknowledgements have said.

Lives and eras are numbered by how many marks have begun one, in the order of the log; so what is
known of them never changes when more events come. Most logs have no such marks at all.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..model import kinds

Mark: TypeAlias = dict[str, Any]
Reader: TypeAlias = tuple[Any, ...]

READER: Final = ("group", "reader", "topic", "partition")
"""Whose life it is; the reader's name is empty if it is the group."""

_JOINS: Final = (kinds.ASSIGNED, kinds.OFFSET_RESET)
_ENDS: Final = (kinds.SUBSCRIPTION_REMOVED, kinds.TOPIC_DELETED)
_ERAS: Final = (kinds.LOST, kinds.TOPIC_DELETED)
_LIVES: Final = pa.schema([
    ("group", pa.string()), ("reader", pa.string()), ("topic", pa.string()),
    ("partition", pa.int64()), ("life", pa.int32()), ("era", pa.int32()), ("turn", pa.int64()),
    ("from_us", pa.int64()), ("until_us", pa.int64()),
    ("floor", pa.int64()), ("id", pa.int32()),
])  # fmt: skip


def reader_name(broadcast: Collection[str]) -> Column:
    """Which reader of its group an event is about; a subscriber has a number in a later life."""
    if not broadcast:
        return F.lit("")
    name = F.substring_index("member", "#", 1)
    return F.coalesce(F.when(F.col("group").isin(*broadcast), name), F.lit(""))


def marks_of(events: DataFrame, broadcast: Collection[str] = ()) -> DataFrame:
    """Pick the events that may begin or end lives: few, and merged by putting them together.

    Columns: those of `READER`, sequence, time_us, kind, offset.
    """
    reader = reader_name(broadcast)
    if broadcast:
        removed = F.col("kind") == kinds.SUBSCRIPTION_REMOVED
        subscriber = F.substring_index("detail", "/", -1)
        of_broadcast = removed & F.col("group").isin(*broadcast)
        reader = F.when(of_broadcast, subscriber).otherwise(reader)
    offset = F.col("base_offset")
    return (
        events.where(F.col("kind").isin(*_JOINS, *_ENDS, kinds.LOST))
        .where((F.col("kind") != kinds.LOST) | F.col("group").isNull())
        .where(~F.col("kind").isin(*_JOINS) | offset.isNotNull())
        .select(
            F.coalesce("group", F.lit("")).alias("group"), reader.alias("reader"), "topic",
            "partition", "sequence", "time_us", "kind", offset.alias("offset"),
        )
    )  # fmt: skip


def lives_of(marks: DataFrame) -> DataFrame:
    """List the lives of all readers, also those in which they have no position.

    Columns: those of `READER`, life, era, turn (the sequence number of the mark with which it
    begins; null if it is the first), from_us (when the reader gets its position; null if it has
    none), until_us (when the next one begins; null if none does), floor (the offset with which it
    begins; null: that of the first record of its era), id (a number for each).

    A row without a group is about the log itself: an era that begins in a partition, or in all of
    a topic's, whether or not anybody reads it yet.

    Marks are followed one by one, here and not in Spark: there are few of them, and it would take
    a dozen jobs to say in windows what a loop says.
    """
    told = marks.toArrow().sort_by("sequence").to_pylist()
    lives = [life for reader, own in _by_reader(told) for life in _lives(reader, own)]
    eras = [
        {**mark, "group": "", "reader": "", "turn": mark["sequence"]}
        for mark in told
        if mark["kind"] in _ERAS
    ]
    rows = [{**row, "id": number} for number, row in enumerate(lives + eras)]
    return marks.sparkSession.createDataFrame(pa.Table.from_pylist(rows, _LIVES))


def _by_reader(marks: list[Mark]) -> Iterator[tuple[Reader, list[Mark]]]:
    """Deal marks out to the readers that they are about, each in the order of the log."""
    own: dict[Reader, list[Mark]] = defaultdict(list)
    lost: dict[tuple[str, int], list[Mark]] = defaultdict(list)
    deleted: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        if mark["kind"] == kinds.LOST:
            lost[mark["topic"], mark["partition"]].append(mark)
        elif mark["kind"] == kinds.TOPIC_DELETED:
            deleted[mark["topic"]].append(mark)
        else:
            own[tuple(mark[name] for name in READER)].append(mark)
    for reader, known in own.items():
        if any(mark["kind"] in _JOINS for mark in known):
            _, _, topic, partition = reader
            more = lost.get((topic, partition), []) + deleted.get(topic, [])
            yield reader, sorted(known + more, key=lambda mark: mark["sequence"])


def _lives(reader: Reader, marks: list[Mark]) -> list[dict[str, Any]]:
    """Follow the marks of a reader."""
    lives: list[dict[str, Any]] = []
    number = era = 0
    joined = commits = False
    furthest: int | None = None
    for mark in marks:
        kind, offset = mark["kind"], mark["offset"]
        join = kind in _JOINS
        if kind in _ENDS:
            joined = False
        reset = kind == kinds.OFFSET_RESET
        commits = commits or reset
        forward = reset and furthest is not None and offset > furthest
        # Who acknowledges goes on after a loss: what it had acknowledged since then stays so.
        begins = not join or forward or (commits and joined and furthest is None)
        number, era = number + begins, era + (kind in _ERAS)
        if begins or not lives:
            if lives:
                lives[-1]["until_us"] = mark["time_us"]
            lives.append({
                **dict(zip(READER, reader, strict=True)), "life": number, "era": era,
                "turn": mark["sequence"] if begins else None,
                "from_us": None, "until_us": None, "floor": None,
            })  # fmt: skip
        life = lives[-1]
        if life["from_us"] is None and (join or (kind == kinds.LOST and joined)):
            life["from_us"], life["floor"] = mark["time_us"], offset if join else None
        if join:
            joined, furthest = True, max(offset, furthest or 0)
        else:
            furthest = None
    return lives


def numbered(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """Add `life` to rows of `READER` and sequence: the reader's, or the era if there is none."""
    turned = lives.where("turn is not null")
    if turned.isEmpty():
        return rows.withColumn("life", F.lit(0))
    keys = [name for name in READER if name != "partition"]
    turns = turned.where("partition is not null").groupBy(*READER)
    topic_turns = turned.where("partition is null").groupBy(*keys)
    return (
        rows.join(F.broadcast(turns.agg(_turns("turns"))), list(READER), "left")
        .join(F.broadcast(topic_turns.agg(_turns("topic_turns"))), keys, "left")
        .withColumn("life", _past("turns") + _past("topic_turns"))
        .drop("turns", "topic_turns")
    )


def _turns(name: str) -> Column:
    return F.collect_set("turn").alias(name)


def _past(turns: str) -> Column:
    """How many of these turns a row comes after."""
    past = F.size(F.filter(turns, lambda turn: turn < F.col("sequence")))
    return F.when(F.col(turns).isNull(), 0).otherwise(past)
