"""What actors' inboxes held, and who sent what to whom: of runs that were observed.

A scenario with `observe = "1s"` has once in every second an event for each inbox in use, and for
each sender and type of message. Without it these measures are empty: counting messages costs, and
so is not done unless it is asked for.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..model import kinds


def inboxes(events: DataFrame) -> DataFrame:
    """The depth of inboxes over time.

    Columns time_us (the end of an interval), node, actor, waiting: messages in the inbox at that
    time; deepest: the most at any time in the interval; received: how many came in it. In a
    simulation handlers take no time, so that messages wait only for others of the same instant,
    or for a node that is paused.
    """
    return (
        events.where(F.col("kind") == kinds.INBOX_OBSERVED)
        .select(
            "time_us",
            "node",
            "actor",
            F.col("count").alias("waiting"),
            F.regexp_extract("detail", r"deepest (\d+)", 1).cast("long").alias("deepest"),
            F.regexp_extract("detail", r"received (\d+)", 1).cast("long").alias("received"),
        )
        .orderBy("time_us", "actor")
    )


def flow(events: DataFrame) -> DataFrame:
    """Who sent what to whom, how often, in all of the run: the most frequent first.

    Columns sender, receiver, message (its type), messages: how many reached the inbox of an actor.
    A timer is a message from an actor to itself; what was lost on the way, or went to the outside,
    is not in it.
    """
    sender = F.regexp_extract("detail", r"^\S+ from (.*)$", 1).alias("sender")
    message = F.regexp_extract("detail", r"^(\S+) from ", 1).alias("message")
    return (
        events.where(F.col("kind") == kinds.MESSAGES_OBSERVED)
        .groupBy(sender, F.col("actor").alias("receiver"), message)
        .agg(F.sum("count").alias("messages"))
        .orderBy(F.desc("messages"), "sender", "receiver", "message")
    )
