"""Skew: how unevenly the load is spread over partitions, consumers, brokers and keys."""

from typing import Final

import attrs
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...model.errors import UnknownNameError
from ...model.events import kinds


@attrs.frozen
class _Load:
    """How to attribute load to units; the expressions are SQL over the event's columns."""

    scope: str
    """Units are compared within the same scope."""
    kind: str
    """Events of this kind are the load."""
    unit: str
    presence: str
    """Events of this kind show that a unit exists, though it may have no load."""
    present_unit: str


_LOADS: Final = {
    "partition": _Load("topic", kinds.APPENDED, "partition", kinds.LEADER_CHANGED, "partition"),
    "member": _Load("group", kinds.DELIVERED, "consumer", kinds.ASSIGNED, "consumer"),
    "node": _Load("'cluster'", kinds.APPENDED, "node", kinds.LEADER_CHANGED, "peer"),
}


def skew(events: DataFrame, over: str = "partition") -> DataFrame:
    """Return how the load is spread over partitions, group members, or brokers.

    `over` is one of

    - "partition": records appended to each partition, compared within a topic
    - "member": records delivered to each consumer, compared within a group; a consumer that was
      restarted counts as one
    - "node": records appended on each broker, compared within the cluster

    Columns: scope (the topic, the group, or `cluster`), unit, records, bytes, share = records / sum
    of the scope; and for the whole scope, the same in each of its rows:

    - largest = max / mean: how many times the mean the busiest unit has
    - variation = standard deviation (of the population) / mean
    - gini = (2 * sum(i * x_i) / sum(x) - (n + 1)) / n, with x_i the i-th smallest of n: 0 if all
      have the same, close to 1 if one has everything

    Units without load count as well: partitions that have a leader, members that have an
    assignment.
    """
    if over not in _LOADS:
        raise UnknownNameError("skew over", over, _LOADS)
    load = _LOADS[over]
    is_load = F.col("kind") == load.kind
    unit = F.when(is_load, F.expr(load.unit)).otherwise(F.expr(load.present_unit)).cast("string")
    units = (
        events.where(F.col("kind").isin(load.kind, load.presence))
        .groupBy(F.expr(load.scope).alias("scope"), unit.alias("unit"))
        .agg(
            F.sum(F.when(is_load, F.col("count")).otherwise(0)).alias("records"),
            F.sum(F.when(is_load, F.col("bytes")).otherwise(0)).alias("bytes"),
        )
        .where("scope is not null and unit is not null")
    )
    scope = Window.partitionBy("scope")
    records, total = F.col("records"), F.sum("records").over(scope)
    n, rank = F.count("*").over(scope), F.row_number().over(scope.orderBy("records", "unit"))
    return (
        units.withColumns({"rank": rank, "n": n, "total": total})
        .where("total > 0")
        .withColumns({
            "share": records / F.col("total"),
            "largest": F.max("records").over(scope) * F.col("n") / F.col("total"),
            "variation": F.stddev_pop("records").over(scope) * F.col("n") / F.col("total"),
            "weighted": F.sum(F.col("rank") * records).over(scope),
        })
        .withColumn("gini", F.expr("(2 * weighted / total - (n + 1)) / n"))
        .select("scope", "unit", "records", "bytes", "share", "largest", "variation", "gini")
        .orderBy("scope", F.desc("records"), "unit")
    )  # fmt: skip


def hot_keys(events: DataFrame) -> DataFrame:
    """Return the keys with a large share of a partition's records, in key-shared groups.

    Columns: group, topic, partition, key, records, share (of the partition's records that have a
    key), seen_us.

    The counts are those of the partition leader when it last balanced the load (`key_counted`, at
    seen_us). They may be slightly too low, never too high. Groups of other kinds do not count keys.
    """
    place = ["group", "topic", "partition"]
    latest = Window.partitionBy(*place)
    return (
        events.where(F.col("kind") == kinds.KEY_COUNTED)
        .withColumn("latest_us", F.max("time_us").over(latest))
        .where("time_us = latest_us")
        .select(
            *place,
            "key",
            F.col("count").alias("records"),
            (F.col("count") / F.col("total")).alias("share"),
            F.col("time_us").alias("seen_us"),
        )
        .orderBy(*place, F.desc("records"), "key")
    )
