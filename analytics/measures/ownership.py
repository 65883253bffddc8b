"""Ownership of partitions by group members, and outages: times without an owner.

A member gets a partition with `assigned`. It gives it up with `revoked`, when it leaves the group,
or when its node crashes. model/summary/ownership.py has the same rules, event by event.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ...model.events import kinds

PARTITION: Final = ("group", "topic", "partition")
"""The columns that identify a partition within a group."""

_KINDS: Final = (kinds.ASSIGNED, kinds.REVOKED, kinds.MEMBER_LEFT, *kinds.CRASHES)


def ownership(events: DataFrame) -> DataFrame:
    """Return which member owned which partition, and when.

    Columns: group, topic, partition, member, from_us, until_us; ordered by group, topic, partition,
    from_us and member.

    - from_us: time of `assigned`
    - until_us: time of the member's `revoked` or `member_left`, or of the crash of its
      node, whichever comes first; null if it owns the partition at the end
    """
    own = Window.partitionBy(*PARTITION, "member").orderBy("sequence")
    return (
        owner_changes(owner_events(events))
        .where("change != 0")
        .withColumn("until_us", F.lead("time_us").over(own))
        .where("change > 0")
        .select(*PARTITION, "member", "consumer", F.col("time_us").alias("from_us"), "until_us")
        .orderBy(*PARTITION, "from_us", "member")
    )


def outages(events: DataFrame) -> DataFrame:
    """Return when partitions had no owner in a group, after their first owner.

    Columns: group, topic, partition, from_us, until_us.

    - from_us: when the last owner gave the partition up
    - until_us: time of the next `assigned`; null if there is none

    Outages of zero length are left out, such as those at the end of a run, when everything stops.
    """
    return (
        with_outages(owner_changes(owner_events(events)))
        .where("from_us is not null")
        .crossJoin(end_of(events))
        .where("coalesce(until_us, end_us) > from_us")
        .select(*PARTITION, "from_us", "until_us")
        .orderBy(*PARTITION, "from_us")
    )


def end_of(events: DataFrame) -> DataFrame:
    """Return one row with the time of the last event, end_us."""
    return events.agg(F.max("time_us").alias("end_us"))


def owner_events(events: DataFrame) -> DataFrame:
    """Return each event that may change an owner, for each member and partition it may concern.

    Columns: group, topic, partition, member, consumer, sequence, time_us, node, takes (whether the
    member gets the partition), crashed (the node, if the event is a crash).
    """
    # There are few of them: distributing them over tasks would take longer than the rest.
    events = events.where(F.col("kind").isin(*_KINDS)).repartition(1)
    columns = [*PARTITION, "member", "consumer", "sequence", "time_us", "node"]
    direct = events.where(
        F.col("kind").isin(kinds.ASSIGNED, kinds.REVOKED)
        & F.expr("group is not null and topic is not null and partition is not null")
        & F.col("member").isNotNull()
    ).select(
        *columns,
        (F.col("kind") == kinds.ASSIGNED).alias("takes"),
        F.lit(None).cast("string").alias("crashed"),
    )
    owned = direct.where("takes").select(*PARTITION, "member", "consumer", "node").distinct()
    gone = events.where(F.col("kind").isin(kinds.MEMBER_LEFT, *kinds.CRASHES)).select(
        F.col("group").alias("left_group"),
        F.col("member").alias("left_member"),
        F.when(F.col("kind").isin(*kinds.CRASHES), F.col("node")).alias("crashed"),
        "sequence",
        "time_us",
    )
    concerned = F.expr(
        "crashed = node or (crashed is null and left_group = group and left_member = member)"
    )
    given_up = gone.join(owned, concerned).select(*columns, F.lit(False).alias("takes"), "crashed")
    # A member that was on several nodes has a row for each of them.
    return direct.unionByName(given_up.dropDuplicates([*PARTITION, "member", "sequence"]))


def owner_changes(owner_events: DataFrame) -> DataFrame:
    """Add the column `change`: 1 if the member becomes an owner, -1 if it stops being one, else 0.

    Crashes of nodes that the member is not on are left out.
    """
    own = Window.partitionBy(*PARTITION, "member").orderBy("sequence")
    current_node = F.last(F.when(F.col("takes"), F.col("node")), ignorenulls=True).over(own)
    before = F.lag("takes", 1, False).over(own)
    return (
        owner_events.withColumn("current_node", current_node)
        .where("crashed is null or crashed = current_node")
        .withColumn("change", F.col("takes").cast("int") - before.cast("int"))
    )


def with_outages(changes: DataFrame) -> DataFrame:
    """Add the outages that changes end, and the moves of partitions to other consumers.

    - from_us, until_us: on the row that ends an outage, and on the last row of a partition that has
      no owner at the end (until_us is null); else null
    - moved: 1 where a partition without an owner goes to another consumer than before; else null
    """
    here = Window.partitionBy(*PARTITION).orderBy("sequence")
    before = here.rowsBetween(Window.unboundedPreceding, -1)
    consumer = F.col("consumer")
    since_us = F.last(F.when(F.col("change") < 0, F.col("time_us")), ignorenulls=True)
    so_far = here.rowsBetween(Window.unboundedPreceding, 0)
    found = changes.withColumns({
        "owners": F.sum("change").over(so_far),
        "since_us": since_us.over(so_far),
        "previous": F.last(F.when(F.col("takes"), consumer), ignorenulls=True).over(before),
        "is_last": F.lead("sequence").over(here).isNull(),
    })  # fmt: skip
    first_owner = F.expr("takes and change = 1 and owners = 1")
    no_owner_left = F.expr("is_last and owners = 0")
    return found.withColumns({
        "from_us": F.when(first_owner | no_owner_left, F.col("since_us")),
        "until_us": F.when(first_owner & F.col("since_us").isNotNull(), F.col("time_us")),
        "moved": F.when(first_owner & (F.col("previous") != consumer), 1),
    })  # fmt: skip
