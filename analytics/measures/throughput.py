"""Throughput: records and bytes per window."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...model.durations import Duration
from ...model.events import kinds
from .windows import group_columns, start_us, width_us

STAGES: Final = (kinds.APPENDED, kinds.DELIVERED, kinds.ACKNOWLEDGED)


def throughput(
    events: DataFrame, window: Duration = 1, by: Sequence[str] = ("topic",)
) -> DataFrame:
    """Count the records appended, delivered and acknowledged in each window.

    Columns: window_us (start of the window), kind (appended, delivered or acknowledged), those of
    `by` (any of topic, partition, group, producer, member, node), records, bytes.

    - records = sum of `count`, bytes = sum of `bytes`, over the events of this kind with a time in
      [window_us, window_us + window)

    A redelivered record counts again. A window without records has no row. To merge the results of
    several parts of a log, add up the rows of equal keys.
    """
    keys = group_columns(by)
    start = start_us(width_us(window)).alias("window_us")
    return (
        events.where(F.col("kind").isin(*STAGES))
        .groupBy(start, "kind", *keys)
        .agg(
            F.coalesce(F.sum("count"), F.lit(0)).alias("records"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        )
    )
