"""How unevenly the load is spread: over partitions, consumers and brokers, and over keys."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from ..model.errors import UnknownNameError
from ..model.kinds import APPENDED, ASSIGNED, DELIVERED, LEADER_CHANGED

CONSUMER: Final = "substring_index(member, '#', 1)"
OVER: Final = {
    "partition": ("topic", APPENDED, "partition", LEADER_CHANGED, "partition"),
    "member": ("group", DELIVERED, CONSUMER, ASSIGNED, CONSUMER),
    "node": ("'cluster'", APPENDED, "node", LEADER_CHANGED, "detail"),
}
"""Within what, which load, who has it; and which event tells who else is there, and who."""


def skew(events: DataFrame, over: str = "partition") -> DataFrame:
    """How the load is spread over the partitions of topics, members of groups, or brokers.

    `over` = "partition": records appended, by topic; "member": records delivered, by group, a
    consumer's lives together; "node": records appended on brokers, all together.

    Columns scope (the topic, the group, or `cluster`), unit, records, bytes, share = records / sum;
    and of the scope, the same in each of its rows:
    - largest = max / mean: how many times its fair share the busiest has
    - variation = standard deviation (of the population) / mean
    - gini = (2 * sum(i * x_i) / sum(x) - (n + 1)) / n, with x_i the i-th smallest of n: 0 when all
      have the same, close to 1 when one has all
    Who is there and has nothing (a partition with a leader, a member with an assignment) counts.
    """
    if over not in OVER:
        raise UnknownNameError("skew over", over, OVER)
    scope, loads, unit, there, also = OVER[over]
    carried = F.col("kind") == loads
    unit_of = F.when(carried, F.expr(unit)).otherwise(F.expr(also)).cast("string")
    units = (
        events.where(F.col("kind").isin(loads, there))
        .groupBy(F.expr(scope).alias("scope"), unit_of.alias("unit"))
        .agg(
            F.sum(F.when(carried, F.col("count")).otherwise(0)).alias("records"),
            F.sum(F.when(carried, F.col("bytes")).otherwise(0)).alias("bytes"),
        )
        .where("scope is not null and unit is not null")
    )
    all_ = Window.partitionBy("scope")
    records, total = F.col("records"), F.sum("records").over(all_)
    n, rank = F.count("*").over(all_), F.row_number().over(all_.orderBy("records", "unit"))
    return (
        units.withColumns({"rank": rank, "n": n, "total": total})
        .where("total > 0")
        .withColumns({
            "share": records / F.col("total"),
            "largest": F.max("records").over(all_) * F.col("n") / F.col("total"),
            "variation": F.stddev_pop("records").over(all_) * F.col("n") / F.col("total"),
            "weighted": F.sum(F.col("rank") * records).over(all_),
        })
        .withColumn("gini", F.expr("(2 * weighted / total - (n + 1)) / n"))
        .select("scope", "unit", "records", "bytes", "share", "largest", "variation", "gini")
        .orderBy("scope", F.desc("records"), "unit")
    )  # fmt: skip


def hot_keys(events: DataFrame) -> DataFrame:
    """The keys that have a large part of a partition's records, in key-shared groups.

    Columns group, topic, partition, key, records, share, seen_us: as the partition's leader counted
    them when it last looked (`key_counted`), which it does whenever it balances the load; share is
    of all records with a key that it had then. Counts may be a little too low, never too high.
    Other groups do not look at keys, and no event tells of them.
    """
    place = ["group", "topic", "partition"]
    latest = Window.partitionBy(*place)
    parts = r"^of (\d+): (.*)$"
    return (
        events.where(F.col("kind") == kinds.KEY_COUNTED)
        .withColumn("latest_us", F.max("time_us").over(latest))
        .where("time_us = latest_us")
        .select(
            *place,
            F.regexp_extract("detail", parts, 2).alias("key"),
            F.col("count").alias("records"),
            (F.col("count") / F.regexp_extract("detail", parts, 1).cast("long")).alias("share"),
            F.col("time_us").alias("seen_us"),
        )
        .orderBy(*place, F.desc("records"), "key")
    )
