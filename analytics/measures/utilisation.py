"""Utilisation: the share of time that consumers process records."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...model.durations import Duration
from ...model.events import kinds
from .windows import start_us, width_us


def utilisation(events: DataFrame, window: Duration = 1) -> DataFrame:
    """Return how long each consumer processed records, in each window.

    Columns: window_us (start of the window), group, consumer, busy_us, observed_us, utilisation.

    - busy_us: time during which the consumer's user had records that it had not finished. A
      consumer with a handler or a service time is busy until that ends; one that is polled, from a
      poll with records to the next poll. Kafka's `poll-idle-ratio-avg` is the rest of the time
    - observed_us: time in the window for which this is known. It is unknown while a consumer's node
      is down, and from its last sample to a crash
    - utilisation = busy_us / observed_us

    Consumers take a sample with every heartbeat (`processing_observed`), in long runs less often.
    Sums over windows are exact; within a sample the busy time is spread evenly.
    """
    width = width_us(window)
    total, count = F.col("total"), F.col("count")
    window_us = F.col("window_us")
    from_us = F.col("time_us") - total
    observed_us = F.least("time_us", window_us + width) - F.greatest(from_us, window_us)
    return (
        events.where((F.col("kind") == kinds.PROCESSING_OBSERVED) & (total > 0))
        .withColumn(
            "window_us",
            F.explode(
                F.sequence(start_us(width, from_us), start_us(width, F.col("time_us") - 1),
                           F.lit(width))
            ),
        )
        .withColumn("observed_us", observed_us)
        .groupBy("window_us", "group", "consumer")
        .agg(
            F.sum(count * F.col("observed_us") / total).alias("busy_us"),
            F.sum("observed_us").alias("observed_us"),
        )
        .withColumn("utilisation", F.col("busy_us") / F.col("observed_us"))
    )  # fmt: skip
