"""Clock skew and drift of nodes."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...model.durations import Duration
from .windows import start_us, width_us


def clock_drift(events: DataFrame, window: Duration = 1) -> DataFrame:
    """Return the offset and the drift of each node's clock, per window in which it had an event.

    Columns: window_us (start of the window), node, time_us (of the node's last event in the
    window), offset_us, drift_ppm.

    - offset_us = clock_us - time_us of that event; positive if the clock is ahead
    - drift_ppm = 1,000,000 * change of offset_us / change of time_us since the node's previous
      window; null in its first window. Setting a clock shows as drift in one window.
    """
    start = start_us(width_us(window)).alias("window_us")
    last = F.struct("time_us", (F.col("clock_us") - F.col("time_us")).alias("offset_us"))
    in_order = Window.partitionBy("node").orderBy("window_us")
    elapsed_us = F.col("time_us") - F.lag("time_us").over(in_order)
    change_us = F.col("offset_us") - F.lag("offset_us").over(in_order)
    return (
        events.where("node is not null and clock_us is not null")
        .groupBy(start, "node")
        .agg(F.max_by(last, F.struct("time_us", "sequence")).alias("last"))
        .select("window_us", "node", "last.*")
        .withColumn("drift_ppm", change_us * 1_000_000 / elapsed_us)
        .orderBy("node", "window_us")
    )
