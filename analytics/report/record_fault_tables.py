"""Tables of records that were lost, given up, redelivered, or sent again."""

from collections import defaultdict

from . import formatting
from .analysis import Analysis
from .charts import group_colours
from .page import PageTable, TableCell, make_table


def losses_table(analysis: Analysis) -> PageTable | None:
    """Return the records that were lost, given up, archived or dead-lettered."""
    rows = [
        (
            row["kind"].replace("_", " "), row["cause"] or "–", row["topic"] or "–",
            row["group"] or "all groups", formatting.count(row["records"]),
            formatting.time(row["first_us"]), formatting.time(row["last_us"]),
        )
        for row in analysis.rows("losses")
    ]  # fmt: skip
    return make_table(
        "Lost and dead-lettered records",
        ("event", "cause", "topic", "group", "records", "first", "last"),
        rows,
        caption="Dead-lettered records still exist in another topic. All others are gone.",
        texts={"cause", "topic", "group"},
    )


def redeliveries_table(analysis: Analysis) -> PageTable | None:
    """Return the number of redelivered records by group and topic."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in analysis.rows("redeliveries"):
        found = sums[row["group"], row["topic"]]
        found[0] += row["delivered"]
        found[1] += row["redelivered"]
    by_group = group_colours(analysis)
    rows = [
        (
            TableCell(group, by_group.get(group)), topic, formatting.count(delivered),
            formatting.count(redelivered),
            formatting.share(redelivered / delivered if delivered else None),
        )
        for (group, topic), (delivered, redelivered) in sorted(sums.items())
    ]  # fmt: skip
    heads = ("group", "topic", "delivered (records)", "redelivered (records)", "share")
    return make_table("Redelivered records", heads, rows, texts={"topic"})


def duplicates_table(analysis: Analysis) -> PageTable | None:
    """Return the records that producers sent more than once, by producer and topic."""
    names = ("appended", "retried", "deduplicated")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(names))
    for row in analysis.rows("duplicates"):
        found = sums[row["producer"], row["topic"]]
        found[:] = [known + row[name] for known, name in zip(found, names, strict=True)]
    rows = [
        (
            producer,
            topic,
            formatting.count(appended),
            formatting.count(retried),
            formatting.count(deduplicated),
            formatting.count(max(0, retried - deduplicated)),
        )
        for (producer, topic), (appended, retried, deduplicated) in sorted(sums.items())
        if retried or deduplicated
    ]
    return make_table(
        "Records sent again",
        (
            "producer", "topic", "appended (records)", "sent again", "deduplicated",
            "possible duplicates",
        ),
        rows,
        caption="A record that was appended and is sent again is dropped if its producer is "
        "idempotent. Otherwise it may be in the log twice.",
        texts={"topic"},
    )  # fmt: skip
