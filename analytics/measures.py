"""Measures: each a function from DataFrame to DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..model.durations import Duration, to_us


def happenings(events: DataFrame, window: Duration = 1) -> DataFrame:
    """Count what happened: columns window_us (its start), kind, events; in that order."""
    width_us = to_us(window, "window")
    start = (F.col("time_us") - F.col("time_us") % F.lit(width_us)).alias("window_us")
    return (
        events.groupBy(start, "kind")
        .agg(F.count(F.lit(1)).alias("events"))
        .orderBy("window_us", "kind")
    )
