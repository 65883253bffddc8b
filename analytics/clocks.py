"""How far nodes' clocks are off."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..model.durations import Duration, to_us


def drift(events: DataFrame, window: Duration = 1) -> DataFrame:
    """How far each node's clock is off, and how it runs, for each window in which it did something.

    Columns window_us (its start), node, and of the last event there in that window: time_us, and
    offset_us = clock_us - time_us, positive for a clock that is ahead. drift_ppm is the slope to
    the window before: a million times the change of offset_us by the time in between; null in the
    node's first window. A clock that is set makes a jump, which is a slope as well.
    """
    width_us = to_us(window, "window")
    start = (F.col("time_us") - F.col("time_us") % F.lit(width_us)).alias("window_us")
    off = F.struct("time_us", (F.col("clock_us") - F.col("time_us")).alias("offset_us"))
    in_order = Window.partitionBy("node").orderBy("window_us")
    passed_us = F.col("time_us") - F.lag("time_us").over(in_order)
    change_us = F.col("offset_us") - F.lag("offset_us").over(in_order)
    return (
        events.where("node is not null and clock_us is not null")
        .groupBy(start, "node")
        .agg(F.max_by(off, F.struct("time_us", "sequence")).alias("off"))
        .select("window_us", "node", "off.*")
        .withColumn("drift_ppm", change_us * 1_000_000 / passed_us)
        .orderBy("node", "window_us")
    )
