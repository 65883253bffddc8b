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

from collections.abc import Collection
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from ..model import kinds

READER: Final = ("group", "reader", "topic", "partition")
"""Whose life it is; the reader's name is empty if it is the group."""

_JOINS: Final = (kinds.ASSIGNED, kinds.OFFSET_RESET)
_ENDS: Final = (kinds.SUBSCRIPTION_REMOVED, kinds.TOPIC_DELETED)
_ERAS: Final = (kinds.LOST, kinds.TOPIC_DELETED)


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
    begins; null if it is the first), turns_era (whether its era begins with it), from_us (when the
    reader gets its position; null if it has none), until_us (when the next one begins; null if
    none does), floor (the offset with which it begins; null: that of the first record of its era).
    """
    join = F.when(F.col("kind").isin(*_JOINS), F.struct("sequence", "offset"))
    first = F.min(
        F.struct("sequence", "time_us", "begins", F.col("kind").isin(*_ERAS).alias("era"))
    )
    return (
        _followed(marks)
        .groupBy(*READER, "life", "era")
        .agg(
            first.alias("first"),
            F.min(F.when(F.col("joins"), F.col("time_us"))).alias("from_us"),
            F.min(join)["offset"].alias("floor"),
        )
        .select(
            *READER, "life", "era",
            F.when(F.col("first.begins"), F.col("first.sequence")).alias("turn"),
            F.col("first.era").alias("turns_era"),
            "from_us",
            F.lead("first.time_us").over(_reader().orderBy("life")).alias("until_us"),
            "floor",
        )
    )  # fmt: skip


def _followed(marks: DataFrame) -> DataFrame:
    """Say of each mark, for each reader that it is about, which life and era it belongs to.

    Adds: begins (whether a life begins with it), life, era, joins (whether its reader has a
    position by it). Marks are so few that one task has soon done with them.
    """
    kind = F.col("kind")
    marks = marks.repartition(1)
    readers = marks.where(kind.isin(*_JOINS)).select(*READER).distinct()
    lost = marks.where(kind == kinds.LOST).drop("group", "reader")
    deleted = marks.where(kind == kinds.TOPIC_DELETED).drop("group", "reader", "partition")
    every = (
        marks.where(kind.isin(*_JOINS, kinds.SUBSCRIPTION_REMOVED))
        .unionByName(readers.join(lost, ["topic", "partition"]))
        .unionByName(readers.join(deleted, ["topic"]))
    )
    join = kind.isin(*_JOINS)
    forward = (kind == kinds.OFFSET_RESET) & (F.col("offset") > F.col("furthest"))
    again = F.col("furthest").isNull() & F.col("joined")
    return (
        every.withColumn("part", _count(~join))
        .withColumn("stretch", _count(kind.isin(*_ENDS)))
        .withColumn("era", _count(kind.isin(*_ERAS)))
        .withColumn("joined", F.coalesce(F.max(join).over(_before("stretch")), F.lit(False)))
        .withColumn("furthest", F.max(F.when(join, F.col("offset"))).over(_before("part")))
        .withColumn("begins", ~join | forward | again)
        .withColumn("life", _count(F.col("begins")))
        .withColumn("joins", join | ((kind == kinds.LOST) & F.col("joined")))
    )


def _count(what: Column) -> Column:
    """How many so far, in the order of the log."""
    return F.sum(what.cast("int")).over(_reader().orderBy("sequence")).cast("int")


def _reader(*more: str) -> WindowSpec:
    return Window.partitionBy(*READER, *more)


def _before(what: str) -> WindowSpec:
    return _reader(what).orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)


def numbered(rows: DataFrame, lives: DataFrame) -> DataFrame:
    """Add `life` to rows of `READER` and sequence: the reader's, or the era if there is none."""
    turned = lives.where("turn is not null")
    eras = turned.where("turns_era").withColumns({"group": F.lit(""), "reader": F.lit("")})
    turns = (
        turned.select(*READER, "turn")
        .unionByName(eras.select(*READER, "turn"))
        .groupBy(*READER)
        .agg(F.collect_set("turn").alias("turns"))
    )
    life = F.size(F.filter("turns", lambda turn: turn < F.col("sequence")))
    return (
        rows.join(F.broadcast(turns), list(READER), "left")
        .withColumn("life", F.when(F.col("turns").isNull(), 0).otherwise(life))
        .drop("turns")
    )
