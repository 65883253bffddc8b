"""Consumer lag, in records and in time, at the end of each window.

It is computed in three steps:

1. `lag_parts` counts appended and consumed records per window, reader and partition. This is the
   only step over all events.
2. `reader_sessions` finds the few events that start and end the sessions of readers.
3. `lag_from_parts` combines both: running sums, maxima and minima over windows, then one row for
   every window, also for windows without events.

Until the last step a reader of a partition is identified by a 64-bit hash of its names, which is a
third faster than the names. With a hundred thousand readers, one log in a billion has a collision.

The oldest unconsumed record at the end of a window falls into one of two cases. If it is consumed
later, it has the least append time of all records consumed after the window, because events carry
the append time. If it is never consumed, then in some window fewer records are ever consumed than
were appended; only its batch within that window has to be looked up in the events.
"""

from collections.abc import Callable, Collection
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...model.durations import Duration
from ...model.events import kinds
from .reader_sessions import (
    READER,
    add_session_numbers,
    reader_name,
    reader_sessions,
    session_boundaries,
)
from .windows import is_commit, start_us, width_us

CONSUMED: Final = (kinds.ACKNOWLEDGED, kinds.DEAD_LETTERED, kinds.ARCHIVED, kinds.LOST)
"""After these events a record no longer counts as lag of the group."""


def lag(
    events: DataFrame,
    window: Duration = 1,
    broadcast: Collection[str] = (),
    *,
    to_delivered: bool = False,
) -> DataFrame:
    """Return the lag of each reader in each partition at the end of each window.

    Columns: time_us (end of the window), group, reader (the group's name, or the subscriber's name
    in the groups given as `broadcast`), topic, partition, records, age_us.

    - records = records that were appended before time_us, from the reader's first position on, and
      not consumed before time_us. A group that commits offsets has consumed everything before its
      committed offset. A group that acknowledges records has consumed those that were acknowledged,
      dead-lettered, archived, or lost to it.
    - age_us = time_us - append time of the oldest of these records; 0 if there are none

    With `to_delivered`, records count only until they are first delivered. The lag of a healthy
    group that commits offsets is its commit interval; its lag to the delivered position is that of
    its processing. A record that is lost to a group after its delivery counts as delivered twice.

    There is a row for every window from the reader's first position to the last event, except while
    its position is deleted or after the topic is deleted. The result is exact, with the limits for
    compacted topics that model/summary/lag_tracker.py describes.

    The events are read when this is called, not when the result is used: intermediate results are
    kept, because they are used many times.
    """
    sessions = reader_sessions(session_boundaries(events, broadcast))
    if to_delivered:
        events = _with_deliveries(events, sessions, broadcast)
    parts = lag_parts(events, sessions, window, broadcast).localCheckpoint()

    def look_up(needed: pa.Table) -> DataFrame:
        return lag_changes(_events_since(events, needed), sessions, window, broadcast)

    return lag_from_parts(parts, sessions, look_up, window)


def _with_deliveries(
    events: DataFrame, sessions: DataFrame, broadcast: Collection[str]
) -> DataFrame:
    """Replace acknowledgements by first deliveries: of records, or of committed positions."""
    kind, acknowledged = F.col("kind"), F.col("kind") == kinds.ACKNOWLEDGED
    found = events.where(acknowledged & (F.col("mode") == kinds.RECORD)).select("group").distinct()
    by_record = F.col("group").isin([row["group"] for row in found.collect()])
    reader = F.when(kind == kinds.DELIVERED, reader_name(broadcast))
    numbered = add_session_numbers(
        events.where(kind == kinds.DELIVERED).withColumn("reader", reader), sessions
    )
    own = Window.partitionBy(*READER, "session").orderBy("sequence")
    end_offset = F.col("base_offset") + F.col("count")
    before = F.max(end_offset).over(own.rowsBetween(Window.unboundedPreceding, -1))
    is_first = F.when(by_record, F.coalesce("retries", F.lit(0)) == 0).otherwise(
        before.isNull() | (end_offset > before)
    )
    deliveries = (
        numbered.withColumn("is_first", is_first)
        .where("is_first")
        .withColumn("kind", F.lit(kinds.ACKNOWLEDGED))
        .withColumn("mode", F.when(by_record, kinds.RECORD).otherwise(kinds.COMMIT))
    )
    given_up = kind.isin(kinds.DEAD_LETTERED, kinds.ARCHIVED)
    rest = events.where(~acknowledged & ~given_up & (kind != kinds.DELIVERED))
    return rest.unionByName(deliveries.select(*events.columns))


def lag_parts(
    events: DataFrame, sessions: DataFrame, window: Duration = 1, broadcast: Collection[str] = ()
) -> DataFrame:
    """Count appended and consumed records. `sessions` must cover at least these events.

    Columns:

    - window_us: start of the window of the event
    - append_window_us: start of the window in which the records were appended; null for a committed
      offset, because everything before it is consumed
    - reader_hash: the reader of a partition, or for appended records the log (see `reader_hash`)
    - session: number of the reader's session, or of the log's incarnation
    - records, first_offset (null unless appended), end_offset, append_us (the least append time)

    One row without reader_hash says how far the log goes.

    Parts of a log are merged with a union, or with `merge_parts` into fewer rows.
    """
    parts = merge_parts(lag_changes(events, sessions, window, broadcast))
    last = events.agg(start_us(width_us(window), F.max("time_us")).alias("window_us"))
    return parts.unionByName(last, allowMissingColumns=True)


def merge_parts(parts: DataFrame) -> DataFrame:
    """Merge rows of equal window, append window, reader and session."""
    return parts.groupBy("window_us", "append_window_us", "reader_hash", "session").agg(
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("end_offset").alias("end_offset"),
        F.min("append_us").alias("append_us"),
    )


def lag_from_parts(
    parts: DataFrame,
    sessions: DataFrame,
    look_up: Callable[[pa.Table], DataFrame],
    window: Duration = 1,
) -> DataFrame:
    """Compute the lag from parts, merged or not, and all sessions.

    `look_up` is called once with the windows in which the oldest record was appended that a session
    never consumes (append_window_us, among other columns). It returns at least the `lag_changes` of
    records appended in these windows.
    """
    width = width_us(window)
    last_us = parts.agg(F.max("window_us")).first()
    begun = sessions.where("from_us is not null").select(
        "session_id", *READER, "session", "incarnation", "start_offset",
        reader_hash(*READER).alias("reader_hash"),
        reader_hash(F.lit(""), F.lit(""), "topic", "partition").alias("log_hash"),
        start_us(width, "from_us").alias("begin_us"), start_us(width, "until_us").alias("stop_us"),
    )  # fmt: skip
    states = _states(parts, begun).localCheckpoint()
    needed = _windows_to_look_up(states, begun).toArrow()
    unconsumed = _oldest_unconsumed(parts.sparkSession.createDataFrame(needed), look_up(needed))
    known = states.join(F.broadcast(unconsumed), "session_id", "left").join(
        F.broadcast(begun), "session_id"
    )
    return _fill_windows(known, width, last_us[0] if last_us else None)


def reader_hash(*reader: Column | str) -> Column:
    """Hash the names of a reader (`READER`). A log has the empty group and reader."""
    return F.xxhash64(*reader)


def lag_changes(
    events: DataFrame, sessions: DataFrame, window: Duration = 1, broadcast: Collection[str] = ()
) -> DataFrame:
    """Return a row for each range of records appended or consumed: the columns of `lag_parts`."""
    width = width_us(window)
    kind, group = F.col("kind"), F.col("group")
    append_us = F.coalesce("append_time_us", "time_us")
    commits = is_commit()
    relevant = (kind == kinds.APPENDED) | group.isNotNull()
    changes = events.where(kind.isin(kinds.APPENDED, *CONSUMED) & relevant).select(
        start_us(width).alias("window_us"),
        F.when(~commits, start_us(width, append_us)).alias("append_window_us"),
        F.coalesce(group, F.lit("")).alias("group"),
        reader_name(broadcast).alias("reader"),
        "topic",
        "partition",
        "sequence",
        F.col("count").alias("records"),
        F.when(kind == kinds.APPENDED, F.col("base_offset")).alias("first_offset"),
        (F.col("base_offset") + F.col("count")).alias("end_offset"),
        append_us.alias("append_us"),
    )
    numbered = add_session_numbers(changes, sessions)
    return numbered.withColumn("reader_hash", reader_hash(*READER)).drop("sequence", *READER)


def _states(parts: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return the state of each session at the end of each window with events.

    Columns:

    - session_id, window_us, next_window_us (the session's next window with events)
    - first_offset, end_offset: the offsets appended in this window alone
    - consumed_ever: how many of these records are consumed, at any time
    - base_offset: the offset that the session starts with
    - commits, last_position: of the whole session, whether it commits offsets and its last position
    - log_end, consumed, position: at the end of the window
    - oldest_us: append time of the oldest record that is consumed after this window
    """
    sessions = F.broadcast(sessions)
    logs = sessions.selectExpr("session_id", "log_hash as reader_hash", "incarnation as session")
    own = sessions.select("session_id", "reader_hash", "session")
    consumed = parts.where("first_offset is null").join(own, ["reader_hash", "session"])
    rows = [
        sessions.selectExpr("session_id", "begin_us as window_us"),
        parts.join(logs, ["reader_hash", "session"]).select(
            "session_id", "window_us", "first_offset", "end_offset"
        ),
        consumed.selectExpr(
            "session_id", "window_us", "records as consumed", "end_offset as position",
            "append_us", "append_window_us is null as commits",
        ),
        consumed.where("append_window_us is not null").selectExpr(
            "session_id", "append_window_us as window_us", "records as consumed_ever"
        ),
    ]  # fmt: skip
    every = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows)
    # Partitioned by session alone, as the windows below need it: few rows share a key.
    states = (
        every.repartition("session_id")
        .groupBy("session_id", "window_us")
        .agg(
            F.min("first_offset").alias("first_offset"),
            F.max("end_offset").alias("end_offset"),
            F.coalesce(F.sum("consumed_ever"), F.lit(0)).alias("consumed_ever"),
            F.sum("consumed").alias("consumed"),
            F.max("position").alias("position"),
            F.min("append_us").alias("oldest_us"),
            F.max("commits").alias("commits"),
        )
    )
    session = Window.partitionBy("session_id")
    in_order = session.orderBy("window_us")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    # Spark is slow with frames of following rows, but not with preceding rows in reverse order.
    later = session.orderBy(F.desc("window_us")).rowsBetween(Window.unboundedPreceding, -1)
    base = F.greatest("start_offset", F.min("first_offset").over(session))
    return states.join(sessions.select("session_id", "start_offset"), "session_id").select(
        "session_id", "window_us", "first_offset", "end_offset", "consumed_ever",
        base.alias("base_offset"),
        F.coalesce(F.max("commits").over(session), F.lit(False)).alias("commits"),
        F.greatest(F.max("position").over(session), base).alias("last_position"),
        F.max("end_offset").over(so_far).alias("log_end"),
        F.coalesce(F.sum("consumed").over(so_far), F.lit(0)).alias("consumed"),
        F.greatest(F.max("position").over(so_far), base).alias("position"),
        F.min("oldest_us").over(later).alias("oldest_us"),
        F.lead("window_us").over(in_order).alias("next_window_us"),
    )  # fmt: skip


def _windows_to_look_up(states: DataFrame, sessions: DataFrame) -> DataFrame:
    """Find the window in which the oldest record was appended that a session never consumes.

    Columns: those of `sessions`, append_window_us, from_offset (where to start looking), commits.
    """
    start = F.when(F.col("commits"), F.col("last_position")).otherwise(F.col("base_offset"))
    appended = F.greatest(F.col("end_offset") - F.greatest("first_offset", start), F.lit(0))
    consumed = F.when(F.col("commits"), 0).otherwise(F.col("consumed_ever"))
    left_over = F.when(appended > consumed, F.col("window_us"))
    return (
        states.groupBy("session_id", "commits", start.alias("from_offset"))
        .agg(F.min(left_over).alias("append_window_us"))
        .where("append_window_us is not null")
        .join(F.broadcast(sessions), "session_id")
    )


def _events_since(events: DataFrame, needed: pa.Table) -> DataFrame:
    """Keep only events that can be about records of the needed windows.

    Nothing happens to a record before it is appended, and the log is ordered by time, so most of it
    need not be read.
    """
    kind, all_commit = F.col("kind"), pc.all(needed["commits"], min_count=0).as_py()
    first_us = pc.min(needed["append_window_us"]).as_py()
    kinds_needed = kind == kinds.APPENDED if all_commit else F.lit(True)
    return events.where((F.col("time_us") >= F.lit(first_us)) & kinds_needed)


def _oldest_unconsumed(needed: DataFrame, changes: DataFrame) -> DataFrame:
    """Find the oldest record that a session never consumes.

    Columns: session_id, unconsumed_us (its append time).
    """
    changes = changes.withColumnsRenamed({"reader_hash": "changed", "session": "changed_session"})
    of_log = (F.col("changed") == F.col("log_hash")) & (
        F.col("changed_session") == F.col("incarnation")
    )
    of_reader = (F.col("changed") == F.col("reader_hash")) & (
        F.col("changed_session") == F.col("session")
    )
    # A group that commits has consumed everything before from_offset, which is already left out.
    wanted = of_log | (~F.col("commits") & of_reader)
    appended = F.greatest(F.col("end_offset") - F.greatest("first_offset", "from_offset"), F.lit(0))
    return (
        changes.join(F.broadcast(needed), "append_window_us")
        .where(wanted)
        .groupBy("session_id", "append_us")
        .agg(F.sum(F.when(of_log, appended).otherwise(-F.col("records"))).alias("left_over"))
        .where("left_over > 0")
        .groupBy("session_id")
        .agg(F.min("append_us").alias("unconsumed_us"))
    )


def _fill_windows(known: DataFrame, width: int, last_us: int | None) -> DataFrame:
    """Make a row for every window; a window without events repeats the state before it."""
    end_us = F.coalesce("stop_us", F.lit(last_us) + width)
    until_us = F.least("next_window_us", end_us)
    position = F.when(F.col("commits"), F.col("position")).otherwise(
        F.col("base_offset") + F.col("consumed")
    )
    records = F.coalesce(F.greatest(F.col("log_end") - position, F.lit(0)), F.lit(0))
    age_us = F.col("time_us") - F.least("oldest_us", "unconsumed_us")
    return (
        known.where((F.col("window_us") >= F.col("begin_us")) & (F.col("window_us") < until_us))
        .withColumn("records", records)
        .withColumn(
            "time_us", F.explode(F.sequence(F.col("window_us") + width, until_us, F.lit(width)))
        )
        .select(
            "time_us",
            "group",
            F.when(F.col("reader") == "", F.col("group"))
            .otherwise(F.col("reader"))
            .alias("reader"),
            "topic",
            "partition",
            "records",
            F.when(F.col("records") > 0, age_us).otherwise(0).alias("age_us"),
        )
    )
