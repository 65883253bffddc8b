"""What went wrong in a run, and what monitoring tools would have shown of it."""

from collections import defaultdict

from . import charts, wording
from .analysis import Analysis, Row
from .charts import MAX_LINES, Chart, View, colours, layout, line
from .page import Cell, Table
from .wording import GREY, Clock


def redeliveries(analysis: Analysis) -> Table | None:
    """What was delivered more than once, by group and topic."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in analysis.rows("redeliveries"):
        found = sums[row["group"], row["topic"]]
        found[0] += row["delivered"]
        found[1] += row["redelivered"]
    tints = charts.colours(analysis)
    rows = tuple(
        (
            Cell(group, tints.get(group)), topic, wording.count(delivered), wording.count(again),
            wording.share(again / delivered if delivered else None),
        )
        for (group, topic), (delivered, again) in sorted(sums.items())
    )  # fmt: skip
    heads = ("group", "topic", "delivered (records)", "again (records)", "share")
    return Table("Delivered again", heads, rows, texts=frozenset({"topic"})) if rows else None


def losses(analysis: Analysis) -> Table | None:
    """What somebody will never have."""
    rows = tuple(
        (
            row["kind"].replace("_", " "), row["cause"] or "–", row["topic"] or "–",
            row["group"] or "everybody", wording.count(row["records"]),
            wording.time(row["first_us"]), wording.time(row["last_us"]),
        )
        for row in analysis.rows("losses")
    )  # fmt: skip
    heads = ("what", "cause", "topic", "whose", "records", "first", "last")
    texts = frozenset({"cause", "topic", "whose"})
    caption = "What was dead-lettered is kept in another topic; all else here is gone."
    return Table("Losses and dead letters", heads, rows, caption, texts) if rows else None


def monitors(analysis: Analysis) -> Chart | None:
    """The estimate of a lag exporter beside the truth."""
    shown: dict[str, list[Row]] = defaultdict(list)
    for row in analysis.rows("exporter"):
        shown[row["group"]].append(row)
    if not shown:
        return None
    clock, tints = Clock.of(analysis.duration_us), colours(analysis)
    made = layout(analysis, 300, [("lag (seconds)", 1)])
    data = []
    for group in sorted(shown)[:MAX_LINES]:
        truth = [row for row in analysis.rows("lag") if row["reader"] == group]
        tint = tints.get(group, GREY)
        at = [clock(row["time_us"]) for row in truth]
        data.append(line(group, tint, at, [(row["age_us"] or 0) / 1e6 for row in truth]))
        seen = [row for row in shown[group] if row["age_us"] is not None]
        dots = line(
            f"{group}, as shown", tint, [clock(row["time_us"]) for row in seen],
            [row["age_us"] / 1e6 for row in seen], line={"dash": "dot"},
        )  # fmt: skip
        data.append(dots | {"mode": "lines+markers", "marker": {"size": 5}})
    return Chart(
        "monitors",
        "Time lag: the truth, and what kafka-lag-exporter would have shown",
        "Solid is exact. Dotted is the estimate from offsets that are looked at now and then, "
        "interpolated, as the exporter makes it.",
        (View("", {"data": data, "layout": made}),),
    )


def burrow(analysis: Analysis) -> Table | None:
    """How often Burrow would have called a group what."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in analysis.rows("burrow"):
        counts[row["group"]][row["status"]] += 1
    statuses = sorted({status for each in counts.values() for status in each})
    tints = charts.colours(analysis)
    rows: tuple[tuple[str | Cell, ...], ...] = tuple(
        (
            Cell(group, tints.get(group)), str(sum(each.values())),
            *(wording.share(each[status] / sum(each.values())) for status in statuses),
        )
        for group, each in sorted(counts.items())
    )  # fmt: skip
    caption = "The share of its looks at which Burrow's rules give a group this status."
    return Table("Burrow", ("group", "looks", *statuses), rows, caption) if rows else None


def flow(analysis: Analysis) -> Table | None:
    """Who sent what to whom most often."""
    rows = tuple(
        (row["sender"], row["receiver"], row["message"], wording.count(row["messages"]))
        for row in analysis.rows("flow")
    )
    heads = ("from", "to", "message", "messages")
    texts = frozenset({"to", "message"})
    return Table("Messages between actors", heads, rows, texts=texts) if rows else None
