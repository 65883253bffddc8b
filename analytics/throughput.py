"""How much passes: records and bytes in each window of time."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..model import kinds
from ..model.durations import Duration
from .windows import columns, start_us, width_us

STAGES: Final = (kinds.APPENDED, kinds.DELIVERED, kinds.ACKNOWLEDGED)


def throughput(
    events: DataFrame, window: Duration = 1, by: Sequence[str] = ("topic",)
) -> DataFrame:
    """Count what was appended, delivered and acknowledged within each window of time.

    Columns: window_us (when it begins), kind (appended, delivered or acknowledged), those of `by`
    (any of topic, partition, group, producer, member, node), records, bytes; in this order.

    records = sum of `count`, bytes = sum of `bytes`, over the events of this kind whose time is in
    [window_us, window_us + window). What is delivered again counts again. A window in which nothing
    passed has no row.

    Rows of parts of a log merge: those of equal keys are one row with the sums of their figures.
    """
    keys = columns(by)
    start = start_us(width_us(window)).alias("window_us")
    return (
        events.where(F.col("kind").isin(*STAGES))
        .groupBy(start, "kind", *keys)
        .agg(
            F.coalesce(F.sum("count"), F.lit(0)).alias("records"),
            F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        )
    )
