"""What lag monitoring tools would have shown, to compare with the exact lag.

Monitoring tools see only committed offsets, and the ends of partitions at intervals. These measures
use just that: `acknowledged` events with a generation are commits, and every `every` seconds a
sample is taken of the end of each partition, as of the records appended before. Two limits:
groups that acknowledge single records make no commits that a tool could see, and a commit that does
not move the position leaves no event.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...model.durations import Duration
from ...model.errors import BadValueError
from ...model.events import kinds
from .ownership import PARTITION
from .windows import is_commit, start_us, width_us

BURROW_INTERVAL_SECONDS: Final = 10
EXPORTER_INTERVAL_SECONDS: Final = 30
"""The default intervals at which the tools take samples."""
TOPIC_PARTITION: Final = ("topic", "partition")

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


def burrow_status(
    events: DataFrame, every: Duration = BURROW_INTERVAL_SECONDS, offsets: int = 10
) -> DataFrame:
    """Return the status of groups by Burrow's rules, at each sample.

    Columns: time_us, group, topic, partition, status, lag, group_status; from the first commit of a
    partition on. The rules use the last `offsets` commits of a partition, each with its time and
    lag (end of the partition at the last sample - committed offset, at least 0). The first rule
    that holds gives the status:

    - OK if the lag now, or at any of these commits, is 0
    - REWIND if an offset is lower than the previous one
    - STOP if more time has passed since the last commit than between the first and the last
    - STALL if all offsets are the same
    - WARN if the lag was never lower than at the previous commit
    - OK

    The status of a group is that of its worst partition; REWIND, STOP and STALL make it ERR.
    """
    if offsets < 2:
        raise BadValueError(f"offsets = {offsets!r}: expected 2 or more")
    width = width_us(every)
    ends = _ends(events, width)
    known = ends.select(
        *TOPIC_PARTITION, F.col("time_us").alias("sample_us"), F.col("end").alias("known")
    )
    in_order = Window.partitionBy(*PARTITION).orderBy("commit_us")
    ring = in_order.rowsBetween(1 - offsets, 0)
    steps = in_order.rowsBetween(2 - offsets, 0)
    previous = F.lag("committed").over(in_order)
    commits = (
        _commits(events)
        .withColumn("sample_us", start_us(width, "commit_us"))
        # Only the last commits before a sample matter.
        .withColumn("later_us", F.lead("sample_us", offsets + 1).over(in_order))
        .where("later_us is null or later_us > sample_us")
        .drop("later_us")
        .join(known, [*TOPIC_PARTITION, "sample_us"], "left")
        .withColumn("lag", F.expr("greatest(0, coalesce(known, 0) - committed)"))
        .withColumns({
            "rewound": F.col("committed") < previous,
            "moved": F.col("committed") != previous,
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
        _samples(commits, events, width)
        .join(ends, [*TOPIC_PARTITION, "time_us"])
        .withColumn("current_lag", F.expr("end - committed"))
        .withColumn("status", F.expr(STATUS))
        .withColumn("group_status", F.expr(GROUP_STATUS))
        .withColumn("lag", F.expr("greatest(0, current_lag)"))
        .select("time_us", *PARTITION, "status", "lag", "group_status")
        .orderBy("time_us", *PARTITION)
    )


def lag_exporter(
    events: DataFrame, every: Duration = EXPORTER_INTERVAL_SECONDS, points: int = 60
) -> DataFrame:
    """Return the lag in records and in time as kafka-lag-exporter estimates it, at each sample.

    Columns: time_us, group, topic, partition, records, age_us; from the first commit of a partition
    on. The exporter keeps the last `points` pairs (time, end) of each partition; while the end does
    not change, only the first and the last pair. It interpolates the committed offset on the latest
    line between two neighbouring points that contains it, or else on the line from the oldest to
    the newest point:

    age_us = time_us - (t_r - (end_r - committed) * (t_r - t_l) / (end_r - end_l))

    for the line from l to r. It is 0 for a group at the end of the partition, and null while there
    is only one point.
    """
    if points < 2:
        raise BadValueError(f"points = {points!r}: expected 2 or more")
    width = width_us(every)
    in_order = Window.partitionBy(*TOPIC_PARTITION).orderBy("time_us")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    kept = (F.coalesce(F.lag("end").over(in_order), F.lit(-1)) != F.col("end")) | (
        F.coalesce(F.lead("end").over(in_order), F.lit(-1)) != F.col("end")
    )
    point = F.struct("time_us", "end")
    table = Window.partitionBy(*TOPIC_PARTITION).orderBy("place").rangeBetween(1 - points, -1)
    tables = (
        _ends(events, width)
        .withColumn("kept", kept)
        .withColumn("place", F.count_if("kept").over(before))
        .withColumn("earlier", F.collect_list(F.when(F.col("kept"), point)).over(table))
        .withColumn("points", F.concat("earlier", F.array(point)))
        .select(*TOPIC_PARTITION, "time_us", "end", "points")
    )
    return (
        _samples(_last_commits(events, width), events, width)
        .join(tables, [*TOPIC_PARTITION, "time_us"])
        .withColumn("segment", F.expr(SEGMENT))
        .withColumn("left", F.expr("points[coalesce(segment - 1, 0)]"))
        .withColumn("right", F.expr("points[coalesce(segment, size(points) - 1)]"))
        .withColumn("age_us", F.expr(ESTIMATE).cast("double"))
        .withColumn("records", F.expr("greatest(0, end - committed)"))
        .select("time_us", *PARTITION, "records", "age_us")
        .orderBy("time_us", *PARTITION)
    )


def lag_exporter_errors(shown: DataFrame, exact: DataFrame) -> DataFrame:
    """Compare the lag in time that kafka-lag-exporter shows with the exact one, per group.

    `shown` is a result of `lag_exporter`. `exact` is a result of `lag` with windows that end at the
    samples of the exporter.

    Columns: group, samples, mean_us (of the exact lag), mean_error_us, max_error_us: mean and
    maximum of abs(estimate - exact) over all partitions and samples with an estimate.
    """
    shown = shown.withColumnRenamed("age_us", "shown_us")
    exact = exact.where("reader = group").select("time_us", *PARTITION, "age_us")
    error = F.abs(F.col("shown_us") - F.col("age_us"))
    return (
        shown.where("shown_us is not null")
        .join(exact, ["time_us", *PARTITION])
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
    """Return each commit: group, topic, partition, commit_us, committed."""
    return (
        _committing(events)
        .groupBy(*PARTITION, F.col("time_us").alias("commit_us"))
        .agg(F.max("end").alias("committed"))
    )


def _last_commits(events: DataFrame, width: int) -> DataFrame:
    """Return the last commit of each interval between samples, with the columns of `_commits`.

    Cheaper than `_commits` for a tool that needs no earlier commits: nothing has to be sorted.
    """
    return (
        _committing(events)
        .groupBy(*PARTITION, start_us(width).alias("sample_us"))
        .agg(F.max("time_us").alias("commit_us"), F.max_by("end", "sequence").alias("committed"))
        .drop("sample_us")
    )


def _committing(events: DataFrame) -> DataFrame:
    """Return the events that are commits, with the committed offset as `end`."""
    end = F.col("base_offset") + F.col("count")
    return events.where(is_commit()).withColumn("end", end)


def _ends(events: DataFrame, width: int) -> DataFrame:
    """Return the end of each partition at each sample, once it has records: time_us, end."""
    in_order = Window.partitionBy(*TOPIC_PARTITION).orderBy("time_us")
    grown = (
        events.where(F.col("kind") == kinds.APPENDED)
        .groupBy(*TOPIC_PARTITION, (start_us(width) + width).alias("time_us"))
        .agg(F.max(F.col("base_offset") + F.col("count")).alias("end"))
        .withColumn("end", F.max("end").over(in_order))
        .withColumn("next_us", F.lead("time_us").over(in_order))
        .crossJoin(_last_sample(events, width))
    )
    return grown.select(*TOPIC_PARTITION, "end", _explode_samples("time_us", width))


def _samples(commits: DataFrame, events: DataFrame, width: int) -> DataFrame:
    """Return the last commit before each sample; time_us is the time of the sample."""
    in_order = Window.partitionBy(*PARTITION).orderBy("commit_us")
    seen_us = start_us(width, "commit_us") + width
    return (
        commits.withColumn("seen_us", seen_us)
        .withColumn("next_us", F.lead("seen_us").over(in_order))
        .where("next_us is null or next_us > seen_us")
        .crossJoin(_last_sample(events, width))
        .select(*commits.columns, _explode_samples("seen_us", width))
    )


def _explode_samples(first: str, width: int) -> Column:
    """Return a row for each sample from the first to the one before next_us, or to the last."""
    last = F.expr(f"coalesce(next_us - {width}, last_us)")
    times = F.when(F.col(first) <= last, F.sequence(F.col(first), last, F.lit(width)))
    return F.explode(times).alias("time_us")


def _last_sample(events: DataFrame, width: int) -> DataFrame:
    return events.agg((start_us(width, F.max("time_us")) + width).alias("last_us"))
