"""Who owned which partition when, and when nobody did.

A member takes a partition with `assigned` and gives it up with `revoked`, by leaving its group or
with the crash of its node. These are the rules of model/ownership.py, as windows over the few
events that they concern, in the order of the log.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds
from ..model.ownership import OF_GROUPS

OF_OWNERS: Final = sorted(OF_GROUPS | {kinds.NODE_CRASHED})

PLACE: Final = ("group", "topic", "partition")


def ownership(events: DataFrame) -> DataFrame:
    """Who owned which partition when.

    Columns group, topic, partition, member, from_us, until_us, in that order of rows: from
    `assigned` to the `revoked` or `member_left` of that member or the `node_crashed` of its node,
    whichever comes first; until_us is null for who still has it at the end.
    """
    own = Window.partitionBy(*PLACE, "member").orderBy("sequence")
    return (
        changes(claims(events))
        .where("change != 0")
        .withColumn("until_us", F.lead("time_us").over(own))
        .where("change > 0")
        .select(*PLACE, "member", F.col("time_us").alias("from_us"), "until_us")
        .orderBy(*PLACE, "from_us", "member")
    )


def outages(events: DataFrame) -> DataFrame:
    """When partitions had no owner in a group, once they had had one.

    Columns group, topic, partition, from_us, until_us: from when the last of the owners is gone to
    the next `assigned`; until_us is null where nobody came until the end. What lasts no time, such
    as when all is stopped at the end of a run, is none.
    """
    return (
        possession(changes(claims(events)))
        .where("from_us is not null")
        .crossJoin(end_of(events))
        .where("coalesce(until_us, end_us) > from_us")
        .select(*PLACE, "from_us", "until_us")
        .orderBy(*PLACE, "from_us")
    )


def end_of(events: DataFrame) -> DataFrame:
    """One row: when the last event happened, as end_us."""
    return events.agg(F.max("time_us").alias("end_us"))


def claims(events: DataFrame) -> DataFrame:
    """Everything that may give or take, for each member and partition that it may be about.

    Columns group, topic, partition, member, sequence, time_us, node, takes; and crashed, the node
    whose crash it is.
    """
    # Few enough for one place: to spread them over tasks would cost more than all the rest.
    events = events.where(F.col("kind").isin(*OF_OWNERS)).repartition(1)
    about = [*PLACE, "member", "sequence", "time_us", "node"]
    by_place = events.where(
        F.col("kind").isin(kinds.ASSIGNED, kinds.REVOKED)
        & F.expr("group is not null and topic is not null and partition is not null")
        & F.col("member").isNotNull()
    ).select(
        *about,
        (F.col("kind") == kinds.ASSIGNED).alias("takes"),
        F.lit(None).cast("string").alias("crashed"),
    )
    held = by_place.where("takes").select(*PLACE, "member", "node").distinct()
    gone = events.where(F.col("kind").isin(kinds.MEMBER_LEFT, kinds.NODE_CRASHED)).select(
        F.col("group").alias("of_group"),
        F.col("member").alias("who"),
        F.when(F.col("kind") == kinds.NODE_CRASHED, F.col("node")).alias("crashed"),
        "sequence",
        "time_us",
    )
    theirs = F.expr("crashed = node or (crashed is null and of_group = group and who = member)")
    taken = gone.join(held, theirs).select(*about, F.lit(False).alias("takes"), "crashed")
    # A member that was on several nodes in its time is named once for each of them.
    return by_place.unionByName(taken.dropDuplicates([*PLACE, "member", "sequence"]))


def changes(claims: DataFrame) -> DataFrame:
    """Add to claims what each changes.

    That is 1 if the member becomes an owner, -1 if it ceases to be one, else 0.
    """
    own = Window.partitionBy(*PLACE, "member").orderBy("sequence")
    home = F.last(F.when(F.col("takes"), F.col("node")), ignorenulls=True).over(own)
    before = F.lag("takes", 1, False).over(own)
    return (
        claims.withColumn("home", home)
        .where("crashed is null or crashed = home")
        .withColumn("change", F.col("takes").cast("int") - before.cast("int"))
    )


def possession(changes: DataFrame) -> DataFrame:
    """Add to changes what they mean for the partition.

    Where it gets an owner or at its last row, from_us and until_us of the time that it was without
    one, null if it was not; until_us is null as well if it is so still. And moved: 1 where it goes
    to another consumer than it had before.
    """
    here = Window.partitionBy(*PLACE).orderBy("sequence")
    before = here.rowsBetween(Window.unboundedPreceding, -1)
    consumer = F.substring_index("member", "#", 1)  # in its second life a member has a number
    since_us = F.last(F.when(F.col("change") < 0, F.col("time_us")), ignorenulls=True)
    so_far = here.rowsBetween(Window.unboundedPreceding, 0)
    found = changes.withColumns({
        "owners": F.sum("change").over(so_far),
        "since_us": since_us.over(so_far),
        "had": F.last(F.when(F.col("takes"), consumer), ignorenulls=True).over(before),
        "last": F.lead("sequence").over(here).isNull(),
    })  # fmt: skip
    gets = F.expr("takes and change = 1 and owners = 1")
    empty = F.expr("last and owners = 0")
    return found.withColumns({
        "from_us": F.when(gets | empty, F.col("since_us")),
        "until_us": F.when(gets & F.col("since_us").isNotNull(), F.col("time_us")),
        "moved": F.when(gets & (F.col("had") != consumer), 1),
    })  # fmt: skip
