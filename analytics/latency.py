"""How long records take from being appended to being delivered, and to being acknowledged."""

import math
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from ..model.durations import Duration
from ..model.series import RATIO
from .windows import columns, start_us, width_us

STAGES: Final = (kinds.DELIVERED, kinds.ACKNOWLEDGED)
SHARES: Final = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
_FIGURES: Final = ("bucket", "records", "sum_us", "max_us")


def latency(
    events: DataFrame, by: Sequence[str] = ("group",), window: Duration | None = None
) -> DataFrame:
    """Say how long records took: percentiles over records, not over events.

    Columns: window_us (only with a `window`: when it begins), stage (delivered or acknowledged),
    those of `by` (any of topic, partition, group, producer, member, node), records, mean_us,
    p50_us, p90_us, p99_us, p999_us, max_us; in this order.

    A record takes the time of the event minus its append time, and at least zero: clocks of a live
    run may differ by a little. A percentile p is the time of the record that is not faster than
    this share p of all; it is at most 1 % off. mean_us and max_us are exact. What is delivered
    again counts again. A record counts in the window in which it was delivered or acknowledged.
    """
    return latency_of(latency_parts(events, by, window))


def latency_parts(
    events: DataFrame, by: Sequence[str] = ("group",), window: Duration | None = None
) -> DataFrame:
    """Count records in buckets of time, whose ends are 2 % apart, as model/series.py has them.

    Columns: those that `latency` goes by, then bucket, records, sum_us, max_us.
    """
    keys: list[Column] = [F.col("kind").alias("stage"), *map(F.col, columns(by))]
    if window is not None:
        keys.insert(0, start_us(width_us(window)).alias("window_us"))
    took_us = F.greatest(F.col("time_us") - F.col("append_time_us"), F.lit(0))
    bucket = F.when(took_us > 0, F.floor(F.ln(took_us) / math.log(RATIO)) + 1).otherwise(0)
    return (
        events.where(F.col("kind").isin(*STAGES) & F.col("append_time_us").isNotNull())
        .groupBy(*keys, bucket.alias("bucket"))
        .agg(
            F.sum("count").alias("records"),
            F.sum(F.col("count") * took_us).alias("sum_us"),
            F.max(took_us).alias("max_us"),
        )
    )


def latency_merged(parts: DataFrame) -> DataFrame:
    """Make one row of all that have the same keys and bucket: of parts of a log, or of windows."""
    keys = [name for name in parts.columns if name not in _FIGURES]
    return parts.groupBy(*keys, "bucket").agg(
        F.sum("records").alias("records"),
        F.sum("sum_us").alias("sum_us"),
        F.max("max_us").alias("max_us"),
    )


def latency_of(parts: DataFrame) -> DataFrame:
    """Read the percentiles off buckets: the middle of that in which the wanted record is."""
    keys = [name for name in parts.columns if name not in _FIGURES]
    every = Window.partitionBy(*keys)
    up_to_here = every.orderBy("bucket").rowsBetween(Window.unboundedPreceding, 0)
    middle_us = F.when(F.col("bucket") > 0, F.pow(F.lit(RATIO), F.col("bucket") - 0.5)).otherwise(0)
    ranked = parts.select(
        "*",
        middle_us.alias("middle_us"),
        F.sum("records").over(up_to_here).alias("reached"),
        F.sum("records").over(every).alias("total"),
    )
    longest_us = F.max("max_us")
    percentiles = [
        F.least(F.min(F.when(reaches(share), F.col("middle_us"))), longest_us).alias(name)
        for name, share in SHARES.items()
    ]
    return (
        ranked.where("records > 0")
        .groupBy(*keys)
        .agg(
            F.sum("records").alias("records"),
            (F.sum("sum_us") / F.sum("records")).alias("mean_us"),
            *percentiles,
            longest_us.alias("max_us"),
        )
    )


def reaches(share: float) -> Column:
    """Whether this share of all records is in this bucket or in those before it."""
    return F.col("reached") >= F.ceil(F.col("total") * F.lit(share))
