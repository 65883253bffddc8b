"""Number of events over time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...model.durations import Duration
from .windows import start_us, width_us


def event_counts(events: DataFrame, window: Duration = 1) -> DataFrame:
    """Count the events of each kind in each window.

    Columns: window_us (start of the window), kind, events.
    """
    start = start_us(width_us(window)).alias("window_us")
    return (
        events.groupBy(start, "kind")
        .agg(F.count(F.lit(1)).alias("events"))
        .orderBy("window_us", "kind")
    )
