"""Inbox depths of actors and messages between them, for runs that were observed.

With `observe = "1s"` in the scenario, every second an event is recorded for each inbox in use and
for each sender and message type. Without it these measures are empty: counting messages slows a
run, so it is off by default.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ...model.events import kinds


def inbox_depths(events: DataFrame) -> DataFrame:
    """Return the depth of inboxes over time.

    Columns: time_us (end of an interval), node, actor, waiting (messages in the inbox at time_us),
    deepest (the maximum within the interval), received (messages that arrived in the interval).

    In a simulation handlers take no time, so messages wait only behind other messages of the same
    instant, or while their node is paused.
    """
    return (
        events.where(F.col("kind") == kinds.INBOX_OBSERVED)
        .select(
            "time_us",
            "node",
            "actor",
            F.col("count").alias("waiting"),
            F.col("peak").alias("deepest"),
            F.col("total").alias("received"),
        )
        .orderBy("time_us", "actor")
    )


def message_counts(events: DataFrame) -> DataFrame:
    """Count the messages between each pair of actors over the whole run, most frequent first.

    Columns: sender, receiver, message (its type), messages (how many reached the receiver's
    inbox).

    A timer is a message from an actor to itself. Messages that were dropped by the network, or sent
    to the outside, are not counted.
    """
    return (
        events.where(F.col("kind") == kinds.MESSAGES_OBSERVED)
        .groupBy(F.col("peer").alias("sender"), F.col("actor").alias("receiver"), "message")
        .agg(F.sum("count").alias("messages"))
        .orderBy(F.desc("messages"), "sender", "receiver", "message")
    )
