"""Rebalances: what set them off, how long they took, and what they cost."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from .ownership import changes, claims, end_of, possession

ONE: Final = ("group", "number")

BEFORE: Final = """
    coalesce(try_element_at(filter(samples, s -> s.time_us <= started_us), -1).records, 0)
"""
BACK: Final = """
    array_min(transform(
        filter(samples, s -> s.time_us >= completed_us and s.records <= lag_before),
        s -> s.time_us
    ))
"""
HIGHEST: Final = """
    array_max(transform(
        filter(
            samples,
            s -> s.time_us >= started_us and (back_us is null or s.time_us <= back_us)
                and (next_us is null or s.time_us < next_us)
        ),
        s -> s.records
    ))
"""
OF_LAG: Final = ("lag_before", "lag_peak", "lag_added", "caught_up_us")


def rebalances(events: DataFrame, lag: DataFrame | None = None) -> DataFrame:
    """A row for each time that a group divided its partitions anew, by group and number.

    - group, number: its place among those of the group, from 1
    - generation: the one it led to, as far as it got
    - cause: what set it off: the detail of `rebalance_started` up to the colon
    - started_us, completed_us: the first `rebalance_started`, and the `rebalance_completed` after
      it; null if there is none
    - starts: how often it was started: once, unless something else came in between
    - duration_us = completed_us - started_us, or up to the end of the run
    - members: how many there were when it was completed
    - moved: how many partitions without an owner went to another consumer than they had before,
      from its start to that of the next
    - partitions_unavailable, unavailable_us, longest_us: partitions without an owner, how long in
      all, and the longest of these times. Such a time belongs to the last rebalance started
      before it ended, if it began before that was completed
    - lag_before, lag_peak, lag_added, caught_up_us: null without `lag`, see `with_lag`
    """
    rounds = _rounds(events)
    if lag is not None:
        rounds = with_lag(rounds, lag)
    else:
        nothing = F.lit(None).cast("long")
        rounds = rounds.withColumns(dict.fromkeys(OF_LAG, nothing))
    return rounds.select(
        *ONE, "generation", "cause", "started_us", "completed_us", "duration_us", "members",
        "moved", "partitions_unavailable", "unavailable_us", "longest_us", *OF_LAG, "starts",
    ).orderBy(*ONE)  # fmt: skip


def with_lag(rounds: DataFrame, lag: DataFrame) -> DataFrame:
    """Add to rebalances what became of the lag, seen where `lag` was taken.

    `lag` has the columns time_us, group, reader, records, for each partition or for all together. A
    group's lag is the sum over partitions; of a broadcast, that of the subscriber furthest behind.

    - lag_before: the last at or before the start, 0 if there is none
    - caught_up_us: from the completion to the first time at which it is not above lag_before
      again; null if it never is
    - lag_peak: the highest from lag_before on, until it has caught up, the next rebalance
      starts, or the end
    - lag_added = lag_peak - lag_before
    """
    samples = (
        lag.groupBy("group", "reader", "time_us")
        .agg(F.sum("records").alias("records"))
        .groupBy("group", "time_us")
        .agg(F.max("records").alias("records"))
        .groupBy("group")
        .agg(F.array_sort(F.collect_list(F.struct("time_us", "records"))).alias("samples"))
    )
    following = F.lead("started_us").over(Window.partitionBy("group").orderBy("number"))
    return (
        rounds.join(samples, "group", "left")
        .withColumn("next_us", following)
        .withColumn("lag_before", F.expr(BEFORE))
        .withColumn("back_us", F.expr(BACK))
        .withColumn("lag_peak", F.greatest("lag_before", F.expr(HIGHEST)))
        .withColumn("lag_added", F.expr("lag_peak - lag_before"))
        .withColumn("caught_up_us", F.expr("back_us - completed_us"))
    )


def _rounds(events: DataFrame) -> DataFrame:
    """Put together what was started, perhaps again, until it was completed; and what it cost."""
    starts = F.col("kind") == kinds.REBALANCE_STARTED
    completes = F.col("kind") == kinds.REBALANCE_COMPLETED
    cause = F.when(starts, F.substring_index("detail", ":", 1))
    place = F.when(F.col("lasted_us").isNotNull(), F.struct("topic", "partition"))
    return (
        _numbered(events)
        .groupBy(*ONE)
        .agg(
            F.max("epoch").alias("generation"),
            F.min_by(cause, F.when(starts, F.col("sequence"))).alias("cause"),
            F.min(F.when(starts, F.col("time_us"))).alias("started_us"),
            F.min("completed_us").alias("completed_us"),
            F.min_by("count", F.when(completes, F.col("sequence"))).alias("members"),
            F.count(F.when(starts, True)).alias("starts"),
            F.count("moved").alias("moved"),
            F.count_distinct(place).alias("partitions_unavailable"),
            F.coalesce(F.sum("lasted_us"), F.lit(0)).alias("unavailable_us"),
            F.coalesce(F.max("lasted_us"), F.lit(0)).alias("longest_us"),
            F.expr("coalesce(min(completed_us), max(end_us)) - min(started_us)").alias(
                "duration_us"
            ),
        )
    )


def _numbered(events: DataFrame) -> DataFrame:
    """Tell of each event of a group, and each partition it concerns, in which rebalance it is.

    With completed_us of that one, and lasted_us of a time without an owner that belongs to it.
    """
    of_rounds = events.where(
        F.col("kind").isin(kinds.REBALANCE_STARTED, kinds.REBALANCE_COMPLETED)
        & F.col("group").isNotNull()
    ).select("group", "sequence", "time_us", "kind", "epoch", "count", "detail")
    in_group = Window.partitionBy("group")
    in_order = in_group.orderBy("sequence")
    starts = F.col("kind") == kinds.REBALANCE_STARTED
    before = F.last("kind", ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, -1)
    )
    begins = starts & (F.coalesce(before, F.lit("")) != kinds.REBALANCE_STARTED)
    number = F.count(F.when(F.col("begins"), True)).over(in_order)
    still = F.expr("from_us is not null and until_us is null")
    completed = F.min(F.when(F.col("kind") == kinds.REBALANCE_COMPLETED, F.col("time_us")))
    lasted = F.expr("coalesce(until_us, end_us) - from_us")
    counts = F.expr("completed_us is null or from_us <= completed_us")
    return (
        possession(changes(claims(events)))
        .unionByName(of_rounds, allowMissingColumns=True)
        .withColumn("begins", begins)
        .withColumn("number", number)
        .withColumn(
            "number", F.when(still, F.max("number").over(in_group)).otherwise(F.col("number"))
        )
        .where("number > 0")
        .crossJoin(end_of(events))
        .withColumn("completed_us", completed.over(Window.partitionBy(*ONE)))
        .withColumn("started_us", F.when(starts, F.col("time_us")))
        .withColumn("lasted_us", F.when(counts & (lasted > 0), lasted))
    )
