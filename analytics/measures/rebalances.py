"""Rebalances: their causes, how long they took, and their costs."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...model.events import kinds
from .ownership import end_of, owner_changes, owner_events, with_outages

KEY: Final = ("group", "number")
"""The columns that identify a rebalance."""

LAG_BEFORE: Final = """
    try_element_at(filter(samples, s -> s.time_us <= started_us), -1).records
"""
CAUGHT_UP: Final = """
    array_min(transform(
        filter(samples, s -> s.time_us >= completed_us and s.records <= lag_before),
        s -> s.time_us
    ))
"""
HIGHEST: Final = """
    array_max(transform(
        filter(
            samples,
            s -> s.time_us >= started_us
                and (caught_up_at_us is null or s.time_us <= caught_up_at_us)
                and (next_us is null or s.time_us < next_us)
        ),
        s -> s.records
    ))
"""
LAG_COLUMNS: Final = ("lag_before", "lag_peak", "lag_added", "caught_up_us")


def rebalances(events: DataFrame, lag: DataFrame | None = None) -> DataFrame:
    """Return one row for each rebalance, ordered by group and number.

    - group, number: counted within the group, from 1
    - generation: the last one that it reached
    - cause: why it started: the reason of `rebalance_started`
    - started_us, completed_us: times of the first `rebalance_started`, and of the
      `rebalance_completed` after it; null if there is none
    - starts: number of `rebalance_started` until it was completed; more than 1 if it was restarted
    - duration_us = completed_us - started_us; up to the end of the run if it was not completed
    - members: number of members when it was completed
    - moved: partitions that had no owner and went to another consumer than before, until the next
      rebalance starts
    - partitions_unavailable, unavailable_us, longest_us: number of partitions without an owner, the
      sum of their outages, and the longest outage. An outage belongs to the last rebalance started
      before the outage ended, if the outage began before that rebalance was completed
    - lag_before, lag_peak, lag_added, caught_up_us: see `with_lag`; null without `lag`
    """
    found = _rebalances(events)
    if lag is not None:
        found = with_lag(found, lag)
    else:
        found = found.withColumns(dict.fromkeys(LAG_COLUMNS, F.lit(None).cast("long")))
    return found.select(
        *KEY, "generation", "cause", "started_us", "completed_us", "duration_us", "members",
        "moved", "partitions_unavailable", "unavailable_us", "longest_us", *LAG_COLUMNS, "starts",
    ).orderBy(*KEY)  # fmt: skip


def with_lag(rebalances: DataFrame, lag: DataFrame) -> DataFrame:
    """Add the lag that each rebalance caused.

    `lag` has the columns time_us, group, reader, records, per partition or summed. The lag of a
    group is the sum over its partitions; in a broadcast group, that of the subscriber with the
    highest lag. It is known only at the times of `lag`.

    - lag_before: the last lag at or before the start; null before a group's first position
    - caught_up_us: time from the completion until the lag is at most lag_before; null if it never
      is, and without lag_before
    - lag_peak: the highest lag from the start until it has caught up, the next rebalance starts, or
      the run ends; at least lag_before
    - lag_added = lag_peak - lag_before; null without lag_before
    """
    samples = (
        lag.groupBy("group", "reader", "time_us")
        .agg(F.sum("records").alias("records"))
        .groupBy("group", "time_us")
        .agg(F.max("records").alias("records"))
        .groupBy("group")
        .agg(F.array_sort(F.collect_list(F.struct("time_us", "records"))).alias("samples"))
    )
    next_us = F.lead("started_us").over(Window.partitionBy("group").orderBy("number"))
    return (
        rebalances.join(samples, "group", "left")
        .withColumn("next_us", next_us)
        .withColumn("lag_before", F.expr(LAG_BEFORE))
        .withColumn("caught_up_at_us", F.expr(CAUGHT_UP))
        .withColumn("lag_peak", F.greatest("lag_before", F.expr(HIGHEST)))
        .withColumn("lag_added", F.expr("lag_peak - lag_before"))
        .withColumn("caught_up_us", F.expr("caught_up_at_us - completed_us"))
    )


def _rebalances(events: DataFrame) -> DataFrame:
    starts = F.col("kind") == kinds.REBALANCE_STARTED
    completes = F.col("kind") == kinds.REBALANCE_COMPLETED
    cause = F.when(starts, F.col("reason"))
    unowned = F.when(F.col("outage_us").isNotNull(), F.struct("topic", "partition"))
    return (
        _numbered_events(events)
        .groupBy(*KEY)
        .agg(
            F.max("epoch").alias("generation"),
            F.min_by(cause, F.when(starts, F.col("sequence"))).alias("cause"),
            F.min(F.when(starts, F.col("time_us"))).alias("started_us"),
            F.min("completed_us").alias("completed_us"),
            F.min_by("count", F.when(completes, F.col("sequence"))).alias("members"),
            F.count(F.when(starts, True)).alias("starts"),
            F.count("moved").alias("moved"),
            F.count_distinct(unowned).alias("partitions_unavailable"),
            F.coalesce(F.sum("outage_us"), F.lit(0)).alias("unavailable_us"),
            F.coalesce(F.max("outage_us"), F.lit(0)).alias("longest_us"),
            F.expr("coalesce(min(completed_us), max(end_us)) - min(started_us)").alias(
                "duration_us"
            ),
        )
    )


def _numbered_events(events: DataFrame) -> DataFrame:
    """Assign the rebalance events and owner changes of each group to numbered rebalances.

    Adds completed_us of the rebalance, and outage_us for an outage that belongs to it.
    """
    own_events = events.where(
        F.col("kind").isin(kinds.REBALANCE_STARTED, kinds.REBALANCE_COMPLETED)
        & F.col("group").isNotNull()
    ).select("group", "sequence", "time_us", "kind", "epoch", "count", "reason")
    in_group = Window.partitionBy("group")
    in_order = in_group.orderBy("sequence")
    starts = F.col("kind") == kinds.REBALANCE_STARTED
    before = F.last("kind", ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, -1)
    )
    is_first_start = starts & (F.coalesce(before, F.lit("")) != kinds.REBALANCE_STARTED)
    number = F.count(F.when(F.col("is_first_start"), True)).over(in_order)
    until_end = F.expr("from_us is not null and until_us is null")
    completed = F.min(F.when(F.col("kind") == kinds.REBALANCE_COMPLETED, F.col("time_us")))
    outage_us = F.expr("coalesce(until_us, end_us) - from_us")
    belongs = F.expr("completed_us is null or from_us <= completed_us")
    return (
        with_outages(owner_changes(owner_events(events)))
        .unionByName(own_events, allowMissingColumns=True)
        .withColumn("is_first_start", is_first_start)
        .withColumn("number", number)
        .withColumn(
            "number", F.when(until_end, F.max("number").over(in_group)).otherwise(F.col("number"))
        )
        .where("number > 0")
        .crossJoin(end_of(events))
        .withColumn("completed_us", completed.over(Window.partitionBy(*KEY)))
        .withColumn("started_us", F.when(starts, F.col("time_us")))
        .withColumn("outage_us", F.when(belongs & (outage_us > 0), outage_us))
    )
