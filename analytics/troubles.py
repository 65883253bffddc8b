"""What went wrong with records: delivered again, sent again, given up, lost."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..model import kinds

LOSSES: Final = (kinds.LOST, kinds.GIVEN_UP, kinds.ARCHIVED, kinds.DEAD_LETTERED)


def redeliveries(events: DataFrame) -> DataFrame:
    """How many records were delivered, and how many of them not for the first time.

    Columns group, topic, partition, delivered, redelivered, share = redelivered / delivered. Where
    positions are committed, a record is delivered again if its offset lies below the end of what
    was delivered before: of a range, min(count, max(0, highest end before - base_offset)). Where
    records are acknowledged one by one, if it comes with a retry count. A topic that was deleted
    and made anew begins anew.
    """
    place = ["group", "topic", "partition"]
    kind = F.col("kind")
    deleted = (
        events.where(kind == kinds.TOPIC_DELETED)
        .groupBy("topic")
        .agg(F.collect_list("sequence").alias("deleted"))
    )
    gone = F.filter("deleted", lambda at: at < F.col("sequence"))
    eras = (
        events.where("group is not null and topic is not null and partition is not null")
        .join(F.broadcast(deleted), "topic", "left")
        .withColumn("era", F.when(F.col("deleted").isNull(), 0).otherwise(F.size(gone)))
    )
    of_commits = (kind == kinds.OFFSET_RESET) | (
        (kind == kinds.ACKNOWLEDGED) & F.col("epoch").isNotNull()
    )
    commits = (
        eras.where(of_commits).select(*place, "era").distinct().withColumn("commits", F.lit(1))
    )
    before = (
        Window.partitionBy(*place, "era")
        .orderBy("sequence")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    again = F.expr("least(count, greatest(0, coalesce(top, 0) - base_offset))")
    retried = F.when(F.col("detail").isNotNull(), F.col("count")).otherwise(0)
    return (
        eras.where(kind == kinds.DELIVERED)
        .withColumn("top", F.max(F.col("base_offset") + F.col("count")).over(before))
        .groupBy(*place, "era")
        .agg(
            F.sum("count").alias("delivered"),
            F.sum(again).alias("again"),
            F.sum(retried).alias("retried"),
        )
        .join(commits, [*place, "era"], "left")
        .groupBy(*place)
        .agg(
            F.sum("delivered").alias("delivered"),
            F.sum(F.expr("if(commits is null, retried, again)")).alias("redelivered"),
        )
        .withColumn("share", F.col("redelivered") / F.col("delivered"))
        .orderBy(*place)
    )


def duplicates(events: DataFrame) -> DataFrame:
    """What producers sent more than once, by producer, topic and partition.

    Columns producer, topic, partition, appended, retried, deduplicated; in records. A record that
    is sent again (`send_retried`) though it had been stored is stored once if its producer is
    idempotent: then it is in deduplicated. If it is not, the log stores it again and does not know
    it: appended counts both, and as many as retried - deduplicated may be there twice. That is all
    that can be seen, for events speak of ranges and not of what is in them.
    """
    kind = F.col("kind")
    wanted = (kinds.APPENDED, kinds.SEND_RETRIED, kinds.DEDUPLICATED)

    def sum_of(name: str) -> Column:
        return F.sum(F.when(kind == name, F.col("count")).otherwise(0))

    place = ["producer", "topic", "partition"]
    return (
        events.where(kind.isin(*wanted) & F.col("producer").isNotNull())
        .groupBy(*place)
        .agg(
            sum_of(kinds.APPENDED).alias("appended"),
            sum_of(kinds.SEND_RETRIED).alias("retried"),
            sum_of(kinds.DEDUPLICATED).alias("deduplicated"),
        )
        .orderBy(*place)
    )


def losses(events: DataFrame) -> DataFrame:
    """Records that somebody will never have, by kind, cause, topic and group.

    Columns kind, cause, topic, group, records, first_us, last_us. The kind is `lost` from a log
    (group is null: to everybody) or before a group had it, `given_up` by a producer, and of a
    group `archived` or `dead_lettered` after too many deliveries; what went to a dead-letter topic
    is still there, in another place. The cause is the event's detail up to a colon, behind which
    stands what differs from record to record.
    """
    cause = F.substring_index(F.coalesce("detail", F.lit("unknown")), ":", 1).alias("cause")
    return (
        events.where(F.col("kind").isin(*LOSSES))
        .groupBy("kind", cause, "topic", "group")
        .agg(
            F.sum("count").alias("records"),
            F.min("time_us").alias("first_us"),
            F.max("time_us").alias("last_us"),
        )
        .orderBy("kind", "cause", "topic", "group")
    )
