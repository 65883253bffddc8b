"""What monitoring tools would have shown, to be put beside the truth.

Tools see less than we do: the offsets that groups commit, and where partitions end, once in every
while. Here they are given just that: `acknowledged` events that carry a generation are commits, and
the end of a partition is looked up once in every `every`, as of all that was appended before. Two
limits: groups that acknowledge record by record commit nothing that a tool could see, and a commit
that moves no position leaves no event.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from ..model.durations import Duration
from ..model.errors import BadValueError
from .windows import start_us, width_us

BURROW_LOOKS: Final = 10
EXPORTER_LOOKS: Final = 30
"""Once in so many seconds each tool looks, unless it is told otherwise."""
TOPIC: Final = ("topic", "partition")
PLACE: Final = ("group", *TOPIC)

STATUS: Final = """
    case
        when current_lag <= 0 or least_lag <= 0 then 'OK'
        when rewinds > 0 then 'REWIND'
        when time_us - commit_us > commit_us - first_us then 'STOP'
        when moves = 0 then 'STALL'
        when falls = 0 then 'WARN'
        else 'OK'
    end
"""
GROUP_STATUS: Final = """
    case
        when bool_or(status in ('STOP', 'STALL', 'REWIND')) over (partition by group, time_us)
            then 'ERR'
        when bool_or(status = 'WARN') over (partition by group, time_us) then 'WARN'
        else 'OK'
    end
"""
SEGMENT: Final = """
    array_max(filter(
        sequence(1, greatest(1, size(points) - 1)),
        i -> i < size(points) and points[i - 1].end <= committed and committed <= points[i].end
    ))
"""
ESTIMATE: Final = """
    case
        when committed >= end then 0
        when size(points) < 2 then null
        else time_us - (right.time_us
            - try_divide((right.end - committed) * (right.time_us - left.time_us),
                         right.end - left.end))
    end
"""


def burrow(events: DataFrame, every: Duration = BURROW_LOOKS, offsets: int = 10) -> DataFrame:
    """The status of groups by the rules of Burrow, at each look.

    Columns time_us, group, topic, partition, status, lag, group_status; from a partition's first
    commit on. Of each partition the last `offsets` commits are kept, each with its time and lag:
    the end of the partition as of the last look less the committed offset, at least 0. The first
    rule that holds gives the status:

    - OK if the lag now, or at any of these commits, is 0
    - REWIND if an offset is less than the one before it
    - STOP if the last commit is longer ago than the first was before the last
    - STALL if all offsets are the same
    - WARN if the lag was never less than at the commit before
    - OK

    A group is as bad as its worst partition, ERR for any of REWIND, STOP and STALL.
    """
    if offsets < 2:
        raise BadValueError(f"offsets = {offsets!r}: expected 2 or more")
    width = width_us(every)
    ends = _ends(events, width)
    known = ends.select(*TOPIC, F.col("time_us").alias("look_us"), F.col("end").alias("known"))
    in_order = Window.partitionBy(*PLACE).orderBy("commit_us")
    ring = in_order.rowsBetween(1 - offsets, 0)
    steps = in_order.rowsBetween(2 - offsets, 0)
    behind = F.lag("committed").over(in_order)
    commits = (
        _commits(events)
        .withColumn("look_us", start_us(width, "commit_us"))
        # Only the last ones before a look are seen by it.
        .withColumn("later_us", F.lead("look_us", offsets + 1).over(in_order))
        .where("later_us is null or later_us > look_us")
        .drop("later_us")
        .join(known, [*TOPIC, "look_us"], "left")
        .withColumn("lag", F.expr("greatest(0, coalesce(known, 0) - committed)"))
        .withColumns({
            "rewound": F.col("committed") < behind,
            "moved": F.col("committed") != behind,
            "fell": F.col("lag") < F.lag("lag").over(in_order),
        })
        .withColumns({
            "first_us": F.first("commit_us").over(ring),
            "least_lag": F.min("lag").over(ring),
            "rewinds": F.count_if("rewound").over(steps),
            "moves": F.count_if("moved").over(steps),
            "falls": F.count_if("fell").over(steps),
        })
        .drop("lag")
    )  # fmt: skip
    return (
        _looks(commits, events, width)
        .join(ends, [*TOPIC, "time_us"])
        .withColumn("current_lag", F.expr("end - committed"))
        .withColumn("status", F.expr(STATUS))
        .withColumn("group_status", F.expr(GROUP_STATUS))
        .withColumn("lag", F.expr("greatest(0, current_lag)"))
        .select("time_us", *PLACE, "status", "lag", "group_status")
        .orderBy("time_us", *PLACE)
    )


def lag_exporter(
    events: DataFrame, every: Duration = EXPORTER_LOOKS, points: int = 60
) -> DataFrame:
    """The lag in records and in time as kafka-lag-exporter estimates it, at each look.

    Columns time_us, group, topic, partition, records, age_us; from a partition's first commit on.
    It keeps, for each partition, `points` of (time, end), of a time at which the end stood still
    only the first and the last. The committed offset is looked up on the lines between them: on the
    latest that reaches over it, or if none does on that from the oldest to the newest, and

    age_us = time_us - (t_r - (end_r - committed) * (t_r - t_l) / (end_r - end_l))

    for the line from l to r; 0 for a group that is at the end, null as long as there is one point.
    """
    if points < 2:
        raise BadValueError(f"points = {points!r}: expected 2 or more")
    width = width_us(every)
    in_order = Window.partitionBy(*TOPIC).orderBy("time_us")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    turns = (F.coalesce(F.lag("end").over(in_order), F.lit(-1)) != F.col("end")) | (
        F.coalesce(F.lead("end").over(in_order), F.lit(-1)) != F.col("end")
    )
    point = F.struct("time_us", "end")
    table = Window.partitionBy(*TOPIC).orderBy("place").rangeBetween(1 - points, -1)
    tables = (
        _ends(events, width)
        .withColumn("turns", turns)
        .withColumn("place", F.count_if("turns").over(before))
        .withColumn("kept", F.collect_list(F.when(F.col("turns"), point)).over(table))
        .select(*TOPIC, "time_us", "end", F.concat("kept", F.array(point)).alias("points"))
    )
    return (
        _looks(_last_commits(events, width), events, width)
        .join(tables, [*TOPIC, "time_us"])
        .withColumn("segment", F.expr(SEGMENT))
        .withColumn("left", F.expr("points[coalesce(segment - 1, 0)]"))
        .withColumn("right", F.expr("points[coalesce(segment, size(points) - 1)]"))
        .withColumn("age_us", F.expr(ESTIMATE).cast("double"))
        .withColumn("records", F.expr("greatest(0, end - committed)"))
        .select("time_us", *PLACE, "records", "age_us")
        .orderBy("time_us", *PLACE)
    )


def monitor_errors(shown: DataFrame, exact: DataFrame) -> DataFrame:
    """How far off the time lag is that kafka-lag-exporter shows, by group.

    `shown` is what `lag_exporter` gives and `exact` what `lag` gives, of windows that end whenever
    the exporter looks: they are compared at the same instants.

    Columns group, samples, mean_us (the exact lag), mean_error_us and max_error_us: the mean and
    the greatest of abs(estimated - exact) over partitions and looks at which there is an estimate.
    """
    shown = shown.withColumnRenamed("age_us", "shown_us")
    exact = exact.where("reader = group").select("time_us", *PLACE, "age_us")
    error = F.abs(F.col("shown_us") - F.col("age_us"))
    return (
        shown.where("shown_us is not null")
        .join(exact, ["time_us", *PLACE])
        .groupBy("group")
        .agg(
            F.count("*").alias("samples"),
            F.avg("age_us").alias("mean_us"),
            F.avg(error).alias("mean_error_us"),
            F.max(error).alias("max_error_us"),
        )
        .orderBy("group")
    )


def _commits(events: DataFrame) -> DataFrame:
    """Each commit: group, topic, partition, commit_us, committed."""
    return (
        _committing(events)
        .groupBy(*PLACE, F.col("time_us").alias("commit_us"))
        .agg(F.max("end").alias("committed"))
    )


def _last_commits(events: DataFrame, width: int) -> DataFrame:
    """The last commit before each look, where there is one since the look before.

    Columns as `_commits` has them; without a row, or a place in an order, for each of the others.
    """
    return (
        _committing(events)
        .groupBy(*PLACE, start_us(width).alias("look_us"))
        .agg(F.max("time_us").alias("commit_us"), F.max_by("end", "sequence").alias("committed"))
        .drop("look_us")
    )


def _committing(events: DataFrame) -> DataFrame:
    """The events that tell of commits, each with the position (`end`) that it moves to."""
    end = F.col("base_offset") + F.col("count")
    commits = (F.col("kind") == kinds.ACKNOWLEDGED) & F.col("epoch").isNotNull()
    return events.where(commits).withColumn("end", end)


def _ends(events: DataFrame, width: int) -> DataFrame:
    """Where each partition ends at each look, once it has records: time_us, end."""
    in_order = Window.partitionBy(*TOPIC).orderBy("time_us")
    grown = (
        events.where(F.col("kind") == kinds.APPENDED)
        .groupBy(*TOPIC, (start_us(width) + width).alias("time_us"))
        .agg(F.max(F.col("base_offset") + F.col("count")).alias("end"))
        .withColumn("end", F.max("end").over(in_order))
        .withColumn("next_us", F.lead("time_us").over(in_order))
        .crossJoin(_last_look(events, width))
    )
    return grown.select(*TOPIC, "end", _every("time_us", width))


def _looks(commits: DataFrame, events: DataFrame, width: int) -> DataFrame:
    """The last commit before each look, with all its columns: time_us is that of the look."""
    in_order = Window.partitionBy(*PLACE).orderBy("commit_us")
    seen = F.col("commit_us") - F.col("commit_us") % width + width
    return (
        commits.withColumn("seen_us", seen)
        .withColumn("next_us", F.lead("seen_us").over(in_order))
        .where("next_us is null or next_us > seen_us")
        .crossJoin(_last_look(events, width))
        .select(*commits.columns, _every("seen_us", width))
    )


def _every(first: str, width: int) -> Column:
    """A row for each look from one on, up to that before next_us or to the last."""
    last = F.expr(f"coalesce(next_us - {width}, last_us)")
    some = F.when(F.col(first) <= last, F.sequence(F.col(first), last, F.lit(width)))
    return F.explode(some).alias("time_us")


def _last_look(events: DataFrame, width: int) -> DataFrame:
    return events.agg((start_us(width, F.max("time_us")) + width).alias("last_us"))
