"""Records that were redelivered, sent again, given up, or lost."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ...model.events import kinds
from .windows import is_commit

LOSSES: Final = (kinds.LOST, kinds.GIVEN_UP, kinds.ARCHIVED, kinds.DEAD_LETTERED)


def redeliveries(events: DataFrame, after_us: int = 0) -> DataFrame:
    """Count delivered and redelivered records, per group and partition, from a time on.

    Columns: group, topic, partition, delivered, redelivered, share = redelivered / delivered.

    In a group that commits offsets, a record is redelivered if its offset is below the end of what
    was delivered before: in a range, min(count, max(0, highest end before - base_offset)) records.
    In a group that acknowledges records, it is redelivered if the event has a retry count. A topic
    that is deleted and created again counts from zero.
    """
    place = ["group", "topic", "partition"]
    kind = F.col("kind")
    deleted = (
        events.where(kind == kinds.TOPIC_DELETED)
        .groupBy("topic")
        .agg(F.collect_list("sequence").alias("deleted"))
    )
    deleted_before = F.size(F.filter("deleted", lambda sequence: sequence < F.col("sequence")))
    incarnation = F.when(F.col("deleted").isNull(), 0).otherwise(deleted_before)
    of_groups = (
        events.where("group is not null and topic is not null and partition is not null")
        .join(F.broadcast(deleted), "topic", "left")
        .withColumn("incarnation", incarnation)
    )
    shows_commits = (kind == kinds.OFFSET_RESET) | is_commit()
    committing = of_groups.where(shows_commits).select(*place, "incarnation").distinct()
    before = (
        Window.partitionBy(*place, "incarnation")
        .orderBy("sequence")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    below = F.expr("least(count, greatest(0, coalesce(highest_end, 0) - base_offset))")
    retried = F.when(F.col("retries") > 0, F.col("count")).otherwise(0)
    return (
        of_groups.where(kind == kinds.DELIVERED)
        .withColumn("highest_end", F.max(F.col("base_offset") + F.col("count")).over(before))
        .where(F.col("time_us") >= after_us)
        .groupBy(*place, "incarnation")
        .agg(
            F.sum("count").alias("delivered"),
            F.sum(below).alias("below"),
            F.sum(retried).alias("retried"),
        )
        .join(committing.withColumn("commits", F.lit(1)), [*place, "incarnation"], "left")
        .groupBy(*place)
        .agg(
            F.sum("delivered").alias("delivered"),
            F.sum(F.expr("if(commits is null, retried, below)")).alias("redelivered"),
        )
        .withColumn("share", F.col("redelivered") / F.col("delivered"))
        .orderBy(*place)
    )


def duplicates(events: DataFrame) -> DataFrame:
    """Count the records that producers sent more than once.

    Columns: producer, topic, partition, appended, retried, deduplicated; all in records.

    When a record that was already appended is sent again (`send_retried`), an idempotent producer's
    partition drops it, which counts as deduplicated. Without idempotence it is appended again:
    appended counts both copies, and up to retried - deduplicated records are in the log twice. The
    exact number is unknown, because events do not say what is in a range of records.
    """
    kind = F.col("kind")
    wanted = (kinds.APPENDED, kinds.SEND_RETRIED, kinds.DEDUPLICATED)

    def records_of(name: str) -> Column:
        return F.sum(F.when(kind == name, F.col("count")).otherwise(0))

    place = ["producer", "topic", "partition"]
    return (
        events.where(kind.isin(*wanted) & F.col("producer").isNotNull())
        .groupBy(*place)
        .agg(
            records_of(kinds.APPENDED).alias("appended"),
            records_of(kinds.SEND_RETRIED).alias("retried"),
            records_of(kinds.DEDUPLICATED).alias("deduplicated"),
        )
        .orderBy(*place)
    )


def losses(events: DataFrame) -> DataFrame:
    """Count the records that were lost or given up, by kind, cause, topic and group.

    Columns: kind, cause, topic, group, records, first_us, last_us.

    - kind: `lost` from a log (group is null: lost to all groups) or before a group read it,
      `given_up` by a producer, `archived` or `dead_lettered` by a group after too many deliveries.
      Dead-lettered records still exist in the dead-letter topic
    - cause: the event's reason
    """
    cause = F.coalesce("reason", F.lit("unknown")).alias("cause")
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
