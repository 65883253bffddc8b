"""What went wrong in a run, and what monitoring tools would have shown of it."""

from collections import defaultdict
from typing import Final

from ..model.durations import SECOND_US
from . import charts, wording
from .analysis import Analysis, Row
from .charts import MAX_LINES, Chart, View, colours, layout, line
from .page import Cell, Table
from .wording import GREY, Clock

STATUSES: Final = ("OK", "WARN", "ERR")
"""Of groups, as Burrow calls them."""


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


def duplicates(analysis: Analysis) -> Table | None:
    """What producers sent again, by producer and topic."""
    names = ("appended", "retried", "deduplicated")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(names))
    for row in analysis.rows("duplicates"):
        found = sums[row["producer"], row["topic"]]
        found[:] = [known + row[name] for known, name in zip(found, names, strict=True)]
    rows = tuple(
        (
            producer, topic, wording.count(appended), wording.count(retried),
            wording.count(deduplicated), wording.count(max(0, retried - deduplicated)),
        )
        for (producer, topic), (appended, retried, deduplicated) in sorted(sums.items())
        if retried or deduplicated
    )  # fmt: skip
    heads = (
        "producer", "topic", "appended (records)", "sent again", "known and dropped", "maybe twice",
    )  # fmt: skip
    caption = (
        "A record that is sent again though it had been stored is dropped if its producer is "
        "idempotent; if not, it may be in the log twice."
    )
    return Table("Sent again", heads, rows, caption, frozenset({"topic"})) if rows else None


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
    made = layout(analysis, 320, [("lag (seconds)", 1)])
    data = []
    for group in sorted(shown)[:MAX_LINES]:
        tint = tints.get(group, GREY)
        for column, name, dash, sign in (
            ("exact_us", group, "solid", "circle"),
            ("age_us", f"{group}, as shown", "dot", "x"),
        ):
            seen = [row for row in shown[group] if row[column] is not None]
            drawn = line(
                name, tint, [clock(row["time_us"]) for row in seen],
                [round(row[column] / SECOND_US, 6) for row in seen], line={"dash": dash},
                hovertemplate="%{y:.4~r} s",
            )  # fmt: skip
            data.append(drawn | {"mode": "lines+markers", "marker": {"size": 6, "symbol": sign}})
    return Chart(
        "monitors",
        "Time lag: the truth, and what kafka-lag-exporter would have shown",
        "Of the partition furthest behind, at the same instants: solid is exact, dotted is what "
        "the exporter works out from the offsets that it sees once in "
        f"{wording.time(analysis.exporter_looks_us)}.",
        (View("", {"data": data, "layout": made}),),
    )


def errors(analysis: Analysis) -> Table | None:
    """How far off the lag exporter is."""
    tints = charts.colours(analysis)
    rows: tuple[tuple[str | Cell, ...], ...] = tuple(
        (
            Cell(row["group"], tints.get(row["group"])), wording.count(row["samples"]),
            *(wording.time(row[name]) for name in ("mean_us", "mean_error_us", "max_error_us")),
        )
        for row in analysis.rows("exporter_errors")
    )  # fmt: skip
    heads = ("group", "estimates", "true lag, mean", "error, mean", "error, at most")
    caption = "Over all partitions and looks: how far the estimate is from the truth, either way."
    return Table("How wrong the exporter is", heads, rows, caption) if rows else None


def burrow(analysis: Analysis) -> Table | None:
    """How often Burrow would have called a group what."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in analysis.rows("burrow"):
        counts[row["group"]][row["status"]] += 1
    statuses = [name for name in STATUSES if any(name in each for each in counts.values())]
    tints = charts.colours(analysis)
    rows: tuple[tuple[str | Cell, ...], ...] = tuple(
        (
            Cell(group, tints.get(group)), str(sum(each.values())),
            *(wording.share(each[status] / sum(each.values())) for status in statuses),
        )
        for group, each in sorted(counts.items())
    )  # fmt: skip
    caption = (
        f"Burrow looks once in {wording.time(analysis.burrow_looks_us)}: the share of its looks at "
        "which its rules give a group this status."
    )
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
