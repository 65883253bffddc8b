"""How far behind readers are, in records and in time, at the end of each window.

Three steps. What happened is aggregated by window, reader and partition (`lag_parts`): all that is
large is done then. Beside it stand the few events that begin and end the lives of readers
(lives.py). From these two the lag is worked out (`lag_of`): running sums, maxima and minima over
windows, and at last a row for every window, also for those in which nothing happened.

Until then names go as a hash of 64 bits (`who`), which is a third faster: of a hundred thousand
readers of partitions, two would be taken for one in one of a billion logs.

An oldest record that is owed for some time was either done later: a range that is done carries its
append time, so that the least append time of what is done after a window is the oldest then. Or it
was never done: then the records appended and done within some window of append times differ in
number. Only which batch of this window it is must be looked up among the events.
"""

from collections.abc import Callable, Collection
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from ..model.durations import Duration
from .lives import READER, lives_of, marks_of, numbered, reader_name
from .windows import start_us, width_us

DONE: Final = (kinds.ACKNOWLEDGED, kinds.DEAD_LETTERED, kinds.ARCHIVED, kinds.LOST)


def lag(events: DataFrame, window: Duration = 1, broadcast: Collection[str] = ()) -> DataFrame:
    """Say how far behind each reader is in each partition at the end of each window.

    Columns: time_us (when the window ends), group, reader (the group's name, or that of the
    subscriber in a `broadcast`), topic, partition, records, age_us; in this order.

    records = how many records were appended before time_us, from where the reader began on, and
    not done before time_us. A group that commits positions is done with all before its position;
    one that acknowledges, with what was acknowledged, dead-lettered, archived, or lost to it.
    age_us = time_us minus the append time of the oldest of them; 0 if there is none.

    There is a row for every window from that in which a reader gets its position to that of the
    last event, unless its position is forgotten or the topic deleted. It is exact, with the limits
    that model/arrears.py names for compacted topics.

    It reads the events when it is called: what they come to is kept, for it is used many times.
    """
    lives = lives_of(marks_of(events, broadcast))
    parts = lag_parts(events, lives, window, broadcast).localCheckpoint()

    def look_up(asked: pa.Table) -> DataFrame:
        return moves_of(_since(events, asked), lives, window, broadcast)

    return lag_of(parts, lives, look_up, window)


def lag_parts(
    events: DataFrame, lives: DataFrame, window: Duration = 1, broadcast: Collection[str] = ()
) -> DataFrame:
    """Sum up what was appended and done; `lives` are those of the log at least up to here.

    Columns: window_us (when it begins), since_us (when that begins in which the records were
    appended; null if a position is committed, for then all before it is done), who (`who_is`: a
    reader of a partition, or its log for what was appended), life (of a log: the era), records,
    first (the offset; null if it is not of a log), end (the offset), append_us (the least append
    time). A row without who says how far the log goes.

    Rows of parts of a log merge: of equal keys (up to life) records is the sum, first and
    append_us the least, end the greatest.
    """
    parts = merged(moves_of(events, lives, window, broadcast))
    last = events.agg(start_us(width_us(window), F.max("time_us")).alias("window_us"))
    return parts.unionByName(last, allowMissingColumns=True)


def merged(parts: DataFrame) -> DataFrame:
    """Make one row of all that have the same keys."""
    return parts.groupBy("window_us", "since_us", "who", "life").agg(
        F.sum("records").alias("records"),
        F.min("first").alias("first"),
        F.max("end").alias("end"),
        F.min("append_us").alias("append_us"),
    )


def lag_of(
    parts: DataFrame,
    lives: DataFrame,
    look_up: Callable[[pa.Table], DataFrame],
    window: Duration = 1,
) -> DataFrame:
    """Work out the lag from parts, merged or not, and all lives.

    Batches of a few windows are looked up: those with the oldest record that a reader has not done
    with by the end of its life. `look_up` is given these windows (since_us, among other columns)
    and gives the moves of records (see `moves_of`) that were appended within them, at least.
    """
    width = width_us(window)
    last_us = parts.agg(F.max("window_us")).first()
    begun = lives.where("from_us is not null").select(
        "id", *READER, "life", "era", "floor", who_is(*READER).alias("who"),
        who_is(F.lit(""), F.lit(""), "topic", "partition").alias("log"),
        start_us(width, "from_us").alias("begin_us"), start_us(width, "until_us").alias("stop_us"),
    )  # fmt: skip
    states = _states(parts, begun).localCheckpoint()
    asked = _asked(states, begun).toArrow()
    never = _never_done(parts.sparkSession.createDataFrame(asked), look_up(asked))
    known = states.join(F.broadcast(never), "id", "left").join(F.broadcast(begun), "id")
    return _spread(known, width, last_us[0] if last_us else None)


def who_is(*reader: Column | str) -> Column:
    """Number a reader of a partition by its names (`READER`); a log has no group and no reader."""
    return F.xxhash64(*reader)


def moves_of(
    events: DataFrame, lives: DataFrame, window: Duration = 1, broadcast: Collection[str] = ()
) -> DataFrame:
    """Lay out what was appended and done, with the life of its reader that each belongs to.

    Columns: those of `lag_parts`, which puts moves together.
    """
    width = width_us(window)
    kind, group = F.col("kind"), F.col("group")
    append_us = F.coalesce("append_time_us", "time_us")
    commits = (kind == kinds.ACKNOWLEDGED) & F.col("epoch").isNotNull()
    of_readers = (kind == kinds.APPENDED) | group.isNotNull()
    moves = events.where(kind.isin(kinds.APPENDED, *DONE) & of_readers).select(
        start_us(width).alias("window_us"),
        F.when(~commits, start_us(width, append_us)).alias("since_us"),
        F.coalesce(group, F.lit("")).alias("group"),
        reader_name(broadcast).alias("reader"),
        "topic",
        "partition",
        "sequence",
        F.col("count").alias("records"),
        F.when(kind == kinds.APPENDED, F.col("base_offset")).alias("first"),
        (F.col("base_offset") + F.col("count")).alias("end"),
        append_us.alias("append_us"),
    )
    lived = numbered(moves, lives).withColumn("who", who_is(*READER))
    return lived.drop("sequence", *READER)


def _states(parts: DataFrame, lives: DataFrame) -> DataFrame:
    """How far each life was at the end of each window in which something happened.

    Columns: id (of the life), window_us; first and end, the offsets appended in this window alone;
    settled, how many of these records are done, ever; base, the offset with which the life begins;
    for the whole life commits, and final, its last position; at the end of the window head, where
    the log ends, done, how many records are, reach, the position, and oldest_us, the append time
    of the oldest record that is done later; next_us, the next such window.

    """
    lives = F.broadcast(lives)
    logs = lives.selectExpr("id", "log as who", "era as life")
    done = parts.where("first is null").join(lives.select("id", "who", "life"), ["who", "life"])
    rows = [
        lives.selectExpr("id", "begin_us as window_us"),
        parts.join(logs, ["who", "life"]).select("id", "window_us", "first", "end"),
        done.selectExpr(
            "id", "window_us", "records as done", "end as reach", "append_us",
            "since_us is null as commits",
        ),
        done.where("since_us is not null").selectExpr(
            "id", "since_us as window_us", "records as settled"
        ),
    ]  # fmt: skip
    every = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows)
    # Dealt out by life alone, as the windows below need it: there are few rows of one key to merge.
    states = (
        every.repartition("id")
        .groupBy("id", "window_us")
        .agg(
            F.min("first").alias("first"),
            F.max("end").alias("end"),
            F.coalesce(F.sum("settled"), F.lit(0)).alias("settled"),
            F.sum("done").alias("done"),
            F.max("reach").alias("reach"),
            F.min("append_us").alias("oldest_us"),
            F.max("commits").alias("commits"),
        )
    )
    life = Window.partitionBy("id")
    so_far = life.orderBy("window_us").rowsBetween(Window.unboundedPreceding, 0)
    # A frame that follows a row is slow in Spark, one that precedes it in the other order is not.
    later = life.orderBy(F.desc("window_us")).rowsBetween(Window.unboundedPreceding, -1)
    base = F.greatest("floor", F.min("first").over(life))
    return states.join(lives.select("id", "floor"), "id").select(
        "id", "window_us", "first", "end", "settled",
        base.alias("base"),
        F.coalesce(F.max("commits").over(life), F.lit(False)).alias("commits"),
        F.greatest(F.max("reach").over(life), base).alias("final"),
        F.max("end").over(so_far).alias("head"),
        F.coalesce(F.sum("done").over(so_far), F.lit(0)).alias("done"),
        F.greatest(F.max("reach").over(so_far), base).alias("reach"),
        F.min("oldest_us").over(later).alias("oldest_us"),
        F.lead("window_us").over(life.orderBy("window_us")).alias("next_us"),
    )  # fmt: skip


def _asked(states: DataFrame, lives: DataFrame) -> DataFrame:
    """Find the window in which the oldest record was appended that each life is not done with.

    Columns: those of `lives`, since_us (that window), from (the offset with which to begin to
    look), commits. A group that commits is done with all before its last position.
    """
    position = F.when(F.col("commits"), F.col("final")).otherwise(F.col("base"))
    owed = F.greatest(F.col("end") - F.greatest("first", position), F.lit(0))
    settled = F.when(F.col("commits"), 0).otherwise(F.col("settled"))
    left = F.when(owed > settled, F.col("window_us"))
    return (
        states.groupBy("id", "commits", position.alias("from"))
        .agg(F.min(left).alias("since_us"))
        .where("since_us is not null")
        .join(F.broadcast(lives), "id")
    )


def _since(events: DataFrame, asked: pa.Table) -> DataFrame:
    """Leave out what nobody asks for: nothing happens to a record before it is appended.

    As the log goes by time, most of it need not even be read then.
    """
    kind, commits = F.col("kind"), pc.all(asked["commits"], min_count=0).as_py()
    first_us = pc.min(asked["since_us"]).as_py()
    return events.where(
        (F.col("time_us") >= F.lit(first_us)) & (kind == kinds.APPENDED if commits else F.lit(True))
    )


def _never_done(asked: DataFrame, moves: DataFrame) -> DataFrame:
    """Look up when the oldest record was appended that a life is not done with: id, never_us."""
    moves = moves.withColumnsRenamed({"who": "its", "life": "its_life"})
    of_log = (F.col("its") == F.col("log")) & (F.col("its_life") == F.col("era"))
    own = (F.col("its") == F.col("who")) & (F.col("its_life") == F.col("life"))
    of_reader = ~F.col("commits") & own  # a position is past all that was done before it
    found = moves.join(F.broadcast(asked), "since_us").where(of_log | of_reader)
    owed = F.greatest(F.col("end") - F.greatest("first", "from"), F.lit(0))
    return (
        found.groupBy("id", "append_us")
        .agg(F.sum(F.when(of_log, owed).otherwise(-F.col("records"))).alias("left"))
        .where("left > 0")
        .groupBy("id")
        .agg(F.min("append_us").alias("never_us"))
    )


def _spread(known: DataFrame, width: int, last_us: int | None) -> DataFrame:
    """Give each window its row: in one without a state of its own the last one holds."""
    end_us = F.coalesce("stop_us", F.lit(last_us) + width)
    until_us = F.least("next_us", end_us)
    done = F.when(F.col("commits"), F.col("reach")).otherwise(F.col("base") + F.col("done"))
    records = F.coalesce(F.greatest(F.col("head") - done, F.lit(0)), F.lit(0))
    age_us = F.col("time_us") - F.least("oldest_us", "never_us")
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
