"""Latency of records, from append to delivery and from append to acknowledgement."""

import math
from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...model.durations import Duration
from ...model.events import kinds
from ...model.summary.series import RATIO
from ...model.summary.summary import PERCENTILES, SAME
from .undelivered import GAP, undelivered
from .windows import group_columns, start_us, width_us

STAGES: Final = (kinds.DELIVERED, kinds.ACKNOWLEDGED)
_VALUES: Final = ("bucket", "records", "waiting", "sum_us", "max_us", "oldest_us")
_PLACE: Final = ("group", "topic", "partition")


def latency(
    events: DataFrame,
    by: Sequence[str] = ("group",),
    window: Duration | None = None,
    broadcast: Collection[str] = (),
) -> DataFrame:
    """Return percentiles of the latency of records, for the whole log or per window.

    Columns: window_us (start of the window; only with `window`), stage (delivered or acknowledged),
    those of `by` (any of topic, partition, group, producer, member, node), records, waiting,
    mean_us, p50_us, p90_us, p99_us, p999_us, max_us, lower_bounds.

    The latency of a record is the time of the event minus its append time, but at least zero:
    clocks of a live run may differ slightly. An event about several records counts as many times.
    A percentile p is the least latency that a share p of the records does not exceed, accurate to
    1 %; mean_us and max_us are exact. A redelivered record counts again.

    With `window`, a record counts in the window in which it was delivered or acknowledged. For the
    whole log, the records that still wait at its end count as well, with their age then, which is
    the least that their latency will be: `waiting` is their number, and records that of the others.
    lower_bounds names the percentiles that would be larger if they waited much longer, and max_us
    if it is an age. They have no producer, member or node. `broadcast` names the groups with
    broadcast delivery.
    """
    buckets = latency_buckets(events, by, window)
    if window is None:
        waiting = undelivered(events, broadcast).where(F.col("row") != GAP)
        buckets = merge_buckets(buckets.unionByName(waiting_buckets(waiting, by)))
    return latency_from_buckets(buckets)


def latency_buckets(
    events: DataFrame, by: Sequence[str] = ("group",), window: Duration | None = None
) -> DataFrame:
    """Count records by latency, in the buckets of model/summary/series.py, which grow by 2 %.

    Columns: those that `latency` groups by, then bucket, records, waiting (none), sum_us, max_us,
    oldest_us (null, as none wait).
    """
    keys: list[Column] = [F.col("kind").alias("stage"), *map(F.col, group_columns(by))]
    if window is not None:
        keys.insert(0, start_us(width_us(window)).alias("window_us"))
    latency_us = F.greatest(F.col("time_us") - F.col("append_time_us"), F.lit(0))
    return (
        events.where(F.col("kind").isin(*STAGES) & F.col("append_time_us").isNotNull())
        .groupBy(*keys, _bucket(latency_us).alias("bucket"))
        .agg(
            F.sum("count").alias("records"),
            F.lit(0).cast("long").alias("waiting"),
            F.sum(F.col("count") * latency_us).alias("sum_us"),
            F.max(latency_us).alias("max_us"),
            F.lit(None).cast("long").alias("oldest_us"),
        )
    )


def waiting_buckets(waiting: DataFrame, by: Sequence[str] = ("group",)) -> DataFrame:
    """Count records that wait by age, as `latency_buckets` does; see `undelivered`."""
    keys = [
        F.col(name) if name in _PLACE else F.lit(None).cast("string").alias(name)
        for name in group_columns(by)
    ]
    age_us = F.greatest(F.col("until_us") - F.col("from_us"), F.lit(0))
    return waiting.groupBy(F.col("row").alias("stage"), *keys, _bucket(age_us).alias("bucket")).agg(
        F.lit(0).cast("long").alias("records"),
        F.sum("records").alias("waiting"),
        F.sum(F.col("records") * age_us).alias("sum_us"),
        F.max(age_us).alias("max_us"),
        F.max(age_us).alias("oldest_us"),
    )


def _bucket(duration_us: Column) -> Column:
    return F.when(duration_us > 0, F.floor(F.ln(duration_us) / math.log(RATIO)) + 1).otherwise(0)


def merge_buckets(buckets: DataFrame) -> DataFrame:
    """Merge the buckets of several windows, or of several parts of a log."""
    keys = [name for name in buckets.columns if name not in _VALUES]
    return buckets.groupBy(*keys, "bucket").agg(
        F.sum("records").alias("records"),
        F.sum("waiting").alias("waiting"),
        F.sum("sum_us").alias("sum_us"),
        F.max("max_us").alias("max_us"),
        F.max("oldest_us").alias("oldest_us"),
    )


def latency_from_buckets(buckets: DataFrame) -> DataFrame:
    """Compute `latency` from buckets. A percentile is the middle of the bucket it falls into."""
    keys = [name for name in buckets.columns if name not in _VALUES]
    every = Window.partitionBy(*keys)
    up_to_here = every.orderBy("bucket").rowsBetween(Window.unboundedPreceding, 0)
    middle_us = F.when(F.col("bucket") > 0, F.pow(F.lit(RATIO), F.col("bucket") - 0.5)).otherwise(0)
    both = F.col("records") + F.col("waiting")
    ranked = buckets.select(
        "*",
        middle_us.alias("middle_us"),
        F.sum(both).over(up_to_here).alias("cumulative"),
        F.sum("records").over(up_to_here).alias("ended"),
        F.sum(both).over(every).alias("total"),
    )
    longest_us = F.max("max_us")
    percentiles = [
        F.least(F.min(_reaching("cumulative", share)), longest_us).alias(name)
        for name, share in PERCENTILES.items()
    ]
    # The same if the records that wait did so for ever.
    upper = [
        F.min(_reaching("ended", share)).alias(f"upper_{name}")
        for name, share in PERCENTILES.items()
    ]
    bounds = [F.when(_is_lower_bound(name), F.lit(name)) for name in PERCENTILES] + [
        F.when(F.col("oldest_us") == F.col("max_us"), F.lit("max_us"))
    ]
    return (
        ranked.where(both > 0)
        .groupBy(*keys)
        .agg(
            F.sum("records").alias("records"),
            F.sum("waiting").alias("waiting"),
            (F.sum("sum_us") / F.sum(both)).alias("mean_us"),
            *percentiles,
            longest_us.alias("max_us"),
            *upper,
            F.max("oldest_us").alias("oldest_us"),
        )
        .withColumn("lower_bounds", F.array_compact(F.array(*bounds)))
        .drop("oldest_us", *(f"upper_{name}" for name in PERCENTILES))
    )


def _reaching(cumulative: str, share: float) -> Column:
    """Return the latency of this bucket if this share of all records is in it or in lower ones."""
    reaches = F.col(cumulative) >= F.ceil(F.col("total") * F.lit(share))
    return F.when(reaches, F.col("middle_us"))


def _is_lower_bound(name: str) -> Column:
    upper = F.col(f"upper_{name}")
    found: Column = (F.col("waiting") > 0) & (upper.isNull() | (upper > F.col(name) * SAME))
    return found
